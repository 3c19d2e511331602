package redis

import "sort"

// root is a root as a list, which is the answer of lua/do.lua, with the leaves of the
// root: running sums by position. lua/before.lua does the same as before, on the server.
type root struct {
	group
	value  string
	bytes  int               // of a sum
	origin uint64            // position from which the positions in value count
	leaves map[uint64]string // by number
}

const (
	positionBytes = 4
	slotBytes     = 2
	headBytes     = 7 // width and origin; a first sum follows
)

// Kinds of entries: a bucket, or a leaf.
const (
	bucketKind = iota
	sparseKind // slots and sums of two bytes
	_          // dense: sums for all slots in turn, of 2, 4 and 7 bytes
	_
	_
)

var kindWidth = [8]int{sparseKind: 2, 2: 2, 3: 4, 4: 7}

func parseRoot(g group, value string) (*root, error) {
	r := &root{group: g, value: value, leaves: map[uint64]string{}}
	if value == "" {
		return r, nil
	}
	w := int(value[0])
	if w != 2 && w != 4 && w != 7 || len(value) < headBytes+positionBytes+2*w || (len(value)-headBytes-w)%(positionBytes+w) != 0 {
		return nil, errDamaged
	}
	r.bytes, r.origin = w, number(value[1:headBytes])
	return r, nil
}

func (r *root) entries() int {
	if r.bytes == 0 {
		return 0
	}
	return (len(r.value) - headBytes - r.bytes) / (positionBytes + r.bytes)
}

// at returns the position of entry i without the kind, and the kind.
func (r *root) at(i int) (position uint64, kind int) {
	from := headBytes + r.bytes + i*(positionBytes+r.bytes)
	p := number(r.value[from : from+positionBytes])
	return r.origin + p&^7, int(p & 7)
}

// sum returns the running sum before entry i.
func (r *root) sum(i int) uint64 {
	from := headBytes + i*(positionBytes+r.bytes)
	return number(r.value[from : from+r.bytes])
}

// before returns the number of hits that were counted before bucket index. The hits of
// a missing leaf count from the leaf's last bucket on.
func (r *root) before(index int64) (uint64, error) {
	if r.bytes == 0 {
		return 0, nil
	}
	x, n := position(index), r.entries()
	i := sort.Search(n, func(i int) bool { at, _ := r.at(i); return at >= x })
	sum := r.sum(i)
	if i == n {
		return sum, nil
	}
	at, kind := r.at(i)
	if kind == bucketKind || r.leafOf(at) != r.leafOf(x) {
		return sum, nil
	}
	share := r.sum(i+1) - sum
	under, err := under(r.leaves[r.leafOf(x)], kind, int(x/perBucket%uint64(r.leaf)), share)
	return sum + under, err
}

// lost reports whether the root has dropped hits of the buckets from index on. Buckets
// before needed are of no use, and do not count.
func (r *root) lost(needed, index int64) bool {
	if r.bytes == 0 || r.sum(0) != r.sum(1) {
		return false
	}
	edge, _ := r.at(0)
	return edge >= position(max(needed, index))
}

// leafOf returns the number of the leaf that holds a position.
func (r *root) leafOf(position uint64) uint64 { return position / r.leafPositions() }

// under returns the number of hits in the slots of a leaf below slot. The leaf has share
// hits in all.
func under(leaf string, kind, slot int, share uint64) (uint64, error) {
	width := kindWidth[kind]
	if width == 0 {
		return 0, errDamaged
	}
	size := width
	if kind == sparseKind {
		size += slotBytes
	}
	if len(leaf)%size != 0 {
		return 0, errDamaged
	}
	i := min(slot, len(leaf)/size)
	if kind == sparseKind {
		i = sort.Search(len(leaf)/size, func(i int) bool { return int(number(leaf[i*size:i*size+slotBytes])) >= slot })
	}
	if i == 0 {
		return 0, nil
	}
	sum := number(leaf[i*size-width : i*size])
	if sum > share {
		return 0, errDamaged
	}
	return sum, nil
}
