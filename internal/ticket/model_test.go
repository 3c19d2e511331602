//go:build !race

// The model check shares no memory between goroutines: the race detector would
// find nothing in it, and would make it ten times as slow.

package ticket

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/internal/testkit/hitlog"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/tiers"
)

// The model check explores two or three callers on a model store, each with a
// clock and limits of its own, in every order of their operations and with every
// phase of the clock. In no window may the admitted hits be more than Max, by
// their labels as read or by the instants in true time at which the labels were
// read. The model runs the plan that the Counter runs, in ticks of 10 ms. A limit
// counts the callers that take under it.
//
// Every addition, read and taking back of a single bucket is a step of its own,
// and time may pass before each step. A caller may give up or crash before each
// of its steps; an addition that was sent may land at any later time, or never.
// The patience of a caller is not in the model: a try with another label is
// another call. Calls with several keys are in model_keys_test.go.
//
// A model has two parts: what can happen in it, and holes, which are the parts of
// the protocol that it leaves out. The check must find every hole.

const (
	tick       = 10 * time.Millisecond
	maxCallers = 3
	maxTiers   = 4  // of all keys
	maxBuckets = 12 // of one tier, from the bucket of model.start on
	maxWindows = 3  // limits
)

// model is one setting, all times in ticks.
type model struct {
	name   string
	ladder [][2]int // width, keep
	limits [][2]int // max, per
	asks   [][]int  // asks[i] are the limits under which caller i takes, as indices; nil: all limits
	eps, d int      // Skew and Settle
	n      []int    // n[i] is the weight of the hit of caller i
	clock  []int    // clock[i] is the lead of the clock of caller i, 0 to eps
	start  int      // no call begins before
	span   int      // no call begins later than start+span
	faults int      // this many callers may give up and crash; their additions may land late
	refund bool     // admitted hits may be refunded

	coarse  bool   // the oldest bucket of the ticket tier is counted whole, and its exact edge is read only where that may decide
	ordered bool   // the store reads after all additions of a trip, so unsettled buckets are read in the first trip
	cache   []bool // cache[i]: caller i is in the process that remembers settled buckets; nil: no process does
	out     []bool // out[i]: the clock of caller i is off by more than Skew, so its hit is not covered
	upTo    []bool // upTo[i]: caller i takes up to n[i] hits, at least one; nil: no caller does. See model_upto_test.go
	leaves  bool   // one hit of each caller that takes up to n may be given back, while the others stay

	periods []calendar // periods[l] are the calendar periods of limit l, whose per is the longest; nil, or one without starts: the window slides

	keys  []stored  // nil: one key with ladder, eps and d; otherwise eps is the largest difference of the clocks, and ladder and d are unused
	calls [][][]int // calls[i] are the stages of a call of caller i, each with the keys, as indices, that are added to side by side; nil: one stage with the first key

	// Holes: what is left out of the protocol.
	ended, left, right *int                          // other values for the plan
	settles            []int                         // each caller has a Settle of its own
	sharedTicket       bool                          // one ticket tier for all limits of a call
	narrow             bool                          // a limit as wide as its ticket bucket reaches back Per + Skew only
	unsettledFine      bool                          // unsettled buckets are read at the finest tier
	noBudget           bool                          // steps 4 and 6: a late call is admitted
	ownBucketOnly      bool                          // nothing right of the own bucket is read
	staleNow           bool                          // the clock is not read again after the additions
	blindTakeBack      bool                          // unanswered additions are taken back too
	refundTwice        bool                          // a verdict is refunded again
	refundDenied       bool                          // a denied verdict is refunded
	ttlLacks           int                           // TTL = width + keep + skew + settle, less this
	expiry             bool                          // buckets expire at their TTL
	ticketOf           func(m *model, label int) int // the ticket tier depends on the clock
	subtract           bool                          // the left edge is a coarse bucket minus fine buckets
	coarseDenies       bool                          // a denial is answered from the coarse cover
	coarseAdmits       bool                          // a coarse cover that fits admits without the unsettled buckets
	coarseEnd          bool                          // the coarse cover, read beside the additions, has the unsettled buckets
	orderedLies        bool                          // an ordered store reads in any order
	orderedShort       bool                          // an ordered trip reads as far as another clock may be at its begin, and that is enough
	cacheUnsettled     bool                          // unsettled buckets are remembered too
	cacheExact         bool                          // settled buckets are remembered without another Skew of age
	cacheJump          bool                          // the memory is kept when the clock of the process jumps
	cacheDenies        bool                          // a denial is answered from the memory
	gap                *int                          // another gap between calls without a common key
	pairwise           bool                          // each two callers have a common key
	queued             []bool                        // queued[i]: caller i, which had begun before all others, labels its hit at any time
	timer              int                           // a caller with several stages leaves out the first one that many ticks after the start
	unjudged           *int                          // a call with several stages does not judge this key
	ownLabels          bool                          // each stage has a label of its own
	ownSettle          bool                          // each key is confirmed within its own Settle
	largestSettle      bool                          // all keys are confirmed within the largest Settle
	keepsEarlier       bool                          // a refused call takes back from the last stage only
	refundsAll         bool                          // a refund takes back from all keys
	upToHoles
	ownPeriods     [][]calendar // each caller has periods of its own
	laterPeriod    bool         // the period is that of the clock when the answers are there
	straddles      bool         // the decision tier is the coarsest in the period, wherever its buckets begin
	cutStart       bool         // the same, without the bucket that the period begins in
	tierByAge      bool         // the decision tier is the coarsest in the part of the period until the label
	unclipped      bool         // unsettled buckets from before the period are counted
	unsettledWhole bool         // unsettled buckets are read at the coarsest tier

	stages [maxCallers][]stage
	uses   [maxCallers]uint8 // the tiers that caller i may change, a bit each
	held   [maxWindows]uint8 // the tiers of the keys that hold the limit, a bit each
	soft   int               // the limit of the soft key; below zero without one
	ttls   [maxTiers]int
	first  map[[3]int][]read // by caller, stage and label
	rest   map[[4]int][]read // by caller, stage, label and reading of the clock
	edges  map[[4]int][]read // by caller, stage, label and limits, a bit each
	like   [maxCallers]int   // like[i] is the first caller with the traits of caller i
	ends   int               // time stops here
}

// read is the read of one bucket for one limit.
type read struct {
	limit, tier, bucket int8
	sign                int8
	part                part
}

// part is the part of a cover that a read belongs to.
type part int8

const (
	settledPart   part = iota
	oldestPart         // the oldest bucket of a coarse cover
	unsettledPart      // read in the first trip of an ordered store
)

const (
	idle int8 = iota
	adding
	checking
	edging // reads exact edges, after all other buckets
	takingBack
	liftingSoft // takes back from soft keys, and is admitted
	admitted
	denied // or failed; all additions are taken back
	refunding
	gone      // crashed
	lessening // takes back what it does not keep of its hits, and is admitted
	leaving   // gives one hit back, and is admitted with the others
)

// caller is the progress of one caller.
type caller struct {
	phase, label, start int8
	stage, shift        int8  // shift is added to the label after the first stage, by a hole
	landed              uint8 // additions that are in the store, a bit per tier
	sent                uint8 // additions that may still land, a bit per tier
	back                uint8 // takings back still to do, a bit per tier
	reads               uint32
	ticket              [maxTiers]int8
	sum                 [maxWindows]int8
	oldest              [maxWindows]int8 // the count of the oldest bucket, until the exact edge is read
	edges               uint8            // the limits whose exact edges are read, a bit each
	could               [maxWindows]int8 // the hits of other callers that an exact count may find, at most
	remembered          bool             // a count came from the memory of the process
	now                 int8
	counted             uint8 // tiers whose keys had room for the hit, a bit each; the hit may have been refunded since
	blamed              uint8 // the callers by whose hits a soft key can have been over, and this caller, a bit each
	again               bool  // the additional refund of a hole was made
	upToPart
}

type state struct {
	t     int8
	c     [maxCallers]caller
	count [maxTiers][maxBuckets]int8
	dies  [maxTiers][maxBuckets]int8

	memory [maxTiers][maxBuckets]memory // of the process that remembers settled buckets
}

// memory is a remembered bucket.
type memory struct {
	there bool
	count int8
	clock int8 // the lead of the clock by which the bucket was settled
}

func (m *model) prepare(t *testing.T) {
	t.Helper()
	if m.asks == nil {
		m.asks = make([][]int, len(m.n))
		for i := range m.asks {
			for limit := range m.limits {
				m.asks[i] = append(m.asks[i], limit)
			}
		}
	}
	m.layOut()
	for i := range m.n {
		m.stages[i], m.uses[i] = m.stagesOf(t, i), 0
		for _, st := range m.stages[i] {
			m.uses[i] |= st.all
		}
		if m.refundsAll {
			m.uses[i] = 1<<len(m.ladder) - 1
		}
		m.like[i] = 0
		for m.n[m.like[i]] != m.n[i] || m.clock[m.like[i]] != m.clock[i] || m.settleOf(m.like[i], 0) != m.settleOf(i, 0) ||
			!slices.Equal(m.asks[m.like[i]], m.asks[i]) || (m.like[i] < m.faults) != (i < m.faults) ||
			m.takesUpTo(m.like[i]) != m.takesUpTo(i) || m.remembers(m.like[i]) != m.remembers(i) || m.isOut(m.like[i]) != m.isOut(i) || !m.sameCalls(m.like[i], i) {
			m.like[i]++
		}
	}
	m.first, m.rest, m.edges = map[[3]int][]read{}, map[[4]int][]read{}, map[[4]int][]read{}
	m.ends = m.start + m.span + m.longestSettle() + 3
}

// settleOf is the Settle by which caller i goes in key k.
func (m *model) settleOf(i, k int) int {
	if m.settles != nil {
		return m.settles[i]
	}
	return m.keys[k].d
}

// remembers reports whether caller i is in the process with a memory.
func (m *model) remembers(i int) bool { return m.cache != nil && m.cache[i] }

// isOut reports whether no promise covers the hit of caller i.
func (m *model) isOut(i int) bool { return m.out != nil && m.out[i] }

// bucket is the bucket of a tier that holds the label, counted from the bucket of m.start.
func (m *model) bucket(tier int8, label int) int8 {
	w := m.ladder[tier][0]
	return int8(label/w - m.start/w)
}

func (m *model) boundsAt(j *judgement, label int) bounds {
	b := j.bounds
	if j.periods.starts != nil {
		b = m.inPeriod(j, label)
	}
	if m.ticketOf != nil {
		b.top = m.ticketOf(m, label)
	}
	return b
}

// buckets turns a cover into single reads; buckets before m.start hold nothing.
func (m *model) buckets(dst []read, j *judgement, runs tiers.Cover, sign int8) []read {
	for _, run := range runs {
		for i := run.First; i < run.First+run.N; i++ {
			tier := m.keys[j.key].first
			for time.Duration(m.ladder[tier][0])*tick != run.Width {
				tier++
			}
			bucket := int(i) - m.start/m.ladder[tier][0]
			if bucket >= 0 && bucket < maxBuckets {
				dst = append(dst, read{limit: int8(j.limit), tier: int8(tier), bucket: int8(bucket), sign: sign})
			}
		}
	}
	return dst
}

func (m *model) firstReads(i, stage, label int) []read {
	key := [3]int{i, stage, label}
	if reads, ok := m.first[key]; ok {
		return reads
	}
	var reads []read
	for k := range m.stages[i][stage].judges {
		j := &m.stages[i][stage].judges[k]
		p, r := &j.plan, m.boundsAt(j, label)
		ns := int64(label) * int64(tick)
		if m.subtract {
			top := int64(m.ladder[r.top][0]) * int64(tick)
			fine := int64(m.ladder[r.fine][0]) * int64(tick)
			from := ns - r.reach
			whole := from / top * top
			end := p.settledEnd(ns, r)
			reads = m.buckets(reads, j, p.Cover(nil, whole, end-1, r.top, r.top), 1)
			if from/fine*fine > whole {
				reads = m.buckets(reads, j, p.Cover(nil, whole, from/fine*fine-1, r.fine, r.fine), -1)
			}
			continue
		}
		if !m.coarse || r.calendar {
			reads = m.buckets(reads, j, p.settled(nil, ns, r), 1)
			continue
		}
		runs := p.settled(nil, ns, r.coarse())
		oldest := tiers.Cover{{Width: runs[0].Width, First: runs[0].First, N: 1}}
		exact := slices.Equal(oldest, p.edge(nil, ns, r))
		for _, one := range m.buckets(nil, j, oldest, 1) {
			if !exact {
				one.part = oldestPart
			}
			reads = append(reads, one)
		}
		runs[0].First, runs[0].N = runs[0].First+1, runs[0].N-1
		reads = m.buckets(reads, j, runs, 1)
	}
	now := label + m.stages[i][stage].settle
	if m.orderedShort {
		now = label
	}
	if m.ordered {
		for _, r := range m.restReads(i, stage, label, now) {
			r.part = unsettledPart
			reads = append(reads, r)
		}
	}
	if m.coarseEnd {
		for _, r := range m.restReads(i, stage, label, label) {
			if r.bucket < m.bucket(r.tier, label) {
				reads = append(reads, r)
			}
		}
	}
	if len(reads) > 32 {
		panic("too many reads for the bit set")
	}
	m.first[key] = reads
	return reads
}

// edgeReads are the reads of the exact edges of some limits.
func (m *model) edgeReads(i, stage, label, limits int) []read {
	key := [4]int{i, stage, label, limits}
	if reads, ok := m.edges[key]; ok {
		return reads
	}
	var reads []read
	for k := range m.stages[i][stage].judges {
		j := &m.stages[i][stage].judges[k]
		if limits&(1<<j.limit) != 0 {
			reads = m.buckets(reads, j, j.plan.edge(nil, int64(label)*int64(tick), m.boundsAt(j, label)), 1)
		}
	}
	m.edges[key] = reads
	return reads
}

func (m *model) restReads(i, stage, label, now int) []read {
	key := [4]int{i, stage, label, now}
	if reads, ok := m.rest[key]; ok {
		return reads
	}
	var reads []read
	for k := range m.stages[i][stage].judges {
		j := &m.stages[i][stage].judges[k]
		p, r := &j.plan, m.boundsAt(j, label)
		ns := int64(label) * int64(tick)
		if m.unclipped {
			r.reach += p.ending
		}
		runs := p.unsettled(nil, ns, int64(now)*int64(tick), r)
		w := int64(p.Ladder.At(r.top).Width)
		own := tiers.Index(ns, time.Duration(w))
		var kept tiers.Cover
		for _, run := range runs {
			switch {
			case m.ownBucketOnly && run.First > own:
			case m.unsettledFine && run.First < own:
				kept = p.Cover(kept, run.First*w, (run.First+run.N)*w-1, r.fine, r.fine)
			case m.unsettledWhole && run.First < own:
				kept = cover.Append(kept, p.widths, run.First*w, (run.First+run.N)*w-1, r.top, r.whole, r.top)
			default:
				kept = append(kept, run)
			}
		}
		reads = m.buckets(reads, j, kept, 1)
	}
	m.rest[key] = reads
	return reads
}

// toRead are the reads that caller i must make before its next step.
func (m *model) toRead(i int, me *caller) []read {
	switch me.phase {
	case adding:
		return m.firstReads(i, int(me.stage), me.at())
	case checking:
		rest := m.nextReads(i, me)
		return append(rest[:len(rest):len(rest)], m.edgeReads(i, int(me.stage), me.at(), int(me.edges))...)
	case edging:
		return m.edgeReads(i, int(me.stage), me.at(), int(me.edges))
	}
	return nil
}

// nextReads are the unsettled buckets that caller i reads in a trip of their own.
func (m *model) nextReads(i int, me *caller) []read {
	if m.ordered {
		return nil // the first trip has read as far as a try in time can need
	}
	rest := m.restReads(i, int(me.stage), me.at(), int(me.now))
	if m.coarseEnd {
		rest = slices.DeleteFunc(slices.Clone(rest), func(r read) bool { return r.bucket < m.bucket(r.tier, me.at()) })
	}
	return rest
}

// take counts a bucket that was read.
func (me *caller) take(r read, bit int, count int8) {
	me.reads |= 1 << bit
	if r.part == oldestPart {
		me.oldest[r.limit] += count
	} else {
		me.sum[r.limit] += r.sign * count
	}
}

// count is the count of a caller under the limit of j.
func (m *model) count(j *judgement, me *caller) int8 {
	ticket := m.keys[j.key].first + m.boundsAt(j, me.at()).top
	return me.ticket[ticket] + me.sum[j.limit] + me.oldest[j.limit]
}

// edgesOf are the limits whose exact edges can still make room. No read can make
// room for a call under a limit that is hopeless: above Max without the edge.
func (m *model) edgesOf(i int, me *caller) (limits uint8, hopeless bool) {
	judges := m.stages[i][me.stage].judges
	for k := range judges {
		limit := judges[k].limit
		most, count := m.limits[limit][0], m.count(&judges[k], me)
		if int(count-me.oldest[limit])-m.spare(i, me) > most {
			return 0, true
		}
		if int(count) > most && me.oldest[limit] > 0 && !m.coarseDenies {
			limits |= 1 << limit
		}
	}
	return limits, false
}

// usable reports whether caller i counts by the memory of a bucket.
func (m *model) usable(s *state, i int, r read) bool {
	known := &s.memory[r.tier][r.bucket]
	return m.remembers(i) && s.c[i].phase == adding && r.part != unsettledPart && known.there &&
		(m.cacheJump || max(m.clock[i]-int(known.clock), int(known.clock)-m.clock[i]) <= m.eps)
}

// differs reports whether the memory has another count of the bucket, or one by
// another clock. Otherwise it makes no difference whether caller i reads the bucket
// or counts by the memory, and a bucket that is not remembered may as well be:
// nobody has to use the memory.
func (m *model) differs(s *state, i int, r read) bool {
	known := s.memory[r.tier][r.bucket]
	return m.remembers(i) && known.there && known != memory{true, s.count[r.tier][r.bucket], int8(m.clock[i])}
}

// fill remembers the count of a bucket that caller i reads now.
func (m *model) fill(s *state, i int, r read) {
	me := &s.c[i]
	if !m.remembers(i) || (me.phase == checking || r.part == unsettledPart) && !m.cacheUnsettled || me.phase == edging {
		return
	}
	label := int64(me.at()) * int64(tick)
	judges := m.stages[i][me.stage].judges
	for k := range judges {
		if !m.cacheExact && !judges[k].plan.lasting(label, m.boundsAt(&judges[k], me.at())) {
			return
		}
	}
	s.memory[r.tier][r.bucket] = memory{true, s.count[r.tier][r.bucket], int8(m.clock[i])}
}

// older adds the hit of caller j to the hits that an exact count of caller i may
// find, unless the hit is left of the exact covers.
func (m *model) older(s *state, i, j int) {
	me := &s.c[i]
	judges := m.stages[i][me.stage].judges
	for k := range judges {
		if m.reaches(&judges[k], me, &s.c[j]) {
			me.could[judges[k].limit] += m.mayHold(&s.c[j], j)
		}
	}
}

// reaches reports whether the hit of another caller is not left of the exact cover
// by which me counts under the limit of j.
func (m *model) reaches(j *judgement, me, other *caller) bool {
	b := m.boundsAt(j, me.at())
	return int64(other.at())*int64(tick) >= j.plan.bucketAt(int64(me.at())*int64(tick)-b.reach, b.left).Start().UnixNano()
}

// checker explores a model.
//
// Three reductions keep the states few. None of them loses an outcome, as
// TestModelReductionsLoseNothing shows: a read of a bucket that nobody can change
// any more is made at once, since the read would return the same at any later
// time; what no later step of a caller depends on is dropped; callers with the
// same traits may change places.
type checker struct {
	m        *model
	whole    bool // without the reductions
	seen     set
	seed     maphash.Seed
	outcomes map[outcome]bool // if not nil: all that were met
	trail    []string         // of the first violation, the last step first

	labels, starts hitlog.Log // of over
}

// outcome is a decision: who decided, when, what the caller had counted under each
// of its limits, and the hits that were admitted by then, sorted.
type outcome struct {
	weight, label, start, clock int8
	stage                       int8
	counted                     [maxWindows]int8
	admitted                    [maxCallers][3]int8 // weight, label, true time
}

// explore returns the number of states and the trace of the first violation.
func (c *checker) explore(t *testing.T) (int, string) {
	c.m.prepare(t)
	c.seed = maphash.MakeSeed()
	s := state{t: int8(c.m.start)}
	for i := len(c.m.n); i < maxCallers; i++ {
		s.c[i].phase = gone
	}
	c.visit(&s)
	slices.Reverse(c.trail)
	return c.seen.n, strings.Join(c.trail, "\n")
}

// visit explores what follows from s, which visit may change, and reports whether
// a violation was found.
func (c *checker) visit(s *state) bool {
	if c.m.misreports(s) {
		c.tell("a soft key was over by hits that were not admitted")
		return true
	}
	if !c.whole {
		c.m.reduce(s)
	}
	if !c.seen.add(c.hash(s)) {
		return false
	}
	for i := range c.m.n {
		if c.steps(s, i) {
			return true
		}
	}
	busy := false
	for i := range s.c {
		busy = busy || s.c[i].phase != gone && s.c[i].phase != denied || s.c[i].sent != 0
	}
	if busy && int(s.t) < c.m.ends {
		s.t++
		c.m.expire(s)
		return c.step(s, "t=%d", int(s.t))
	}
	return false
}

// hash is a hash of s that is the same for states which differ only in the order
// of callers with the same traits.
func (c *checker) hash(s *state) uint64 {
	if c.whole {
		return maphash.Comparable(c.seed, *s)
	}
	var sum struct {
		callers     [maxCallers]uint64
		t           int8
		count, dies [maxTiers][maxBuckets]int8
		memory      [maxTiers][maxBuckets]memory
	}
	sum.t, sum.count, sum.dies, sum.memory = s.t, s.count, s.dies, s.memory
	for i := range c.m.n {
		sum.callers[c.m.like[i]] += maphash.Comparable(c.seed, s.c[i])
	}
	return maphash.Comparable(c.seed, sum)
}

// reduce makes the reads of final buckets and drops what no later step depends on.
func (m *model) reduce(s *state) {
	for i := range m.n {
		me := &s.c[i]
		again := m.refundTwice || m.refundDenied // a denied caller has steps left
		switch me.phase {
		case takingBack, refunding, denied:
			me.start, me.ticket = 0, [maxTiers]int8{}
			if !again {
				me.landed, me.counted, me.blamed = 0, 0, 0
				me.reduce()
			}
		}
		if me.phase == gone || me.phase == denied && !again {
			*me = caller{phase: gone, label: me.label, shift: me.shift, sent: me.sent, upToPart: me.upToPart}
			if me.sent == 0 {
				me.label, me.shift, me.upToPart = 0, 0, upToPart{}
			}
		}
	}
	for i := range m.n {
		me := &s.c[i]
		for bit, r := range m.toRead(i, me) {
			if me.reads&(1<<bit) == 0 && m.final(s, r) && !m.differs(s, i, r) {
				me.take(r, bit, s.count[r.tier][r.bucket])
				m.fill(s, i, r)
			}
		}
	}
}

// final reports whether a bucket can change no more.
func (m *model) final(s *state, r read) bool {
	for i := range m.n {
		if m.uses[i]&(1<<r.tier) == 0 {
			continue
		}
		switch me := &s.c[i]; {
		case me.phase == idle:
			if int(s.t) <= m.start+m.span && r.bucket >= m.bucket(r.tier, int(s.t)+m.clock[i]) {
				return false
			}
		case me.phase == admitted && !m.refund && !m.mayLeave(i, me):
		case m.ownLabels && me.stage == 0 && me.phase < takingBack && r.bucket >= m.bucket(r.tier, me.at()):
			return false // a later stage has a label that nobody knows yet
		case r.bucket == m.bucketOf(i, me, int(r.tier)):
			return false
		}
	}
	return !m.expiry || s.count[r.tier][r.bucket] == 0
}

func (m *model) expire(s *state) {
	if !m.expiry {
		return
	}
	for tier := range s.count {
		for bucket := range s.count[tier] {
			if s.dies[tier][bucket] > 0 && s.dies[tier][bucket] <= s.t {
				s.count[tier][bucket], s.dies[tier][bucket] = 0, 0
			}
		}
	}
}

// step visits s, the state after the step that format and args name.
func (c *checker) step(s *state, format string, args ...int) bool {
	if !c.visit(s) {
		return false
	}
	c.tell(format, args...)
	return true
}

// tell adds a step to the trail of a violation.
func (c *checker) tell(format string, args ...int) {
	list := make([]any, len(args))
	for i, a := range args {
		list[i] = a
	}
	c.trail = append(c.trail, fmt.Sprintf(format, list...))
}

// steps tries everything that caller i can do next.
func (c *checker) steps(s *state, i int) bool {
	m := c.m
	me := &s.c[i]
	clock := int(s.t) + m.clock[i]
	var next state // declared once: a variable of a loop would be allocated at each step

	// Sent additions land, whatever has become of the sender.
	for tier := range m.ladder {
		if me.sent&(1<<tier) == 0 {
			continue
		}
		next = *s
		bucket := m.bucketOf(i, me, tier)
		if next.dies[tier][bucket] == 0 && m.expiry {
			next.dies[tier][bucket] = s.t + int8(m.ttls[tier]-m.ttlLacks)
		}
		next.count[tier][bucket] += m.hits(i, me, tier)
		next.c[i].sent &^= 1 << tier
		next.c[i].landed |= 1 << tier
		count := next.count[tier][bucket]
		next.c[i].ticket[tier] = count
		if c.step(&next, "%d adds [%d]%d -> %d", i, tier, int(bucket), int(count)) {
			return true
		}
	}

	switch me.phase {
	case idle:
		if int(s.t) > m.start+m.span || !m.mayStart(s, i) {
			return false
		}
		next = *s
		stage := m.firstStage(s, i)
		next.c[i] = caller{phase: adding, label: int8(clock), start: s.t, stage: stage}
		m.send(i, &next.c[i])
		if m.strict() {
			for j := range m.n {
				switch next.c[j].phase {
				case idle, gone, denied:
					continue
				case adding, checking, edging:
					if j != i {
						m.older(&next, j, i)
					}
				}
				if j != i {
					m.older(&next, i, j)
				}
			}
		}
		return c.step(&next, "%d stamps %d", i, clock)

	case adding, checking, edging:
		st := &m.stages[i][me.stage]
		done, added := true, me.landed&st.all == st.all
		for bit, r := range m.toRead(i, me) {
			if me.reads&(1<<bit) != 0 {
				continue
			}
			done = false
			if r.part == unsettledPart && !added && !m.orderedLies {
				continue
			}
			if m.usable(s, i, r) && m.differs(s, i, r) {
				next = *s
				next.c[i].take(r, bit, s.memory[r.tier][r.bucket].count)
				next.c[i].remembered = true
				if c.step(&next, "%d remembers [%d]%d = %d", i, int(r.tier), int(r.bucket), int(s.memory[r.tier][r.bucket].count)) {
					return true
				}
			}
			next = *s
			count := s.count[r.tier][r.bucket]
			next.c[i].take(r, bit, count)
			if m.differs(s, i, r) {
				kept := next
				if c.step(&kept, "%d reads [%d]%d = %d, which is not remembered", i, int(r.tier), int(r.bucket), int(count)) {
					return true
				}
			}
			m.fill(&next, i, r)
			if c.step(&next, "%d reads [%d]%d = %d", i, int(r.tier), int(r.bucket), int(count)) {
				return true
			}
		}
		late := !m.noBudget && clock-me.at() > st.settle
		if done && added && c.confirm(*s, i, clock, late) {
			return true
		}
		if i < m.faults && (late || m.noBudget) {
			// The caller gives up. Of what has landed, any part may have been answered.
			for answered := uint8(0); answered <= st.all; answered++ {
				if answered&^(me.landed&st.all) != 0 {
					continue
				}
				next = *s
				back := answered
				if m.blindTakeBack {
					back = st.all
				}
				next.c[i].decided()
				if c.stop(&next, i, back, "%d gives up, takes back %b") {
					return true
				}
			}
		}
		return c.crash(*s, i)

	case takingBack, liftingSoft, refunding, lessening, leaving:
		for tier := range m.ladder {
			if me.back&(1<<tier) == 0 {
				continue
			}
			next = *s
			bucket := m.bucketOf(i, me, tier)
			count := max(0, s.count[tier][bucket]-m.undone(i, me, tier))
			next.count[tier][bucket] = count
			next.c[i].back &^= 1 << tier
			if next.c[i].back == 0 {
				m.settle(&next.c[i])
			}
			if c.admits(&next, i) {
				return true
			}
			if c.step(&next, "%d takes back [%d]%d -> %d", i, tier, int(bucket), int(count)) {
				return true
			}
		}
		return c.crash(*s, i)

	case admitted:
		if m.mayLeave(i, me) {
			next = *s
			m.leave(&next.c[i])
			if c.step(&next, "%d gives a hit back", i) {
				return true
			}
		}
		if m.refund {
			next = *s
			next.c[i].phase, next.c[i].back, next.c[i].start = refunding, me.counted, 0
			if m.refundsAll {
				next.c[i].back = 1<<len(m.ladder) - 1
			}
			return c.step(&next, "%d is refunded", i)
		}

	case denied:
		all := m.uses[i]
		if m.refundTwice && m.refund && !me.again && me.counted != 0 || m.refundDenied && !me.again && me.counted == 0 && me.landed == all {
			next = *s
			next.c[i].phase, next.c[i].back, next.c[i].again = refunding, all, true
			return c.step(&next, "%d is refunded once more", i)
		}
	}
	return false
}

func (c *checker) crash(s state, i int) bool {
	if i >= c.m.faults {
		return false
	}
	me := &s.c[i]
	*me = caller{phase: gone, label: me.label, shift: me.shift, sent: me.sent, upToPart: me.upToPart}
	return c.step(&s, "%d crashes", i)
}

// confirm is the step of caller i when all answers are there.
func (c *checker) confirm(s state, i, clock int, late bool) bool {
	m, me := c.m, &s.c[i]
	st := &m.stages[i][me.stage]
	if me.phase == adding && !late {
		me.now = int8(clock)
		if m.staleNow {
			me.now = me.label
		}
		var hopeless bool
		me.edges, hopeless = m.edgesOf(i, me)
		next := m.nextReads(i, me)
		if m.coarse && hopeless || m.coarseAdmits && me.edges == 0 || m.restUnread && m.partly(i, me) {
			next, me.edges = nil, 0
		}
		if len(next) > 0 || me.edges != 0 {
			me.phase = checking
			me.exact()
			return c.step(&s, "%d has all answers at %d, reads on, edges %b", i, clock, int(me.edges))
		}
	}
	if me.phase == checking && !late {
		if me.edges, _ = m.edgesOf(i, me); me.edges != 0 {
			me.phase = edging
			me.exact()
			return c.step(&s, "%d reads edges %b", i, int(me.edges))
		}
	}
	fits, fitsSoft := true, true
	var counted [maxWindows]int8
	for k := range st.judges {
		j := &st.judges[k]
		counted[j.limit] = m.count(j, me)
		switch room := int(counted[j.limit])-m.spare(i, me) <= m.limits[j.limit][0]; {
		case m.keys[j.key].soft:
			fitsSoft = fitsSoft && room && !late
		case !m.isUnjudged(i, j.key):
			fits = fits && room
		}
	}
	if c.outcomes != nil {
		c.outcomes[m.outcome(&s, outcome{weight: int8(m.n[i]), label: me.label, start: me.start, clock: int8(clock), stage: me.stage, counted: counted})] = true
	}
	if !late && !fits && m.wrong(i, me) {
		c.tell("%d is denied, and has room", i)
		return true
	}
	if !late && fits && m.takesUpTo(i) && m.keep(i, me, &counted) {
		c.tell("%d takes fewer hits than have room", i)
		return true
	}
	if !fitsSoft && !late {
		m.blame(&s, i)
	}
	me.decided()
	switch {
	case late && !st.soft:
		return c.stop(&s, i, st.all, "%d is refused: late, takes back %b")
	case !fits:
		return c.stop(&s, i, st.all, "%d is refused: full, takes back %b")
	case !fitsSoft:
		me.counted |= st.all &^ st.softTiers
		me.back = st.softTiers
	default:
		me.counted |= st.all
	}
	if int(me.stage)+1 < len(m.stages[i]) {
		me.stage++
		me.phase = adding
		m.send(i, me)
		if m.ownLabels {
			me.shift = int8(clock) - me.label
		}
		return c.step(&s, "%d goes on", i)
	}
	if me.phase = admitted; me.back != 0 {
		me.phase = liftingSoft
		return c.step(&s, "%d is over in a soft key", i)
	}
	if m.lessens(i, me) {
		return c.step(&s, "%d keeps %d", i, int(me.kept))
	}
	return c.admits(&s, i) || c.step(&s, "%d is admitted", i)
}

// admits reports whether caller i, which may have been admitted now, is one too many.
func (c *checker) admits(s *state, i int) bool {
	if !s.c[i].told() || !c.over(s) {
		return false
	}
	c.tell("%d is admitted, one too many", i)
	return true
}

// stop ends a stage that caller i has not passed. The call takes back from the
// tiers of back, and what it has added before. A call that has passed all enforced
// keys is admitted nevertheless.
func (c *checker) stop(s *state, i int, back uint8, format string) bool {
	m, me := c.m, &s.c[i]
	if m.stages[i][me.stage].soft {
		if me.phase, me.back = liftingSoft, back; back == 0 {
			me.phase = admitted
		}
		return c.admits(s, i) || c.step(s, format, i, int(back))
	}
	if !m.keepsEarlier {
		back |= me.counted
	}
	if me.phase, me.back, me.start, me.counted = takingBack, back, 0, 0; back == 0 {
		me.phase = denied
	}
	for j := range s.c {
		s.c[j].blamed &^= 1 << i
	}
	return c.step(s, format, i, int(back))
}

// exact drops the oldest buckets of the covers whose exact edges are read now.
func (me *caller) exact() {
	me.reads = 0
	for limit := range me.oldest {
		if me.edges&(1<<limit) != 0 {
			me.oldest[limit] = 0
		}
	}
}

// decided drops what a caller has found out.
func (me *caller) decided() {
	me.reads, me.now, me.edges, me.remembered = 0, 0, 0, false
	me.ticket = [maxTiers]int8{}
	me.sum, me.oldest, me.could = [maxWindows]int8{}, [maxWindows]int8{}, [maxWindows]int8{}
}

// strict reports whether denials are judged as well. With faults nobody knows which
// hits a caller may count.
func (m *model) strict() bool {
	return (m.coarse || m.cache != nil || m.periods != nil) && m.faults == 0 && !m.expiry && m.calls == nil
}

// wrong reports whether the exact counts of caller i, now denied, can never have
// been above Max. A caller that has counted by the memory is not denied: it counts
// anew.
func (m *model) wrong(i int, me *caller) bool {
	if !m.strict() || me.remembered && !m.cacheDenies {
		return false
	}
	for _, j := range m.stages[i][me.stage].judges {
		if limit := j.limit; m.n[i]-m.spare(i, me)+int(me.could[limit]) > m.limits[limit][0] {
			return false
		}
	}
	return true
}

// outcome is o with the admitted hits of s.
func (m *model) outcome(s *state, o outcome) outcome {
	for i := range m.n {
		if me := &s.c[i]; me.told() {
			o.admitted[i] = [3]int8{m.keeps(i, me), me.label, me.start}
		}
	}
	slices.SortFunc(o.admitted[:], func(a, b [3]int8) int { return slices.Compare(a[:], b[:]) })
	return o
}

// over reports whether more than Max admitted hits, all taken under a common limit,
// are within a window, by their labels or by the true time of the labels.
func (c *checker) over(s *state) bool {
	for limit, l := range c.m.limits {
		if c.m.periods != nil && c.m.periods[limit].starts != nil {
			if c.m.overIn(s, limit) {
				return true
			}
			continue
		}
		c.labels.Reset()
		c.starts.Reset()
		for i := range c.m.n {
			if me := &s.c[i]; me.told() && c.m.keeps(i, me) > 0 && !c.m.isOut(i) && slices.Contains(c.m.asks[i], limit) && s.c[i].counted&c.m.held[limit] != 0 {
				n := int64(c.m.keeps(i, me))
				c.labels.Add(time.Unix(0, int64(me.label)), n)
				c.starts.Add(time.Unix(0, int64(me.start)), n)
			}
		}
		if per := time.Duration(l[1]); max(c.labels.Worst(per), c.starts.Worst(per)) > int64(l[0]) {
			return true
		}
	}
	return false
}

// set is a set of hashes, open addressing, at most half full.
type set struct {
	slots []uint64
	n     int
}

// add puts h into the set, and reports whether h was not there yet.
func (s *set) add(h uint64) bool {
	h |= 1 // zero is the free slot
	if 2*s.n >= len(s.slots) {
		old := s.slots
		s.slots, s.n = make([]uint64, max(1<<12, 4*len(old))), 0
		for _, h := range old {
			if h != 0 {
				s.add(h)
			}
		}
	}
	mask := uint64(len(s.slots) - 1)
	for i := h >> 1 & mask; ; i = (i + 1) & mask {
		switch s.slots[i] {
		case h:
			return false
		case 0:
			s.slots[i] = h
			s.n++
			return true
		}
	}
}

// phases runs m at the phases of its coarsest tier that are step ticks apart, at every
// phase if step is 1, and begins with the phase first. It returns the states explored and
// the first trace that went over Max.
func (m model) phases(t *testing.T, first, step int) (states int, trace string) {
	m.layOut()
	period := m.period()
	base := (m.longestPer() + 2*(m.eps+m.longestSettle()) + 2*period) / period * period
	for phase := 0; phase < period; phase += step {
		at := m
		at.start = base + (first+phase)%period
		c := checker{m: &at}
		n, bad := c.explore(t)
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
	allHold(t, []model{
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
		{name: "three callers, skew", ladder: [][2]int{{2, 2}}, limits: [][2]int{{2, 2}}, eps: 1, d: 1, n: []int{1, 1, 1}, clock: []int{0, 1, 0}, span: 4},
		{name: "three callers, weights", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{3, 4}}, eps: 1, d: 0, n: []int{2, 1, 1}, clock: []int{0, 1, 0}, span: 2},
		{name: "three callers, faults", ladder: [][2]int{{2, 3}}, limits: [][2]int{{2, 3}}, eps: 1, d: 1, n: []int{1, 1, 1}, clock: []int{1, 0, 0}, span: 2, faults: 2},
		{name: "faults, two limits", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 5, faults: 1},
		{name: "faults, a limit more than the other", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, asks: [][]int{{1}, {0, 1}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 4, faults: 2},
		{name: "everything dies", ladder: [][2]int{{2, 2}}, limits: [][2]int{{1, 2}}, eps: 1, d: 1, n: pair, clock: []int{1, 0}, span: 5, faults: 1, expiry: true},
	})
}

// drawn returns all in the long form, and otherwise every sixth of them, from one on that
// is drawn.
func drawn[T any](all []T) (some []T) {
	each := min(long.Rounds(6, 1), len(all))
	for i := rand.IntN(each); i < len(all); i += each {
		some = append(some, all[i])
	}
	return some
}

// allHold are tests that no end state of a drawn model is over Max, at every eighth phase
// from one on that is drawn, or in the long form at every phase.
func allHold(t *testing.T, models []model) {
	for _, m := range drawn(models) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			states, trace := m.phases(t, rand.IntN(8), long.Rounds(8, 1))
			require.Empty(t, trace)
			require.Greater(t, states, 100, "a model in which nothing happens proves nothing")
			t.Logf("%d states", states)
		})
	}
}

// The cheaper forms of the protocol: coarse covers first, unsettled buckets in the
// first trip of an ordered store, settled buckets from the memory of a process.
// Where nobody crashes, no caller is denied that has room, either.
func TestModelOfCheaperForms(t *testing.T) {
	pair, three := []int{1, 1}, []int{1, 1, 1}
	yes := []bool{true, true, true}
	allHold(t, []model{
		{name: "coarse, one tier", ladder: [][2]int{{3, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7, coarse: true},
		{name: "coarse, two tiers", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 8, coarse: true},
		{name: "coarse, window wider than the tiers", ladder: [][2]int{{1, 5}, {3, 5}}, limits: [][2]int{{1, 5}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 9, coarse: true},
		{name: "coarse, the slow clock first", ladder: [][2]int{{1, 5}, {3, 5}}, limits: [][2]int{{1, 5}}, eps: 1, d: 2, n: pair, clock: []int{1, 0}, span: 9, coarse: true},
		{name: "coarse, three tiers", ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 5, coarse: true},
		{name: "coarse, tries as long as a bucket", ladder: [][2]int{{1, 5}, {3, 5}}, limits: [][2]int{{1, 5}}, eps: 0, d: 3, n: pair, clock: []int{0, 0}, span: 9, coarse: true},
		{name: "coarse, faults", ladder: [][2]int{{2, 3}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 4, faults: 2, coarse: true},
		{name: "coarse, a limit more than the other", ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, asks: [][]int{{1}, {0, 1}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 4, coarse: true},
		{name: "coarse, three callers that differ", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{2, 2}, {2, 4}}, asks: [][]int{{1}, {0, 1}, {1}}, eps: 0, d: 1, n: three, clock: []int{0, 0, 0}, span: 1, coarse: true},
		{name: "coarse, three callers, weights", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{3, 4}}, eps: 1, d: 0, n: []int{2, 1, 1}, clock: []int{0, 1, 0}, span: 1, coarse: true},
		{name: "coarse, three callers over two buckets", ladder: [][2]int{{1, 2}, {2, 2}}, limits: [][2]int{{2, 2}}, eps: 0, d: 1, n: three, clock: []int{0, 0, 0}, span: 3, coarse: true},
		{name: "coarse, refunds", ladder: [][2]int{{1, 3}, {2, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 0, n: pair, clock: []int{0, 1}, span: 5, refund: true, coarse: true},
		{name: "coarse, expiry", ladder: [][2]int{{1, 2}, {2, 2}}, limits: [][2]int{{1, 2}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 3, expiry: true, coarse: true},

		{name: "ordered, one tier", ladder: [][2]int{{3, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7, ordered: true},
		{name: "ordered, narrow tickets", ladder: [][2]int{{1, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 2, n: pair, clock: []int{0, 1}, span: 8, ordered: true},
		{name: "ordered, faults", ladder: [][2]int{{2, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{1, 0}, span: 6, faults: 2, ordered: true},
		{name: "ordered, a limit more than the other", ladder: [][2]int{{1, 4}, {2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, asks: [][]int{{1}, {0, 1}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 3, ordered: true},
		{name: "ordered beside coarse, three callers", ladder: [][2]int{{1, 2}, {2, 2}}, limits: [][2]int{{2, 2}}, eps: 0, d: 1, n: three, clock: []int{0, 0, 0}, span: 3, ordered: true, coarse: true},

		{name: "memory, one tier", ladder: [][2]int{{2, 4}}, limits: [][2]int{{1, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 9, cache: yes},
		{name: "memory, coarse", ladder: [][2]int{{1, 4}, {2, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 8, cache: yes, coarse: true},
		{name: "memory of one process", ladder: [][2]int{{2, 4}}, limits: [][2]int{{2, 4}}, eps: 0, d: 1, n: three, clock: []int{0, 0, 0}, span: 3, cache: []bool{true, true, false}},
		{name: "memory of one process, skew", ladder: [][2]int{{2, 4}}, limits: [][2]int{{2, 4}}, eps: 1, d: 0, n: three, clock: []int{1, 1, 0}, span: 5, cache: []bool{true, true, false}},
		{name: "memory of one process, faults", ladder: [][2]int{{2, 4}}, limits: [][2]int{{2, 4}}, eps: 0, d: 1, n: three, clock: []int{0, 0, 0}, span: 2, faults: 1, cache: []bool{true, true, false}},
		{name: "memory, refunds", ladder: [][2]int{{2, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 0, n: three, clock: []int{0, 0, 0}, span: 4, refund: true, cache: yes},
		{name: "memory, the clock of the process jumps", ladder: [][2]int{{2, 4}}, limits: [][2]int{{1, 4}, {0, 4}}, asks: [][]int{{1}, {0}, {0}}, eps: 0, d: 1, n: three, clock: []int{3, 0, 0}, out: []bool{true, false, false}, span: 3, cache: []bool{true, true, false}},
		{name: "memory, the clock of the process jumps a little", ladder: [][2]int{{2, 4}}, limits: [][2]int{{1, 4}, {0, 4}}, asks: [][]int{{1}, {0}, {0}}, eps: 1, d: 0, n: three, clock: []int{2, 1, 0}, out: []bool{true, false, false}, span: 3, cache: []bool{true, true, false}},
		{name: "all forms", ladder: [][2]int{{1, 4}, {2, 4}}, limits: [][2]int{{2, 4}}, eps: 0, d: 0, n: three, clock: []int{0, 0, 0}, span: 3, cache: []bool{true, true, false}, coarse: true, ordered: true},
	})
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
	coarse := edge
	coarse.coarse = true
	yes := []bool{true, true, true}
	process := model{ladder: [][2]int{{2, 4}}, limits: [][2]int{{2, 4}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 7, cache: []bool{true, true, false}}
	jump := model{ladder: [][2]int{{2, 4}}, limits: [][2]int{{1, 4}, {0, 4}}, asks: [][]int{{1}, {0}, {0}}, eps: 0, d: 1, n: []int{1, 1, 1}, clock: []int{3, 0, 0}, out: []bool{true, false, false}, span: 4, cache: []bool{true, true, false}}
	little := jump
	little.eps, little.d, little.clock = 1, 0, []int{2, 1, 0}
	findHoles(t, []hole{
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
		{"coarse: a denial from the coarse cover", coarse, func(m *model) { m.coarseDenies = true }},
		{"coarse: a cover that fits admits without the unsettled buckets", coarse, func(m *model) { m.coarseAdmits = true }},
		{"coarse: unsettled buckets beside the additions", coarse, func(m *model) { m.coarseEnd = true }},
		{"coarse: now not read again", coarse, func(m *model) { m.staleNow = true }},
		{"ordered: the store reads in any order", one, func(m *model) { m.ordered, m.orderedLies = true, true }},
		{"ordered: read as far as another clock was at the begin", one, func(m *model) { m.ordered, m.orderedShort = true, true }},
		{"memory: of unsettled buckets", process, func(m *model) { m.cacheUnsettled = true }},
		{"memory: kept when the clock jumps", jump, func(m *model) { m.cacheJump = true }},
		{"memory: of buckets without another Skew of age", little, func(m *model) { m.cacheExact = true }},
		{"memory: a denial from the memory", model{ladder: [][2]int{{2, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 0, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 6, refund: true, cache: yes},
			func(m *model) { m.cacheDenies = true }},
	})
}

// hole is a model, and what is left out of its protocol.
type hole struct {
	name string
	in   model
	hole func(m *model)
}

// findHoles are tests that a drawn model with a hole has an end state that is over Max.
func findHoles(t *testing.T, holes []hole) {
	for _, h := range drawn(holes) {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			m := h.in
			m.name = h.name
			h.hole(&m)
			states, trace := m.phases(t, 1, 1) // most states are at phase 0, where all tiers begin together
			require.NotEmpty(t, trace, "the hole was not found in %d states", states)
			t.Logf("%d states\n%s", states, trace)
		})
	}
}

// The reductions of the checker lose nothing: with and without them callers decide
// on the same counts, at the same times, beside the same admitted hits.
func TestModelReductionsLoseNothing(t *testing.T) {
	pair := []int{1, 1}
	for _, m := range drawn([]model{
		{name: "one tier", ladder: [][2]int{{3, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7},
		{name: "two tiers", ladder: [][2]int{{1, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 6},
		{name: "faults", ladder: [][2]int{{2, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 5, faults: 1},
		{name: "twins with faults", ladder: [][2]int{{1, 2}, {2, 2}}, limits: [][2]int{{1, 2}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 4, faults: 2},
		{name: "weights", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{2, 4}}, eps: 1, d: 0, n: []int{2, 1}, clock: []int{1, 0}, span: 6},
		{name: "limits that differ", ladder: [][2]int{{1, 4}, {2, 4}}, limits: [][2]int{{1, 2}, {1, 4}}, asks: [][]int{{1}, {0, 1}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 5},
		{name: "refunds", ladder: [][2]int{{2, 2}}, limits: [][2]int{{1, 2}}, eps: 0, d: 0, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 2, refund: true},
		{name: "twins beside a caller with faults", ladder: [][2]int{{2, 2}}, limits: [][2]int{{1, 2}}, eps: 0, d: 0, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 2, faults: 1},
		{name: "expiry", ladder: [][2]int{{2, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 6, expiry: true},
		{name: "three callers", ladder: [][2]int{{2, 2}}, limits: [][2]int{{2, 2}}, eps: 0, d: 0, n: []int{1, 1, 1}, clock: []int{0, 0, 0}, span: 3},
		{name: "coarse", ladder: [][2]int{{1, 4}, {4, 4}}, limits: [][2]int{{1, 4}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 6, coarse: true},
		{name: "ordered", ladder: [][2]int{{3, 3}}, limits: [][2]int{{1, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 6, ordered: true},
		{name: "memory", ladder: [][2]int{{2, 2}}, limits: [][2]int{{1, 2}}, eps: 0, d: 0, n: pair, clock: []int{0, 0}, span: 5, refund: true, cache: []bool{true, true}},
		{name: "a change of ladder", keys: []stored{{ladder: [][2]int{{2, 2}}, d: 1}, {ladder: [][2]int{{1, 2}, {2, 2}}, d: 1}}, calls: [][][]int{formerOnly, onBoth}, limits: [][2]int{{1, 2}}, n: pair, clock: []int{0, 0}, span: 4, faults: 1},
		{name: "soft keys", keys: []stored{{ladder: [][2]int{{2, 2}}, d: 1, limits: []int{0}}, {ladder: [][2]int{{2, 2}}, d: 1, limits: []int{1}, soft: true}}, calls: [][][]int{onBoth, onBoth}, limits: [][2]int{{2, 2}, {1, 2}}, n: pair, clock: []int{0, 0}, span: 4},
	}) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.start = 24
			whole := checker{m: &m, whole: true, outcomes: map[outcome]bool{}}
			all, bad := whole.explore(t)
			require.Empty(t, bad)
			reduced := checker{m: &m, outcomes: map[outcome]bool{}}
			states, bad := reduced.explore(t)
			require.Empty(t, bad)
			require.Greater(t, len(whole.outcomes), 2)
			require.True(t, maps.Equal(whole.outcomes, reduced.outcomes), "%d outcomes, want %d", len(reduced.outcomes), len(whole.outcomes))
			t.Logf("%d outcomes, %d states of %d", len(whole.outcomes), states, all)
		})
	}
}
