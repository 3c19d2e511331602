//go:build !race

// The model check is one goroutine: the race detector would find nothing in it,
// and takes twenty times as long.

package counter

import (
	"flag"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/tiers"
)

// The model check: two or three callers on a model store, in every order of
// their operations, with every phase of the clock, and never over Max in any
// true window. It runs the plan that the Counter runs, in ticks of 10 ms.
//
// Every increment, read and taking back of every single bucket is a step of its
// own, and time may pass before each. A caller may give up or crash before
// each of its steps; what it had sent may land at any later time, or never.
// The instant of an admitted hit may be any between its call and its return.
//
// A model is told by what can happen in it (fields) and by what of the protocol
// is left out (holes); each hole must be found.

var large = flag.Bool("large", false, "run the large cases of the model check too (minutes)")

const (
	tick       = 10 * time.Millisecond
	maxCallers = 3
	maxRods    = 3
	maxCells   = 12
	maxRules   = 2
)

// model is one setting, all times in ticks.
type model struct {
	name   string
	ladder [][2]int // width, keep
	limits [][2]int // max, per
	eps, d int
	n      []int // weight of each caller
	clock  []int // how far ahead each caller's clock is, 0 to eps
	start  int   // no call begins before
	span   int   // nor later than start+span
	faults int   // so many of the callers give up and crash, and their increments land late
	refund bool  // admitted hits may be refunded
	large  bool  // only with -large

	// Holes: what is left out of the protocol.
	settle, left, right *int                          // other values for the plan
	noBudget            bool                          // step 4 and 6: a late call is admitted
	ownBucketOnly       bool                          // nothing right of the own bucket is read
	staleNow            bool                          // now is not read again after the additions
	blindTakeBack       bool                          // unanswered increments are taken back too
	refundTwice         bool                          // a verdict is refunded again
	refundDenied        bool                          // a denied verdict is refunded
	shortTTL            bool                          // TTL = width + keep
	expiry              bool                          // buckets expire at their TTL
	ticketOf            func(m *model, label int) int // the ticket tier depends on the clock
	coarseUnsettled     bool                          // unsettled buckets are read at the coarsest tier
	subtract            bool                          // the left edge is a coarse bucket minus fine ones

	plan  plan
	reach []reach
	first map[int][]read    // by label
	rest  map[[2]int][]read // by label and now
	ends  int               // time stops here
}

// read is one bucket to read, for one limit.
type read struct {
	rule, rod, cell int8
	sign            int8
}

const (
	idle int8 = iota
	adding
	checking
	takingBack
	admitted
	denied // or failed; and all taken back
	refunding
	gone // crashed, or gave up and took back what was answered
)

// caller is what one caller has done, comparable.
type caller struct {
	phase, label, start, end int8
	landed                   uint8 // increments that are in the store, a bit per tier
	sent                     uint8 // increments that may still land
	back                     uint8 // takings back still to do
	reads                    uint32
	ticket                   [maxRods]int8
	sum                      [maxRules]int8
	now                      int8
	again                    bool // the extra round of a hole was made
}

type state struct {
	t     int8
	c     [maxCallers]caller
	count [maxRods][maxCells]int8
	dies  [maxRods][maxCells]int8
}

func (m *model) prepare(t *testing.T) {
	t.Helper()
	var rods []tiers.Tier
	for _, w := range m.ladder {
		rods = append(rods, tiers.Tier{Width: time.Duration(w[0]) * tick, Keep: time.Duration(w[1]) * tick})
	}
	ladder, err := tiers.New(rods...)
	require.NoError(t, err)
	var limits Limits
	longest := 0
	for _, l := range m.limits {
		limits = append(limits, Limit{Max: int64(l[0]), Per: time.Duration(l[1]) * tick})
		longest = max(longest, l[1])
	}
	m.plan = newPlan(ladder, time.Duration(m.eps)*tick, time.Duration(m.d)*tick)
	m.reach, err = m.plan.reaches(nil, limits)
	require.NoError(t, err)
	for _, h := range []struct {
		other *int
		value *int64
	}{{m.settle, &m.plan.settle}, {m.left, &m.plan.left}, {m.right, &m.plan.right}} {
		if h.other != nil {
			*h.value = int64(*h.other) * int64(tick)
		}
	}
	m.first, m.rest = map[int][]read{}, map[[2]int][]read{}
	m.ends = m.start + m.span + m.d + 3
}

func (m *model) cell(rod int, label int) int8 {
	w := m.ladder[rod][0]
	return int8(label/w - m.start/w)
}

func (m *model) reachAt(rule, label int) reach {
	r := m.reach[rule]
	if m.ticketOf != nil {
		r.ticket = m.ticketOf(m, label)
		r.top = max(r.top, r.ticket)
	}
	if m.coarseUnsettled {
		r.ticket = m.reach[rule].ticket
	}
	return r
}

// buckets turns a cover into single reads; what is before m.start holds nothing.
func (m *model) buckets(dst []read, rule int, cover tiers.Cover, sign int8) []read {
	for _, run := range cover {
		for i := run.First; i < run.First+run.N; i++ {
			rod := 0
			for time.Duration(m.ladder[rod][0])*tick != run.Width {
				rod++
			}
			cell := int(i) - m.start/m.ladder[rod][0]
			if cell >= 0 && cell < maxCells {
				dst = append(dst, read{int8(rule), int8(rod), int8(cell), sign})
			}
		}
	}
	return dst
}

func (m *model) firstReads(label int) []read {
	if reads, ok := m.first[label]; ok {
		return reads
	}
	var reads []read
	for rule := range m.limits {
		r := m.reachAt(rule, label)
		ns := int64(label) * int64(tick)
		switch {
		case m.subtract:
			top := int64(m.ladder[r.top][0]) * int64(tick)
			fine := int64(m.ladder[r.fine][0]) * int64(tick)
			from := ns - r.per - m.plan.left
			whole := from / top * top
			end := m.plan.settledEnd(ns, r)
			reads = m.buckets(reads, rule, m.plan.ladder.Append(nil, whole, end-1, r.top, r.top, r.ticket), 1)
			if from/fine*fine > whole {
				reads = m.buckets(reads, rule, m.plan.ladder.Append(nil, whole, from/fine*fine-1, r.fine, r.fine, r.fine), -1)
			}
		case m.coarseUnsettled:
			coarse := r
			coarse.ticket = r.top
			reads = m.buckets(reads, rule, m.plan.settled(nil, ns, coarse), 1)
		default:
			reads = m.buckets(reads, rule, m.plan.settled(nil, ns, r), 1)
		}
	}
	if len(reads) > 32 {
		panic("too many reads for the bit set")
	}
	m.first[label] = reads
	return reads
}

func (m *model) restReads(label, now int) []read {
	key := [2]int{label, now}
	if reads, ok := m.rest[key]; ok {
		return reads
	}
	var reads []read
	for rule := range m.limits {
		r := m.reachAt(rule, label)
		ns := int64(label) * int64(tick)
		at := int64(now) * int64(tick)
		cover := m.plan.unsettled(nil, ns, at, r)
		if m.coarseUnsettled {
			// Whole coarse buckets that have ended but not settled, then tickets' tier.
			coarse := r
			coarse.ticket = r.top
			end := m.plan.settledEnd(ns, coarse)
			to := ns / int64(m.ladder[r.ticket][0]) / int64(tick) * int64(m.ladder[r.ticket][0]) * int64(tick)
			cover = nil
			if to > end {
				cover = m.plan.ladder.Append(nil, end, to-1, r.top, r.top, r.ticket)
			}
			w := m.plan.ladder.At(r.ticket).Width
			if last, own := tiers.Index(at+m.plan.right, w), tiers.Index(ns, w); last > own {
				cover = append(cover, tiers.Run{Width: w, First: own + 1, N: last - own})
			}
		}
		if m.ownBucketOnly {
			w := int64(m.plan.ladder.At(r.ticket).Width)
			var kept tiers.Cover
			for _, run := range cover {
				if run.First*w < ns {
					kept = append(kept, run)
				}
			}
			cover = kept
		}
		reads = m.buckets(reads, rule, cover, 1)
	}
	m.rest[key] = reads
	return reads
}

// checker explores a model.
type checker struct {
	m     *model
	seen  map[uint64]struct{}
	seed  maphash.Seed
	trail []string
	bad   string
}

// explore returns the number of states, and the trace of the first violation.
func (m *model) explore(t *testing.T) (int, string) {
	m.prepare(t)
	c := checker{m: m, seen: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
	s := state{t: int8(m.start)}
	for i := len(m.n); i < maxCallers; i++ {
		s.c[i].phase = gone
	}
	c.visit(s)
	return len(c.seen), c.bad
}

func (c *checker) visit(s state) {
	if c.bad != "" {
		return
	}
	h := maphash.Comparable(c.seed, s)
	if _, ok := c.seen[h]; ok {
		return
	}
	c.seen[h] = struct{}{}
	for i := range c.m.n {
		c.steps(s, i)
	}
	busy := false
	for i := range s.c {
		busy = busy || s.c[i].phase != gone && s.c[i].phase != denied || s.c[i].sent != 0
	}
	if busy && int(s.t) < c.m.ends {
		s.t++
		c.expire(&s)
		c.step(s, "t=%d", s.t)
	}
}

func (c *checker) expire(s *state) {
	if !c.m.expiry {
		return
	}
	for rod := range s.count {
		for cell := range s.count[rod] {
			if s.dies[rod][cell] > 0 && s.dies[rod][cell] <= s.t {
				s.count[rod][cell], s.dies[rod][cell] = 0, 0
			}
		}
	}
}

func (c *checker) step(s state, format string, args ...any) {
	c.trail = append(c.trail, fmt.Sprintf(format, args...))
	c.visit(s)
	c.trail = c.trail[:len(c.trail)-1]
}

// steps tries everything that caller i can do next.
func (c *checker) steps(s state, i int) {
	m := c.m
	me := s.c[i]
	clock := int(s.t) + m.clock[i]
	all := uint8(1<<len(m.ladder) - 1)

	// What was sent lands, whatever has become of the sender.
	for rod := range m.ladder {
		if me.sent&(1<<rod) == 0 {
			continue
		}
		next := s
		cell := m.cell(rod, int(me.label))
		if next.count[rod][cell] == 0 && m.expiry {
			ttl := m.ladder[rod][0] + m.ladder[rod][1] + 2*(m.eps+m.d)
			if m.shortTTL {
				ttl = m.ladder[rod][0] + m.ladder[rod][1]
			}
			next.dies[rod][cell] = s.t + int8(ttl)
		}
		next.count[rod][cell] += int8(m.n[i])
		next.c[i].sent &^= 1 << rod
		next.c[i].landed |= 1 << rod
		next.c[i].ticket[rod] = next.count[rod][cell]
		c.step(next, "%d adds [%d]%d -> %d", i, rod, cell, next.c[i].ticket[rod])
	}

	switch me.phase {
	case idle:
		if int(s.t) > m.start+m.span {
			return
		}
		next := s
		next.c[i] = caller{phase: adding, label: int8(clock), start: s.t, sent: all}
		c.step(next, "%d stamps %d", i, clock)

	case adding, checking:
		reads := m.firstReads(int(me.label))
		if me.phase == checking {
			reads = m.restReads(int(me.label), int(me.now))
		}
		done := true
		for bit, r := range reads {
			if me.reads&(1<<bit) != 0 {
				continue
			}
			done = false
			next := s
			next.c[i].reads |= 1 << bit
			next.c[i].sum[r.rule] += r.sign * s.count[r.rod][r.cell]
			c.step(next, "%d reads [%d]%d = %d", i, r.rod, r.cell, s.count[r.rod][r.cell])
		}
		late := !m.noBudget && clock-int(me.label) > m.d
		if done && me.landed == all {
			c.confirm(s, i, clock, late)
		}
		if i < m.faults && (late || m.noBudget) {
			// It gives up. Of what has landed, any part may have been answered.
			for answered := uint8(0); answered <= all; answered++ {
				if answered&^me.landed != 0 {
					continue
				}
				next := s
				next.c[i].phase, next.c[i].back = takingBack, answered
				if m.blindTakeBack {
					next.c[i].back = all
				}
				next.c[i].reads, next.c[i].sum, next.c[i].ticket = 0, [maxRules]int8{}, [maxRods]int8{}
				c.step(next, "%d gives up, takes back %b", i, next.c[i].back)
			}
		}
		c.crash(s, i)

	case takingBack, refunding:
		for rod := range m.ladder {
			if me.back&(1<<rod) == 0 {
				continue
			}
			next := s
			cell := m.cell(rod, int(me.label))
			next.count[rod][cell] = max(0, s.count[rod][cell]-int8(m.n[i]))
			next.c[i].back &^= 1 << rod
			if next.c[i].back == 0 {
				next.c[i].phase = denied
			}
			c.step(next, "%d takes back [%d]%d -> %d", i, rod, cell, next.count[rod][cell])
		}
		c.crash(s, i)

	case admitted:
		if m.refund {
			next := s
			next.c[i].phase, next.c[i].back = refunding, all
			c.step(next, "%d is refunded", i)
		}

	case denied:
		if m.refundTwice && m.refund && !me.again && me.end > 0 || m.refundDenied && !me.again && me.end == 0 && me.landed == all {
			next := s
			next.c[i].phase, next.c[i].back, next.c[i].again = refunding, all, true
			c.step(next, "%d is refunded once more", i)
		}
	}
}

func (c *checker) crash(s state, i int) {
	if i >= c.m.faults {
		return
	}
	s.c[i] = caller{phase: gone, label: s.c[i].label, sent: s.c[i].sent}
	c.step(s, "%d crashes", i)
}

// confirm is what happens when all answers are there.
func (c *checker) confirm(s state, i, clock int, late bool) {
	m, me := c.m, &s.c[i]
	all := uint8(1<<len(m.ladder) - 1)
	if me.phase == adding && !late {
		me.now = int8(clock)
		if m.staleNow {
			me.now = me.label
		}
		if len(m.restReads(int(me.label), int(me.now))) > 0 {
			me.phase, me.reads = checking, 0
			c.step(s, "%d has all answers at %d, reads on", i, clock)
			return
		}
	}
	fits := true
	for rule, l := range m.limits {
		ticket := m.reachAt(rule, int(me.label)).ticket
		fits = fits && int(me.ticket[ticket])+int(me.sum[rule]) <= l[0]
	}
	me.reads, me.sum, me.now = 0, [maxRules]int8{}, 0
	me.ticket = [maxRods]int8{}
	if late || !fits {
		me.phase, me.back, me.start = takingBack, all, 0
		c.step(s, "%d is refused (late: %v)", i, late)
		return
	}
	me.phase, me.end = admitted, s.t
	c.trail = append(c.trail, fmt.Sprintf("%d is admitted", i))
	if c.over(s) {
		c.bad = strings.Join(c.trail, "\n")
	}
	c.visit(s)
	c.trail = c.trail[:len(c.trail)-1]
}

// over tells whether some admitted hits, each at some instant between its call
// and its return, are more than Max within a window.
func (c *checker) over(s state) bool {
	for set := 1; set < 1<<len(c.m.n); set++ {
		weight, last, first := 0, -1000, 1000
		for i := range c.m.n {
			if set&(1<<i) == 0 {
				continue
			}
			if s.c[i].phase != admitted {
				weight = -1000
			}
			weight += c.m.n[i]
			last, first = max(last, int(s.c[i].start)), min(first, int(s.c[i].end))
		}
		for _, l := range c.m.limits {
			if weight > l[0] && last-first <= l[1] {
				return true
			}
		}
	}
	return false
}

// phases runs m at every phase of its coarsest tier, and returns the states
// explored and the first trace that went over Max.
func (m model) phases(t *testing.T) (states int, trace string) {
	coarsest := m.ladder[len(m.ladder)-1][0]
	longest := 0
	for _, l := range m.limits {
		longest = max(longest, l[1])
	}
	base := (longest + 2*(m.eps+m.d) + 2*coarsest) / coarsest * coarsest
	for phase := range coarsest {
		at := m
		at.start = base + phase
		n, bad := at.explore(t)
		states += n
		if bad != "" {
			return states, fmt.Sprintf("%s, from tick %d:\n%s", m.name, at.start, bad)
		}
	}
	return states, ""
}

func ptr(i int) *int { return &i }

func TestModelNeverOver(t *testing.T) {
	pair := []int{1, 1}
	for _, m := range []model{
		{name: "one tier", ladder: [][2]int{{3, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7},
		{name: "two tiers", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 8},
		{name: "window wider than the tiers", ladder: [][2]int{{1, 5}, {3, 5}}, limits: [][2]int{{1, 5}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 9},
		{name: "no skew, long budget", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 2, n: pair, clock: []int{0, 0}, span: 8},
		{name: "three tiers", ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7},
		{name: "faults", ladder: [][2]int{{2, 3}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 6, faults: 2},
		{name: "weights", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{2, 4}}, eps: 1, d: 1, n: []int{2, 1}, clock: []int{1, 0}, span: 7},
		{name: "two limits", ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, eps: 1, d: 0, n: pair, clock: []int{0, 1}, span: 6},
		{name: "refunds", ladder: [][2]int{{2, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 0, n: []int{1, 1, 1}, clock: []int{0, 1, 0}, span: 2, refund: true},
		{name: "expiry", ladder: [][2]int{{2, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 9, expiry: true},
		{name: "three callers", ladder: [][2]int{{2, 2}}, limits: [][2]int{{2, 2}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 3},
		{name: "two limits, three callers", ladder: [][2]int{{2, 8}, {4, 8}}, limits: [][2]int{{3, 2}, {2, 4}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 1},
		{name: "crashed neighbour", ladder: [][2]int{{2, 2}}, limits: [][2]int{{1, 2}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 2, faults: 1},
		{name: "three callers, skew", ladder: [][2]int{{2, 2}}, limits: [][2]int{{2, 2}}, eps: 1, d: 1, n: []int{1, 1, 1}, clock: []int{0, 1, 0}, span: 4, large: true},
		{name: "three callers, weights", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{3, 4}}, eps: 1, d: 0, n: []int{2, 1, 1}, clock: []int{0, 1, 0}, span: 2, large: true},
		{name: "three callers, faults", ladder: [][2]int{{2, 3}}, limits: [][2]int{{2, 3}}, eps: 1, d: 1, n: []int{1, 1, 1}, clock: []int{1, 0, 0}, span: 2, faults: 2, large: true},
		{name: "faults, two limits", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 5, faults: 1, large: true},
		{name: "everything dies", ladder: [][2]int{{2, 2}}, limits: [][2]int{{1, 2}}, eps: 1, d: 1, n: pair, clock: []int{1, 0}, span: 5, faults: 1, expiry: true, large: true},
	} {
		t.Run(m.name, func(t *testing.T) {
			if m.large && !*large {
				return // run by "make model"
			}
			states, trace := m.phases(t)
			require.Empty(t, trace)
			require.Greater(t, states, 1000, "a model in which nothing happens proves nothing")
			t.Logf("%d states", states)
		})
	}
}

// Each step of the protocol has a hole behind it: a model without the step goes
// over Max, and the check finds out. One tick less of each edge is too little.
func TestModelFindsHoles(t *testing.T) {
	two := model{ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: []int{1, 1}, clock: []int{0, 1}, span: 8}
	one := model{ladder: [][2]int{{3, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: []int{1, 1}, clock: []int{0, 1}, span: 7}
	three := model{ladder: [][2]int{{2, 2}}, limits: [][2]int{{1, 2}}, eps: 0, d: 0, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 1}
	for _, h := range []struct {
		name string
		in   model
		hole func(m *model)
	}{
		{"settled means skew only", two, func(m *model) { m.settle = ptr(m.eps) }},
		{"settle a tick short", one, func(m *model) { m.settle = ptr(m.eps + m.d - 1) }},
		{"no budget", two, func(m *model) { m.noBudget = true }},
		{"no budget, late landings", one, func(m *model) { m.noBudget, m.faults = true, 2 }},
		{"right edge: own bucket only", one, func(m *model) { m.ownBucketOnly = true }},
		{"right edge: now not read again", one, func(m *model) { m.staleNow = true }},
		{"right edge a tick short", one, func(m *model) { m.right = ptr(m.eps - 1) }},
		{"left edge not extended", two, func(m *model) { m.left = ptr(0) }},
		{"left edge by skew only", two, func(m *model) { m.left = ptr(m.eps) }},
		{"left edge a tick short", one, func(m *model) { m.left = ptr(m.eps + m.d - 1) }},
		{"unanswered additions taken back", three, func(m *model) { m.faults, m.blindTakeBack, m.d, m.span = 1, true, 0, 2 }},
		{"refund twice", three, func(m *model) { m.refund, m.refundTwice = true, true }},
		{"refund of a denied verdict", three, func(m *model) { m.refundDenied = true }},
		{"TTL without the slack", model{ladder: [][2]int{{1, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: []int{1, 1}, clock: []int{1, 0}, span: 6}, func(m *model) { m.expiry, m.shortTTL = true, true }},
		{"ticket tier by the phase of the clock", two, func(m *model) {
			m.ticketOf = func(m *model, label int) int { return label / 2 % 2 }
		}},
		{"subtraction at the left edge", model{ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 0, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 6},
			func(m *model) { m.subtract, m.faults = true, 1 }},
		{"unsettled buckets read coarse, two limits", model{ladder: [][2]int{{2, 8}, {4, 8}}, limits: [][2]int{{3, 2}, {2, 4}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 1},
			func(m *model) { m.coarseUnsettled = true }},
	} {
		t.Run(h.name, func(t *testing.T) {
			h.in.name = h.name
			h.hole(&h.in)
			states, trace := h.in.phases(t)
			require.NotEmpty(t, trace, "the hole was not found in %d states", states)
			t.Logf("%d states\n%s", states, trace)
		})
	}
}
