package page

import (
	"math"
	"math/rand/v2"
	"slices"
)

// box is a rectangle on a drawing, y upwards.
type box struct{ x0, y0, x1, y1 float64 }

func (b box) overlaps(o box) bool {
	return b.x0 < o.x1 && o.x0 < b.x1 && b.y0 < o.y1 && o.y0 < b.y1
}

func (b box) holds(o box) bool {
	return b.x0 <= o.x0 && o.x1 <= b.x1 && b.y0 <= o.y0 && o.y1 <= b.y1
}

func (b box) grown(by float64) box { return box{b.x0 - by, b.y0 - by, b.x1 + by, b.y1 + by} }

// nearest is the place in b that is nearest to x, y.
func (b box) nearest(x, y float64) (float64, float64) {
	return min(max(x, b.x0), b.x1), min(max(y, b.y0), b.y1)
}

// leader is the line from a dot to its label.
type leader struct{ x0, y0, x1, y1 float64 }

// crosses tells whether any of the line lies in b.
func (l leader) crosses(b box) bool {
	low, high := 0.0, 1.0
	for _, side := range [2]struct{ from, to, low, high float64 }{{l.x0, l.x1, b.x0, b.x1}, {l.y0, l.y1, b.y0, b.y1}} {
		d := side.to - side.from
		if d == 0 {
			if side.from <= side.low || side.from >= side.high {
				return false
			}
			continue
		}
		a, z := (side.low-side.from)/d, (side.high-side.from)/d
		low, high = max(low, min(a, z)), min(high, max(a, z))
	}
	return low < high
}

func (l leader) length() float64 { return math.Hypot(l.x1-l.x0, l.y1-l.y0) }

// label is one to be placed beside its dot at x, y.
type label struct {
	x, y, width, height float64

	at     box // filled in, if placed
	placed bool
}

const (
	dotRadius = 5.0
	labelGap  = 3.0 // between a dot and its label
)

// mostLabels is where names stop to help: more dots are a cloud.
const mostLabels = 40

// place finds each label a place inside area, off all dots, all obstacles and
// all other labels and their lines, and near to its dot. Lines to labels avoid
// dots, if they can. A label for which there is no room stays unplaced.
//
// Labels take the best place that is left, one after the other. One that finds
// none takes another's, which looks for a new one, and the more often a label
// was driven away, the dearer it is to drive it away again: thus a crowd that
// blocks its own middle dissolves. Of several orders the best counts. Forces
// that push labels apart are the usual way; they end with overlaps that
// somebody has to resolve.
func place(labels []label, area box, obstacles []box) {
	if len(labels) > mostLabels {
		return
	}
	spots, order := make([][]spot, len(labels)), make([]int, len(labels))
	var dots []box
	for _, l := range labels {
		dots = append(dots, box{l.x, l.y, l.x, l.y}.grown(dotRadius+1))
	}
	for i := range labels {
		spots[i], order[i] = labels[i].spots(i, area, dots, obstacles), i
	}
	rnd := rand.New(rand.NewPCG(1, 1)) // the same picture every time
	least := math.Inf(1)
	for range 160 / max(4, len(labels)) { // a crowd takes its time
		p := placing{spots: spots, taken: make([]*spot, len(labels)), driven: make([]float64, len(labels))}
		if cost := p.all(order); cost < least {
			least = cost
			for i, s := range p.taken {
				if labels[i].placed = s != nil; s != nil {
					labels[i].at = s.box
				}
			}
		}
		rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
}

// spot is a place that a label may take, and what is against it.
type spot struct {
	box
	line leader
	cost float64
}

// conflicts tells whether two labels cannot have their places both.
func (s *spot) conflicts(o *spot) bool {
	return s.grown(1.5).overlaps(o.box) || s.line.crosses(o.box) || o.line.crosses(s.box)
}

// placing is who has which place.
type placing struct {
	spots  [][]spot  // spots[i]: those that label i may take
	taken  []*spot   // nil: none yet
	driven []float64 // how often it was driven away
}

// all gives the labels places, in an order, and returns what is against them. A
// label without place is worse than any place.
func (p *placing) all(order []int) (cost float64) {
	waiting := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return len(p.spots[i]) == 0 })
	for range 40 * len(order) {
		if len(waiting) == 0 {
			break
		}
		i := waiting[0]
		waiting = append(waiting[1:], p.settle(i, 200)...)
	}
	for i, s := range p.taken {
		if s == nil {
			cost += 1e6
			continue
		}
		p.taken[i] = nil
		p.settle(i, math.Inf(1)) // where it was, or where somebody has left a better place
		cost += p.taken[i].cost
	}
	return cost
}

// settle gives label i a place, and returns the labels that it drove away. The
// first time that costs price, for each.
func (p *placing) settle(i int, price float64) (driven []int) {
	var best *spot
	least := math.Inf(1)
	for k := range p.spots[i] {
		s := &p.spots[i][k]
		cost := s.cost
		for j, other := range p.taken {
			if other != nil && cost < least && s.conflicts(other) {
				cost += price * (1 + p.driven[j])
			}
		}
		if cost < least {
			best, least = s, cost
		}
	}
	for j, other := range p.taken {
		if other != nil && best.conflicts(other) {
			p.taken[j] = nil
			p.driven[j]++
			driven = append(driven, j)
		}
	}
	p.taken[i] = best
	return driven
}

// spots are the places for a label, own among the dots. Of equally near ones
// that right of the dot comes first, then left, above and below.
func (l *label) spots(own int, area box, dots, obstacles []box) []spot {
	const reach = dotRadius + labelGap
	var all []spot
	add := func(x, y, cost float64) {
		at := box{x, y, x + l.width, y + l.height}
		if !area.holds(at) || slices.ContainsFunc(dots, at.overlaps) || slices.ContainsFunc(obstacles, at.overlaps) {
			return
		}
		line := l.leader(at)
		cost += line.length() + line.length()*line.length()/50 // a long line is worse than two short ones
		for i, d := range dots {
			if i != own && line.crosses(d) {
				cost += 50
			}
		}
		all = append(all, spot{at, line, cost})
	}
	add(l.x-l.width/2, l.y+reach, 2)
	add(l.x-l.width/2, l.y-reach-l.height, 3)
	for row := -24; row <= 24; row++ {
		y, aside := l.y-l.height/2+float64(row)*8, math.Abs(float64(row))/8
		for _, apart := range []float64{0, 8, 20, 40, 80, 140} {
			add(l.x+reach+apart, y, aside)
			add(l.x-reach-apart-l.width, y, 1+aside)
		}
		add(l.x-l.width/2, y, 2)
	}
	return all
}

// leader is the line from the dot to the label, were it there.
func (l *label) leader(at box) leader {
	x, y := at.nearest(l.x, l.y)
	return leader{l.x, l.y, x, y}
}
