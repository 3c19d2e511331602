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
		if s.hash == hash && string(s.e.key()) == string(key) {
			return s.e
		}
	}
}

// holds reports whether an entry is in the table under a hash.
func (t *table) holds(at slot) bool {
	mask := uint64(len(t.slots) - 1)
	for i := at.hash & mask; t.slots[i].e != nil; i = (i + 1) & mask {
		if t.slots[i] == at {
			return true
		}
	}
	return false
}

// insert adds an entry whose key is not in the table yet.
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

// remove takes out an entry of the table. An entry that was pushed past the gap
// moves back into the gap: no tombstones, so a flood leaves no trace.
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

// An entry stands in a heap by the instant from which the entry is empty, and, in
// an evicting store, in another heap by the last hit.
const (
	byEmpty = iota
	byHit
	orders
)

// item is an entry in a heap. Hits raise the entry's rank and leave the item
// alone: at is a lower bound of the rank, made exact when the item arrives at
// the top. So the order costs the hit of a known key nothing, where a linked list
// would touch two other entries' cache lines on every fresh bucket, and clocks
// that disagree do not spoil the order, as they would a list's.
type item struct {
	at int64
	e  *entry
}

// heap is a heap with four children per node, smallest first.
type heap struct {
	items []item
	order int // byEmpty or byHit; index of an entry's position in entry.pos
}

// bound is a lower bound of all ranks in h.
func (h *heap) bound() int64 {
	if len(h.items) == 0 {
		return forever
	}
	return h.items[0].at
}

func (h *heap) push(at int64, e *entry) {
	h.items = append(h.items, item{})
	h.put(len(h.items)-1, item{at, e})
}

func (h *heap) remove(i int) {
	last := len(h.items) - 1
	it := h.items[last]
	h.items[last] = item{}
	h.items = h.items[:last]
	if i < last {
		h.put(i, it)
	}
}

// put puts it where it belongs, from the free position i on.
func (h *heap) put(i int, it item) {
	for ; i > 0 && h.items[(i-1)/4].at > it.at; i = (i - 1) / 4 {
		h.set(i, h.items[(i-1)/4])
	}
	for {
		first := 4*i + 1
		least := first
		for c := first + 1; c < min(first+4, len(h.items)); c++ {
			if h.items[c].at < h.items[least].at {
				least = c
			}
		}
		if first >= len(h.items) || h.items[least].at >= it.at {
			break
		}
		h.set(i, h.items[least])
		i = least
	}
	h.set(i, it)
}

func (h *heap) set(i int, it item) {
	h.items[i] = it
	it.e.pos[h.order] = uint32(i)
}
