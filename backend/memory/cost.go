package memory

// What things cost, in buckets of 16 bytes. TestCostIsHonest measures it: an
// entry has its slot in a table (16 bytes, and the table is 3/8 to 3/4 full)
// and its items in heaps (16 bytes each, and what append holds ready).
const (
	bucketBytes = 16
	entryCost   = 16
	pastCost    = 13
	totalsCost  = 8
	chainCost   = 12 // an entry that continues another
)

// longCost is what a key costs that does not fit into its entry.
func longCost(n int) int64 {
	if n <= inEntry {
		return 0
	}
	return 1 + int64(n+bucketBytes-1)/bucketBytes
}

// freshCost is the cost of the entry of a new key, with at most one cell in
// each tier of p.
func freshCost(key int, p *profile) int64 { return entryCost + longCost(key) + p.chain() }

// chain is what the entries beyond the first cost, and the past of each that
// they hang on.
func (p *profile) chain() int64 {
	return int64(max(0, len(p.tiers)-1)/perEntry) * (chainCost + pastCost)
}

// cost is all that e takes of the store's bound.
func (e *entry) cost() int64 {
	c := entryCost + longCost(e.keyLen()) - chainCost
	for n := e; n != nil; n = n.chained() {
		c += chainCost
		if n.past != nil {
			c += pastCost
			for k := range n.past.rings {
				c += int64(len(n.past.rings[k].cells))
			}
			for t := n.past.totals; t != nil; t = t.next {
				c += totalsCost
			}
		}
	}
	return c
}

// growth is what cells that tier k does not have yet would cost: the larger
// ring, and what an entry has only beside rings, once for all its tiers.
func (n *entry) growth(k, missing int) (ring, beside int64) {
	want := capacity(n.size(k) + missing - 1)
	have := 0
	if n.past != nil {
		have = len(n.past.rings[k].cells)
	}
	if want <= have {
		return 0, 0
	}
	if n.past == nil {
		beside = pastCost
	}
	if (n.past == nil || n.past.totals == nil) && want >= longRing {
		beside += totalsCost
	}
	return int64(want - have), beside
}

// bill adds up growth over tiers. What an entry needs beside its rings, its
// tiers share.
type bill struct {
	lacks int64
	n     *entry // the last
	paid  int64  // beside its rings, in lacks
}

// plus is b and the growth of tier k of n by missing cells. Tiers come in the
// order of their entries.
func (b bill) plus(n *entry, k, missing int) bill {
	ring, beside := n.growth(k, missing)
	if b.n != n {
		b.n, b.paid = n, 0
	}
	b.lacks += ring + max(0, beside-b.paid)
	b.paid = max(beside, b.paid)
	return b
}
