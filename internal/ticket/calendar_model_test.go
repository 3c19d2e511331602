//go:build !race

package ticket

import (
	"slices"
	"testing"
)

// calendar is periods of a model: they begin at the ticks of starts, in every cycle.
type calendar struct {
	cycle  int
	starts []int
}

// span is the period that holds a tick.
func (c calendar) span(at int) (start, end int) {
	begins := func(at int) bool { return slices.Contains(c.starts, (at%c.cycle+c.cycle)%c.cycle) }
	for start, end = at, at+1; !begins(start); start-- {
	}
	for ; !begins(end); end++ {
	}
	return start, end
}

// periodsOf are the periods of a limit, as caller i knows them.
func (m *model) periodsOf(i, limit int) calendar {
	switch {
	case m.ownPeriods != nil:
		return m.ownPeriods[i][limit]
	case m.periods != nil:
		return m.periods[limit]
	}
	return calendar{}
}

// inPeriod are the bounds of a limit by the calendar, and of its holes.
func (m *model) inPeriod(j *judgement, label int) bounds {
	at := label
	if m.laterPeriod {
		at += m.longestSettle()
	}
	start, end := j.periods.span(at)
	p, ns := &j.plan, int64(tick)
	b := p.within(j.fine, int64(label)*ns, int64(start)*ns, int64(end)*ns)
	fits := func(tier, length int) bool { return m.ladder[tier][0] <= length }
	switch {
	case m.straddles || m.cutStart:
		for b.top = b.whole; b.top > 0 && !fits(b.top, end-start); b.top-- {
		}
		if width := m.ladder[b.top][0]; m.cutStart {
			b.left, b.reach = b.top, int64(label-(start+width-1)/width*width)*ns
		} else {
			b.left = b.fine
		}
	case m.tierByAge:
		for ; b.top > 0 && !fits(b.top, label-start+1); b.top-- {
		}
		b.left = b.top
	}
	return b
}

// overIn reports whether more than Max admitted hits, all taken under a common limit by
// the calendar, have labels in one period.
func (m *model) overIn(s *state, limit int) bool {
	counts := func(i int) bool {
		return s.c[i].phase == admitted && slices.Contains(m.asks[i], limit) && s.c[i].counted&m.held[limit] != 0
	}
	for i := range m.n {
		if !counts(i) {
			continue
		}
		sum, start := 0, 0
		start, _ = m.periods[limit].span(int(s.c[i].label))
		for j, n := range m.n {
			if other, _ := m.periods[limit].span(int(s.c[j].label)); counts(j) && other == start {
				sum += n
			}
		}
		if sum > m.limits[limit][0] {
			return true
		}
	}
	return false
}

// Limits by the calendar: in no period are more than Max hits admitted, by their labels,
// and no caller is denied by hits from before the period.
func TestModelOfPeriods(t *testing.T) {
	pair, three := []int{1, 1}, []int{1, 1, 1}
	yes := []bool{true, true, true}
	aligned := []calendar{{4, []int{0}}}
	within := []calendar{{6, []int{1}}}     // the tickets of three ticks do not fit
	uneven := []calendar{{12, []int{0, 5}}} // five ticks from a bucket of four, and seven from none
	mixed := []calendar{{}, aligned[0]}
	both := []stored{{ladder: [][2]int{{2, 4}}, d: 1}, {ladder: [][2]int{{1, 4}, {4, 4}}, d: 1}}
	allHold(t, []model{
		{name: "one tier", ladder: [][2]int{{2, 4}}, limits: [][2]int{{1, 4}}, periods: aligned, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7},
		{name: "a period as wide as a bucket", ladder: [][2]int{{1, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, periods: aligned, eps: 1, d: 1, n: pair, clock: []int{1, 0}, span: 7},
		{name: "coarser settled buckets", ladder: [][2]int{{1, 6}, {3, 6}}, limits: [][2]int{{1, 6}}, periods: within, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 8},
		{name: "the slow clock first", ladder: [][2]int{{1, 6}, {3, 6}}, limits: [][2]int{{1, 6}}, periods: within, eps: 1, d: 2, n: pair, clock: []int{1, 0}, span: 8},
		{name: "skew of two", ladder: [][2]int{{1, 6}, {3, 6}}, limits: [][2]int{{1, 6}}, periods: within, eps: 2, d: 1, n: pair, clock: []int{0, 2}, span: 7},
		{name: "periods of two lengths", ladder: [][2]int{{1, 7}, {2, 7}, {4, 7}}, limits: [][2]int{{1, 7}}, periods: uneven, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 6},
		{name: "faults", ladder: [][2]int{{1, 6}, {3, 6}}, limits: [][2]int{{1, 6}}, periods: within, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 5, faults: 2},
		{name: "weights", ladder: [][2]int{{1, 6}, {3, 6}}, limits: [][2]int{{2, 6}}, periods: within, eps: 1, d: 1, n: []int{2, 1}, clock: []int{1, 0}, span: 6},
		{name: "beside a limit that slides", ladder: [][2]int{{1, 4}, {2, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, periods: mixed, asks: [][]int{{1}, {0, 1}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 4},
		{name: "three callers", ladder: [][2]int{{1, 4}, {2, 4}}, limits: [][2]int{{2, 4}}, periods: aligned, eps: 0, d: 1, n: three, clock: []int{0, 0, 0}, span: 4},
		{name: "three callers, skew", ladder: [][2]int{{2, 4}}, limits: [][2]int{{2, 4}}, periods: aligned, eps: 1, d: 0, n: three, clock: []int{0, 1, 0}, span: 4},
		{name: "refunds", ladder: [][2]int{{2, 4}}, limits: [][2]int{{1, 4}}, periods: aligned, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 6, refund: true},
		{name: "expiry", ladder: [][2]int{{2, 4}}, limits: [][2]int{{1, 4}}, periods: aligned, eps: 1, d: 1, n: pair, clock: []int{1, 0}, span: 6, expiry: true},
		{name: "coarse", ladder: [][2]int{{1, 6}, {3, 6}}, limits: [][2]int{{1, 6}}, periods: within, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 8, coarse: true},
		{name: "ordered", ladder: [][2]int{{1, 6}, {3, 6}}, limits: [][2]int{{1, 6}}, periods: within, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 6, ordered: true},
		{name: "memory", ladder: [][2]int{{1, 6}, {3, 6}}, limits: [][2]int{{1, 6}}, periods: within, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 8, cache: yes},
		{name: "a change of ladder", keys: both, limits: [][2]int{{1, 4}}, periods: aligned, calls: [][][]int{formerOnly, onBoth}, n: pair, clock: []int{0, 0}, span: 6},
	})
}

// What the windows of periods rest on: without it a period has more than Max, or a
// caller with room is denied.
func TestModelOfPeriodsFindsHoles(t *testing.T) {
	within := model{ladder: [][2]int{{1, 6}, {3, 6}}, limits: [][2]int{{1, 6}}, periods: []calendar{{6, []int{1}}}, eps: 1, d: 1, n: []int{1, 1}, clock: []int{0, 1}, span: 8}
	uneven := model{ladder: [][2]int{{1, 8}, {4, 8}}, limits: [][2]int{{1, 8}}, periods: []calendar{{8, []int{0}}}, eps: 0, d: 1, n: []int{1, 1}, clock: []int{0, 0}, span: 7}
	findHoles(t, []hole{
		{"the period of a later reading of the clock", within, func(m *model) { m.laterPeriod = true }},
		{"a ticket bucket that straddles the start", within, func(m *model) { m.straddles = true }},
		{"the bucket that straddles the start left out", within, func(m *model) { m.cutStart = true }},
		{"a decision tier by the age of the period", uneven, func(m *model) { m.tierByAge = true }},
		{"unsettled buckets from before the period", within, func(m *model) { m.unclipped = true }},
		{"unsettled buckets read at the coarsest tier", model{ladder: [][2]int{{1, 4}, {2, 4}}, limits: [][2]int{{2, 4}}, periods: []calendar{{4, []int{1}}}, eps: 0, d: 2, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 3},
			func(m *model) { m.unsettledWhole = true }},
		{"settled a tick short", within, func(m *model) { m.ended = ptr(m.eps + m.d - 1) }},
		{"the end without Skew: right edge a tick short", within, func(m *model) { m.right = ptr(m.eps - 1) }},
		{"right edge: now not read again", within, func(m *model) { m.staleNow = true }},
		{"each caller its own rules of the zone", within, func(m *model) {
			m.ownPeriods = [][]calendar{m.periods, {{6, []int{2}}}}
		}},
		{"TTL a tick short", model{ladder: [][2]int{{1, 4}}, limits: [][2]int{{1, 4}}, periods: []calendar{{4, []int{0}}}, eps: 1, d: 1, n: []int{1, 1}, clock: []int{1, 0}, span: 8},
			func(m *model) { m.expiry, m.ttlLacks = true, 4 }},
	})
}
