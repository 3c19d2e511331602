package memory

// table finds entries by key: open addressing, linear probing, the hash beside
// the pointer, so that a lookup waits for one cache line here and then for the
// entry's. A Go map of strings waits for three before the entry.
type table struct {
	slots []slot // a power of two of them, never full
	keys  int
}

type slot struct {
	hash uint64
	e    *entry
}

const minSlots = 8

func newTable() table { return table{slots: make([]slot, minSlots)} }

func (t *table) find(hash uint64, key []byte) *entry {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.e == nil {
			return nil
		}
		if s.hash == hash && s.e.is(key) {
			return s.e
		}
	}
}

// insert wants a key that is not there yet.
func (t *table) insert(hash uint64, e *entry) {
	if t.keys++; 4*t.keys > 3*len(t.slots) {
		t.resize(2 * len(t.slots))
	}
	t.place(slot{hash, e})
}

func (t *table) place(s slot) {
	mask := uint64(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].e != nil {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

func (t *table) resize(n int) {
	old := t.slots
	t.slots = make([]slot, n)
	for _, s := range old {
		if s.e != nil {
			t.place(s)
		}
	}
}

// remove wants an entry that is there. What was pushed past the gap moves back
// into it: no tombstones, so a flood leaves no trace.
func (t *table) remove(hash uint64, e *entry) {
	mask := uint64(len(t.slots) - 1)
	gap := hash & mask
	for t.slots[gap].e != e {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; t.slots[i].e != nil; i = (i + 1) & mask {
		if home := t.slots[i].hash & mask; (i-home)&mask >= (i-gap)&mask {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = slot{}
	if t.keys--; len(t.slots) > minSlots && 8*t.keys < len(t.slots) {
		t.resize(len(t.slots) / 2)
	}
}
