package memory

import (
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// patience is how many of the finest cells are looked at one by one before
// coarser tiers are asked. Mostly one is enough: a key at its limit that asks
// for one more.
const patience = 128

// walk is the search for the bucket with which need is gone.
type walk struct {
	e    *entry
	p    *profile // of the step: tiers are numbered as in its ladder
	need int64
	from int64 // everything that starts before has been counted
}

// leaves is the bucket of tier w.Finest that must leave the window, with all
// older ones, until need is gone: the count is above what has room by need.
//
// It goes up from the window's edge, each tier to where the next coarser one
// has a bucket that begins, and then down inside the coarse bucket with which
// need is gone: a few dozen cells, where a dense day has 86,400. That holds as
// far as all tiers tell the same; what was added to some of them only is found
// by the finest alone.
func (st *step) leaves(e *entry, w *counter.Window, need int64) tiers.Bucket {
	n, k, t := e.locate(st.prof, w.Finest)
	edge := after(cutoff(st.now, st.reach(w, t), t.width), 1)
	g := walk{e, st.prof, need, edge}
	c, found := g.span(n, k, forever, patience)
	if !found && g.from != forever {
		c, found = g.upDown(w.Finest, w.Decision)
	}
	if !found {
		g = walk{e, st.prof, need, edge}
		c, _ = g.span(n, k, forever, n.size(k))
	}
	return bucket(c.start, t.width)
}

// span counts the cells of a tier from g.from to end, at most max of them. It
// returns the cell with which need was gone; else the last it counted, and
// from is end, or where it stopped.
func (g *walk) span(n *entry, k int, end int64, max int) (last cell, found bool) {
	j, size := n.lower(k, g.from), n.size(k)
	for ; j < size && max > 0; j, max = j+1, max-1 {
		c := *n.cell(k, j)
		if c.start >= end {
			break
		}
		if last = c; c.n >= g.need {
			return c, true
		}
		g.need -= c.n
	}
	g.from = end
	if max == 0 && j < size {
		g.from = n.cell(k, j).start
	}
	return last, false
}

// upDown is the cell of tier finest, if the tiers tell the same.
func (g *walk) upDown(finest, decision int) (cell, bool) {
	for i := finest; i <= decision; i++ {
		n, k, _ := g.e.locate(g.p, i)
		if n == nil {
			return cell{}, false
		}
		end := int64(forever)
		if i < decision {
			width := g.p.tiers[i+1].width
			end = -floorDiv(-g.from, width) * width
		}
		if c, found := g.span(n, k, end, n.size(k)); found {
			return g.down(c, i, finest)
		}
	}
	return cell{}, false
}

// down is the cell of tier finest inside c, which is of tier i, with which
// need is gone.
func (g *walk) down(c cell, i, finest int) (cell, bool) {
	for i > finest {
		end := c.start + g.p.tiers[i].width
		i--
		n, k, _ := g.e.locate(g.p, i)
		g.from = c.start
		var found bool
		if c, found = g.span(n, k, end, n.size(k)); !found {
			return cell{}, false
		}
	}
	return c, true
}
