package memory

// An entry stands in one heap by when it will be empty, and, in a store that
// evicts, in another by when it was last hit.
const (
	byEmpty = iota
	byHit
	heaps
)

// item is an entry in a heap. Hits raise what an entry is ordered by, and do
// not come here to say so: at is a lower bound of it, made exact when the item
// arrives at the top. So a hit of a known key costs the order nothing, where a
// linked list would touch two other entries' cache lines on every fresh bucket,
// and clocks that disagree do not spoil the order, as they would a list's.
type item struct {
	at int64
	e  *entry
}

// heap is a heap with four children per node, smallest at first.
type heap struct {
	items []item
	which int // position kept in entry.pos[which]
}

// bound is a lower bound of all in h.
func (h *heap) bound() int64 {
	if len(h.items) == 0 {
		return forever
	}
	return h.items[0].at
}

func (h *heap) set(i int, it item) {
	h.items[i] = it
	it.e.pos[h.which] = uint32(i)
}

func (h *heap) push(at int64, e *entry) {
	h.items = append(h.items, item{})
	h.up(len(h.items)-1, item{at, e})
}

// fix moves the item at i to where at belongs.
func (h *heap) fix(i int, at int64) {
	it := h.items[i]
	it.at = at
	h.up(i, it)
	h.down(int(it.e.pos[h.which]))
}

func (h *heap) remove(i int) {
	last := len(h.items) - 1
	it := h.items[last]
	h.items[last] = item{}
	h.items = h.items[:last]
	if i == last {
		return
	}
	h.set(i, it)
	h.fix(i, it.at)
}

func (h *heap) up(i int, it item) {
	for i > 0 {
		parent := (i - 1) / 4
		if h.items[parent].at <= it.at {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, it)
}

func (h *heap) down(i int) {
	it := h.items[i]
	for {
		first := 4*i + 1
		if first >= len(h.items) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h.items)); c++ {
			if h.items[c].at < h.items[least].at {
				least = c
			}
		}
		if h.items[least].at >= it.at {
			break
		}
		h.set(i, h.items[least])
		i = least
	}
	h.set(i, it)
}
