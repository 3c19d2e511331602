//go:build !race

// The model check is one goroutine: the race detector would find nothing in it,
// and takes twenty times as long.

package counter

import (
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// The model check: two or three callers on a model store, each with a clock and
// limits of its own, in every order of their operations, with every phase of
// the clock, and never over Max in any window: neither by the labels as read,
// nor by the instants in true time at which they were read. It runs the plan
// that the Counter runs, in ticks of 10 ms. A limit counts the callers that take
// under it.
//
// Every increment, read and taking back of every single bucket is a step of its
// own, and time may pass before each. A caller may give up or crash before
// each of its steps; what it had sent may land at any later time, or never. A
// caller's patience is not in the model: a try with another label is another
// call.
//
// A model is told by what can happen in it (fields) and by what of the protocol
// is left out (holes); each hole must be found.

var large = flag.Bool("large", false, "run the large cases of the model check too (minutes)")

const (
	tick       = 10 * time.Millisecond
	maxCallers = 3
	maxRods    = 3
	maxCells   = 12
	maxRules   = 3
)

// model is one setting, all times in ticks.
type model struct {
	name   string
	ladder [][2]int // width, keep
	limits [][2]int // max, per
	asks   [][]int  // asks[i] are the limits under which caller i takes, as indices; nil: all
	eps, d int      // skew, and settle
	n      []int    // weight of each caller
	clock  []int    // how far ahead each caller's clock is, 0 to eps
	start  int      // no call begins before
	span   int      // nor later than start+span
	faults int      // so many of the callers give up and crash, and their increments land late
	refund bool     // admitted hits may be refunded
	large  bool     // only with -large

	// Holes: what is left out of the protocol.
	ended, left, right *int                          // other values for the plan
	settles            []int                         // each caller has a Settle of its own
	sharedTicket       bool                          // one ticket tier for all limits of a call
	narrow             bool                          // a limit as wide as its ticket bucket reaches back Per + Skew only
	unsettledFine      bool                          // unsettled buckets are read at the finest tier
	noBudget           bool                          // step 4 and 6: a late call is admitted
	ownBucketOnly      bool                          // nothing right of the own bucket is read
	staleNow           bool                          // now is not read again after the additions
	blindTakeBack      bool                          // unanswered increments are taken back too
	refundTwice        bool                          // a verdict is refunded again
	refundDenied       bool                          // a denied verdict is refunded
	ttlLacks           int                           // TTL = width + keep + skew + settle, less this
	expiry             bool                          // buckets expire at their TTL
	ticketOf           func(m *model, label int) int // the ticket tier depends on the clock
	subtract           bool                          // the left edge is a coarse bucket minus fine ones

	plan   [maxCallers]plan
	bounds [maxCallers][]bounds // bounds[i][k] are those of the limit asks[i][k]
	first  map[[2]int][]read    // by caller and label
	rest   map[[3]int][]read    // by caller, label and now
	ends   int                  // time stops here
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
	phase, label, start int8
	landed              uint8 // increments that are in the store, a bit per tier
	sent                uint8 // increments that may still land
	back                uint8 // takings back still to do
	reads               uint32
	ticket              [maxRods]int8
	sum                 [maxRules]int8
	now                 int8
	took                bool // it was admitted, whatever came then
	again               bool // the extra round of a hole was made
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
	if m.asks == nil {
		m.asks = make([][]int, len(m.n))
		for i := range m.asks {
			for rule := range m.limits {
				m.asks[i] = append(m.asks[i], rule)
			}
		}
	}
	for i := range m.n {
		p := newPlan(ladder, time.Duration(m.eps)*tick, time.Duration(m.settleOf(i))*tick)
		m.bounds[i] = nil
		shared := ladder.Len()
		for _, rule := range m.asks[i] {
			per := time.Duration(m.limits[rule][1]) * tick
			fine, err := ladder.Finest(per)
			require.NoError(t, err)
			b := p.boundsOf(per, fine)
			if m.narrow {
				b.reach = int64(per) + p.skew
			}
			if m.left != nil {
				b.reach += int64(*m.left-m.eps) * int64(tick)
			}
			m.bounds[i] = append(m.bounds[i], b)
			shared = min(shared, b.top)
		}
		for k := range m.bounds[i] {
			if m.sharedTicket {
				m.bounds[i][k].top = shared
			}
		}
		if m.ended != nil {
			p.ending = int64(*m.ended) * int64(tick)
		}
		if m.right != nil {
			p.skew = int64(*m.right) * int64(tick)
		}
		m.plan[i] = p
	}
	m.first, m.rest = map[[2]int][]read{}, map[[3]int][]read{}
	m.ends = m.start + m.span + m.d + 3
}

// settleOf is the Settle by which caller i goes.
func (m *model) settleOf(i int) int {
	if m.settles != nil {
		return m.settles[i]
	}
	return m.d
}

func (m *model) cell(rod int, label int) int8 {
	w := m.ladder[rod][0]
	return int8(label/w - m.start/w)
}

func (m *model) boundsAt(i, k, label int) bounds {
	b := m.bounds[i][k]
	if m.ticketOf != nil {
		b.top = m.ticketOf(m, label)
	}
	return b
}

// buckets turns a cover into single reads; what is before m.start holds nothing.
func (m *model) buckets(dst []read, rule int, runs tiers.Cover, sign int8) []read {
	for _, run := range runs {
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

func (m *model) firstReads(i, label int) []read {
	key := [2]int{i, label}
	if reads, ok := m.first[key]; ok {
		return reads
	}
	var reads []read
	p := &m.plan[i]
	for k, rule := range m.asks[i] {
		r := m.boundsAt(i, k, label)
		ns := int64(label) * int64(tick)
		if m.subtract {
			top := int64(m.ladder[r.top][0]) * int64(tick)
			fine := int64(m.ladder[r.fine][0]) * int64(tick)
			from := ns - r.reach
			whole := from / top * top
			end := p.settledEnd(ns, r)
			reads = m.buckets(reads, rule, cover.Append(tiers.Cover(nil), p.tiers, whole, end-1, r.top, r.top, r.top), 1)
			if from/fine*fine > whole {
				reads = m.buckets(reads, rule, cover.Append(tiers.Cover(nil), p.tiers, whole, from/fine*fine-1, r.fine, r.fine, r.fine), -1)
			}
			continue
		}
		reads = m.buckets(reads, rule, p.settled(nil, ns, r), 1)
	}
	if len(reads) > 32 {
		panic("too many reads for the bit set")
	}
	m.first[key] = reads
	return reads
}

func (m *model) restReads(i, label, now int) []read {
	key := [3]int{i, label, now}
	if reads, ok := m.rest[key]; ok {
		return reads
	}
	var reads []read
	p := &m.plan[i]
	for k, rule := range m.asks[i] {
		r := m.boundsAt(i, k, label)
		ns := int64(label) * int64(tick)
		runs := p.unsettled(nil, ns, int64(now)*int64(tick), r)
		w := int64(p.ladder.At(r.top).Width)
		own := tiers.Index(ns, time.Duration(w))
		var kept tiers.Cover
		for _, run := range runs {
			switch {
			case m.ownBucketOnly && run.First > own:
			case m.unsettledFine && run.First < own:
				kept = cover.Append(kept, p.tiers, run.First*w, (run.First+run.N)*w-1, r.fine, r.fine, r.fine)
			default:
				kept = append(kept, run)
			}
		}
		reads = m.buckets(reads, rule, kept, 1)
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
			next.dies[rod][cell] = s.t + int8(m.ladder[rod][0]+m.ladder[rod][1]+m.eps+m.d-m.ttlLacks)
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
		reads := m.firstReads(i, int(me.label))
		if me.phase == checking {
			reads = m.restReads(i, int(me.label), int(me.now))
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
		late := !m.noBudget && clock-int(me.label) > m.settleOf(i)
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
		if m.refundTwice && m.refund && !me.again && me.took || m.refundDenied && !me.again && !me.took && me.landed == all {
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
		if len(m.restReads(i, int(me.label), int(me.now))) > 0 {
			me.phase, me.reads = checking, 0
			c.step(s, "%d has all answers at %d, reads on", i, clock)
			return
		}
	}
	fits := true
	for k, rule := range m.asks[i] {
		ticket := m.boundsAt(i, k, int(me.label)).top
		fits = fits && int(me.ticket[ticket])+int(me.sum[rule]) <= m.limits[rule][0]
	}
	me.reads, me.sum, me.now = 0, [maxRules]int8{}, 0
	me.ticket = [maxRods]int8{}
	if late || !fits {
		me.phase, me.back, me.start = takingBack, all, 0
		c.step(s, "%d is refused (late: %v)", i, late)
		return
	}
	me.phase, me.took = admitted, true
	c.trail = append(c.trail, fmt.Sprintf("%d is admitted", i))
	if c.over(s) {
		c.bad = strings.Join(c.trail, "\n")
	}
	c.visit(s)
	c.trail = c.trail[:len(c.trail)-1]
}

// over tells whether some admitted hits, under a limit that all of them were
// taken under, are more than Max within a window: by their labels, or by the
// true time at which these were read.
func (c *checker) over(s state) bool {
	for rule, l := range c.m.limits {
		for set := 1; set < 1<<len(c.m.n); set++ {
			weight, label, start := 0, span{}, span{}
			for i := range c.m.n {
				if set&(1<<i) == 0 {
					continue
				}
				if s.c[i].phase != admitted || !slices.Contains(c.m.asks[i], rule) {
					weight = -1000
				}
				first := set&(1<<i-1) == 0
				label.add(first, s.c[i].label)
				start.add(first, s.c[i].start)
				weight += c.m.n[i]
			}
			if weight > l[0] && (label.length() <= l[1] || start.length() <= l[1]) {
				return true
			}
		}
	}
	return false
}

// span is the stretch of time that instants lie in.
type span struct{ first, last int8 }

func (s *span) add(first bool, at int8) {
	if first {
		*s = span{at, at}
	}
	s.first, s.last = min(s.first, at), max(s.last, at)
}

func (s *span) length() int { return int(s.last - s.first) }

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
		{name: "the slow clock first", ladder: [][2]int{{1, 5}, {3, 5}}, limits: [][2]int{{1, 5}}, eps: 1, d: 2, n: pair, clock: []int{1, 0}, span: 9},
		{name: "no skew, long tries", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 2, n: pair, clock: []int{0, 0}, span: 8},
		{name: "tries as long as a bucket", ladder: [][2]int{{1, 5}, {3, 5}}, limits: [][2]int{{1, 5}}, eps: 0, d: 3, n: pair, clock: []int{0, 0}, span: 9},
		{name: "three tiers", ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7},
		{name: "faults", ladder: [][2]int{{2, 3}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 6, faults: 2},
		{name: "weights", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{2, 4}}, eps: 1, d: 1, n: []int{2, 1}, clock: []int{1, 0}, span: 7},
		{name: "two limits", ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, eps: 1, d: 0, n: pair, clock: []int{0, 1}, span: 6},
		{name: "a limit more than the other", ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, asks: [][]int{{1}, {0, 1}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 6},
		{name: "a limit more than the other, skew", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, asks: [][]int{{1}, {0, 1}}, eps: 1, d: 1, n: pair, clock: []int{1, 0}, span: 6},
		{name: "one limit shared of two each", ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 1}, {1, 2}, {1, 4}}, asks: [][]int{{0, 2}, {1, 2}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 5},
		{name: "refunds", ladder: [][2]int{{2, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 0, n: []int{1, 1, 1}, clock: []int{0, 1, 0}, span: 2, refund: true},
		{name: "expiry", ladder: [][2]int{{2, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 9, expiry: true},
		{name: "three callers", ladder: [][2]int{{2, 2}}, limits: [][2]int{{2, 2}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 3},
		{name: "two limits, three callers", ladder: [][2]int{{2, 8}, {4, 8}}, limits: [][2]int{{3, 2}, {2, 4}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 1},
		{name: "three callers that differ", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{2, 2}, {2, 4}}, asks: [][]int{{1}, {0, 1}, {1}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 1},
		{name: "crashed neighbour", ladder: [][2]int{{2, 2}}, limits: [][2]int{{1, 2}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 2, faults: 1},
		{name: "three callers, skew", ladder: [][2]int{{2, 2}}, limits: [][2]int{{2, 2}}, eps: 1, d: 1, n: []int{1, 1, 1}, clock: []int{0, 1, 0}, span: 4, large: true},
		{name: "three callers, weights", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{3, 4}}, eps: 1, d: 0, n: []int{2, 1, 1}, clock: []int{0, 1, 0}, span: 2, large: true},
		{name: "three callers, faults", ladder: [][2]int{{2, 3}}, limits: [][2]int{{2, 3}}, eps: 1, d: 1, n: []int{1, 1, 1}, clock: []int{1, 0, 0}, span: 2, faults: 2, large: true},
		{name: "faults, two limits", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 5, faults: 1, large: true},
		{name: "faults, a limit more than the other", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, asks: [][]int{{1}, {0, 1}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 4, faults: 2, large: true},
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
	// A ticket bucket narrower than Per - Settle, else the longer reach hides the edge.
	edge := model{ladder: [][2]int{{1, 5}, {3, 5}}, limits: [][2]int{{1, 5}}, eps: 1, d: 1, n: []int{1, 1}, clock: []int{0, 1}, span: 9}
	differ := model{ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, asks: [][]int{{1}, {0, 1}}, eps: 0, d: 1, n: []int{1, 1}, clock: []int{0, 0}, span: 6}
	for _, h := range []struct {
		name string
		in   model
		hole func(m *model)
	}{
		{"one ticket a call, callers with different limits", differ, func(m *model) { m.sharedTicket = true }},
		{"each caller its own Settle", model{ladder: [][2]int{{4, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 3, n: []int{1, 1}, clock: []int{0, 0}, span: 8},
			func(m *model) { m.settles = []int{3, 0} }},
		{"settled means skew only", two, func(m *model) { m.ended = ptr(m.eps) }},
		{"settled a tick short", one, func(m *model) { m.ended = ptr(m.eps + m.d - 1) }},
		{"no bound on a try", two, func(m *model) { m.noBudget = true }},
		{"no bound on a try, late landings", one, func(m *model) { m.noBudget, m.faults = true, 2 }},
		{"right edge: own bucket only", one, func(m *model) { m.ownBucketOnly = true }},
		{"right edge: now not read again", one, func(m *model) { m.staleNow = true }},
		{"right edge a tick short", one, func(m *model) { m.right = ptr(m.eps - 1) }},
		{"left edge not extended", edge, func(m *model) { m.left = ptr(0) }},
		{"left edge a tick short, skew of two", edge, func(m *model) { m.eps, m.clock, m.left, m.narrow = 2, []int{0, 2}, ptr(1), true }},
		{"unsettled buckets read fine", model{ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{2, 4}}, eps: 0, d: 2, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 3},
			func(m *model) { m.unsettledFine = true }},
		{"unanswered additions taken back", three, func(m *model) { m.faults, m.blindTakeBack, m.d, m.span = 1, true, 0, 2 }},
		{"refund twice", three, func(m *model) { m.refund, m.refundTwice = true, true }},
		{"refund of a denied verdict", three, func(m *model) { m.refundDenied = true }},
		{"TTL a tick short", model{ladder: [][2]int{{1, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: []int{1, 1}, clock: []int{1, 0}, span: 7}, func(m *model) { m.expiry, m.ttlLacks = true, 1 }},
		{"ticket tier by the phase of the clock", two, func(m *model) {
			m.ticketOf = func(m *model, label int) int { return label / 2 % 2 }
		}},
		{"subtraction at the left edge", model{ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 0, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 6},
			func(m *model) { m.subtract, m.faults = true, 1 }},
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
