//go:build !race

package ticket

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// A call of the model may go through several stored keys, stage by stage: it adds
// to the keys of a stage side by side, and goes on when all additions are confirmed
// and all limits have room. All stages have one label. Refused, it takes back from
// all keys. So a call counts on a former ladder and on a new one, and on a soft key
// after the enforced ones.

// stored is a stored key.
type stored struct {
	ladder [][2]int // width, keep
	eps, d int      // Skew and Settle
	limits []int    // that are judged in the key, as indices; nil: all
	soft   bool     // reported, and denies nobody
	first  int      // the finest tier, among the tiers of all keys
}

func (k *stored) holds(limit int) bool { return k.limits == nil || slices.Contains(k.limits, limit) }

// tiers are the tiers of k among the tiers of all keys, a bit each.
func (k *stored) tiers() uint8 { return (1<<len(k.ladder) - 1) << k.first }

// stage is a part of a call.
type stage struct {
	judges    []judgement
	all       uint8 // the tiers that the stage adds to, a bit each
	softTiers uint8 // those of soft keys
	soft      bool  // all keys are soft
	settle    int   // the longest time from the label to the last confirmed addition
}

// judgement is a limit that a stage judges in one key.
type judgement struct {
	bounds
	limit, key int
	plan       Plan
	periods    calendar // without starts: the window slides
}

// layOut puts the tiers of all keys in a row.
func (m *model) layOut() {
	if m.keys == nil {
		m.keys = []stored{{ladder: m.ladder, eps: m.eps, d: m.d}}
	}
	m.keys, m.ladder, m.held, m.soft = slices.Clone(m.keys), nil, [maxWindows]uint8{}, -1
	for k := range m.keys {
		key := &m.keys[k]
		key.first = len(m.ladder)
		for _, w := range key.ladder {
			m.ttls[len(m.ladder)] = w[0] + w[1] + key.eps + key.d
			m.ladder = append(m.ladder, w)
		}
		for limit := range m.limits {
			if key.holds(limit) {
				m.held[limit] |= key.tiers()
			}
		}
		if key.soft {
			m.soft = key.limits[0]
		}
	}
}

// callsOf are the stages of a call of caller i, as keys.
func (m *model) callsOf(i int) [][]int {
	if m.calls == nil {
		return [][]int{{0}}
	}
	return m.calls[i]
}

// sameCalls reports whether the callers i and j, whose calls go through equal stages,
// may change places. With soft keys callers are told apart by their blame.
func (m *model) sameCalls(i, j int) bool {
	return i == j || slices.EqualFunc(m.callsOf(i), m.callsOf(j), slices.Equal) && m.soft < 0 && m.isQueued(i) == m.isQueued(j)
}

func (m *model) isQueued(i int) bool { return m.queued != nil && m.queued[i] }

func (m *model) longestPer() (longest int) {
	for _, l := range m.limits {
		longest = max(longest, l[1])
	}
	return longest
}

func (m *model) longestSettle() int {
	longest := m.d
	for _, key := range m.keys {
		longest = max(longest, key.d)
	}
	return longest
}

// period is the time after which the buckets of all tiers begin together again.
func (m *model) period() int {
	for n := 1; ; n++ {
		if !slices.ContainsFunc(m.ladder, func(w [2]int) bool { return n%w[0] != 0 }) &&
			!slices.ContainsFunc(m.periods, func(c calendar) bool { return n%max(1, c.cycle) != 0 }) {
			return n
		}
	}
}

// stagesOf are the stages of a call of caller i.
func (m *model) stagesOf(t *testing.T, i int) (list []stage) {
	for _, keys := range m.callsOf(i) {
		st := stage{settle: m.inTime(i, keys)}
		for _, k := range keys {
			st.all |= m.keys[k].tiers()
			if m.keys[k].soft {
				st.softTiers |= m.keys[k].tiers()
			}
			st.judges = append(st.judges, m.judgesOf(t, i, k)...)
		}
		st.soft = st.softTiers == st.all
		list = append(list, st)
	}
	return list
}

// inTime is the longest time from the label of a call to the confirmation of a
// stage with these keys: the smallest Settle of all enforced keys of the call. A
// soft key goes by its own Settle.
func (m *model) inTime(i int, keys []int) int {
	if !m.ownSettle && !m.keys[keys[0]].soft {
		keys = slices.DeleteFunc(slices.Concat(m.callsOf(i)...), func(k int) bool { return m.keys[k].soft })
	}
	var settles []int
	for _, k := range keys {
		settles = append(settles, m.settleOf(i, k))
	}
	if m.largestSettle {
		return slices.Max(settles)
	}
	return slices.Min(settles)
}

// judgesOf are the limits that caller i judges in key k.
func (m *model) judgesOf(t *testing.T, i, k int) (list []judgement) {
	key := &m.keys[k]
	var widths []tiers.Tier
	for _, w := range key.ladder {
		widths = append(widths, tiers.Tier{Width: time.Duration(w[0]) * tick, Keep: time.Duration(w[1]) * tick})
	}
	ladder := try.To(tiers.New(widths...))(t)
	p := NewPlan(ladder, time.Duration(key.eps)*tick, time.Duration(m.settleOf(i, k))*tick, false)
	shared := ladder.Len()
	for _, limit := range m.asks[i] {
		if !key.holds(limit) {
			continue
		}
		per := time.Duration(m.limits[limit][1]) * tick
		var w backend.Window
		require.NoError(t, p.Window(&w, int64(m.limits[limit][0]), per))
		b := p.bounds(&w, 0)
		require.Equal(t, ladder.Decision(per), b.top)
		if m.narrow {
			b.reach = int64(per) + p.skew
		}
		if m.left != nil {
			b.reach += int64(*m.left-m.eps) * int64(tick)
		}
		list = append(list, judgement{bounds: b, limit: limit, key: k, periods: m.periodsOf(i, limit)})
		shared = min(shared, b.top)
	}
	if m.ended != nil {
		p.ending = int64(*m.ended) * int64(tick)
	}
	if m.right != nil {
		p.skew = int64(*m.right) * int64(tick)
	}
	for j := range list {
		list[j].plan = p
		if m.sharedTicket {
			list[j].top = shared
		}
	}
	return list
}

// at is the label of the hit in the present stage.
func (me *caller) at() int { return int(me.label + me.shift) }

// bucketOf is the bucket of a tier that holds the hit of caller i.
func (m *model) bucketOf(i int, me *caller, tier int) int8 {
	if me.shift != 0 && m.stages[i][0].all&(1<<tier) != 0 {
		return m.bucket(int8(tier), int(me.label))
	}
	return m.bucket(int8(tier), me.at())
}

// mayStart reports whether caller i may label a hit now: all hits that can share a
// window must have an enforced key in common.
func (m *model) mayStart(s *state, i int) bool {
	if m.calls == nil || m.isQueued(i) {
		return true
	}
	gap := m.longestPer() + m.eps
	if m.gap != nil {
		gap = *m.gap
	}
	common := m.enforced(i)
	for j := range m.n {
		if start := int(s.c[j].start); start == 0 || int(s.t)-start > gap {
			continue
		}
		if m.enforced(i)&m.enforced(j) == 0 {
			return false
		}
		common &= m.enforced(j)
	}
	return common != 0 || m.pairwise
}

// enforced are the enforced keys of caller i, a bit each.
func (m *model) enforced(i int) (keys uint8) {
	for _, stage := range m.calls[i] {
		for _, k := range stage {
			if !m.keys[k].soft {
				keys |= 1 << k
			}
		}
	}
	return keys
}

// firstStage is the stage with which a call of caller i begins now.
func (m *model) firstStage(s *state, i int) int8 {
	if m.timer > 0 && len(m.stages[i]) > 1 && int(s.t) >= m.start+m.timer {
		return 1
	}
	return 0
}

// isUnjudged reports whether caller i leaves out its judgement in the key.
func (m *model) isUnjudged(i, key int) bool {
	return m.unjudged != nil && *m.unjudged == key && len(m.stages[i]) > 1
}

// blame notes the callers by whose hits the soft key of caller i can be over: those
// that are admitted, or may still be, and are not left of the cover.
func (m *model) blame(s *state, i int) {
	me := &s.c[i]
	me.blamed = 1 << i
	for k := range m.stages[i][me.stage].judges {
		j := &m.stages[i][me.stage].judges[k]
		for other := range m.n {
			switch it := &s.c[other]; it.phase {
			case adding, checking, edging, liftingSoft, admitted, refunding:
				if m.keys[j.key].soft && m.reaches(j, me, it) {
					me.blamed |= 1 << other
				}
			}
		}
	}
}

// misreports reports whether a soft key was reported as over, and had room in every
// order of the admitted hits. With faults and refunds nobody knows which hits a
// caller may count.
func (m *model) misreports(s *state) bool {
	if m.soft < 0 || m.faults > 0 || m.refund {
		return false
	}
	for i := range m.n {
		if s.c[i].blamed&(1<<i) == 0 {
			continue
		}
		weight := 0
		for j := range m.n {
			if s.c[i].blamed&(1<<j) != 0 {
				weight += m.n[j]
			}
		}
		if weight <= m.limits[m.soft][0] {
			return true
		}
	}
	return false
}

// The calls of processes that count on the former ladder, on both, on the new one.
var (
	formerOnly = [][]int{{0}}
	onBoth     = [][]int{{0}, {1}}
	newOnly    = [][]int{{1}}
)

// A ladder changes. As long as all hits that can share a window have a ladder in
// common, no window has more than Max.
func TestModelOfAChangeOfLadder(t *testing.T) {
	pair, three := []int{1, 1}, []int{1, 1, 1}
	same, apart := []int{0, 0, 0}, []int{0, 1, 0}
	change := [][][]int{formerOnly, onBoth, newOnly}
	coarse, fine := [][2]int{{2, 2}}, [][2]int{{1, 2}, {2, 2}}
	allHold(t, []model{
		{name: "from the former to the new", keys: []stored{{ladder: coarse, d: 1}, {ladder: fine, d: 1}}, calls: change, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 4},
		{name: "the key of the new ladder first", keys: []stored{{ladder: fine, d: 1}, {ladder: coarse, d: 1}}, calls: change, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 4},
		{name: "two with both beside the former", keys: []stored{{ladder: coarse}, {ladder: fine}}, calls: [][][]int{formerOnly, onBoth, onBoth}, limits: [][2]int{{2, 2}}, n: three, clock: same, span: 2},
		{name: "two with both beside the new", keys: []stored{{ladder: coarse}, {ladder: fine}}, calls: [][][]int{onBoth, onBoth, newOnly}, limits: [][2]int{{2, 2}}, n: three, clock: same, span: 2},
		{name: "keys side by side", keys: []stored{{ladder: coarse, d: 1}, {ladder: coarse, d: 1}}, calls: [][][]int{formerOnly, {{0, 1}}, newOnly}, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 4},
		{name: "other ticket tiers", keys: []stored{{ladder: [][2]int{{4, 4}}, d: 1}, {ladder: [][2]int{{1, 4}, {2, 4}}, d: 1}}, calls: [][][]int{formerOnly, onBoth}, limits: [][2]int{{1, 4}}, n: pair, clock: same, span: 8},
		{name: "skew", keys: []stored{{ladder: coarse, eps: 1}, {ladder: fine, eps: 1}}, calls: change, eps: 1, limits: [][2]int{{1, 2}}, n: three, clock: apart, span: 5},
		{name: "another Skew", keys: []stored{{ladder: coarse, eps: 1, d: 1}, {ladder: coarse, d: 1}}, calls: change, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 4},
		{name: "another Settle", keys: []stored{{ladder: [][2]int{{4, 4}}}, {ladder: [][2]int{{4, 4}}, d: 3}}, calls: [][][]int{formerOnly, onBoth}, limits: [][2]int{{1, 4}}, n: pair, clock: same, span: 8},
		{name: "each key confirmed within its own Settle", keys: []stored{{ladder: coarse}, {ladder: coarse, d: 2}}, calls: change, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 4, ownSettle: true},
		{name: "faults", keys: []stored{{ladder: coarse}, {ladder: coarse}}, calls: [][][]int{onBoth, formerOnly, newOnly}, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 3, faults: 1},
		{name: "faults of all", keys: []stored{{ladder: coarse, d: 1}, {ladder: fine, d: 1}}, calls: [][][]int{formerOnly, onBoth}, limits: [][2]int{{1, 2}}, n: pair, clock: same, span: 4, faults: 2},
		{name: "refunds", keys: []stored{{ladder: coarse}, {ladder: coarse}}, calls: change, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 4, refund: true},
		{name: "refused, and taken back from one key only", keys: []stored{{ladder: coarse}, {ladder: fine}}, calls: change, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 4, keepsEarlier: true},
		{name: "a limit that the former cannot hold", keys: []stored{{ladder: coarse, limits: []int{0}}, {ladder: [][2]int{{2, 4}, {4, 4}}}}, calls: change, limits: [][2]int{{2, 2}, {1, 4}}, n: three, clock: same, span: 4},
		{name: "weights", keys: []stored{{ladder: coarse}, {ladder: fine}}, calls: change, limits: [][2]int{{2, 2}}, n: []int{1, 2, 1}, clock: same, span: 4},
		{name: "three ladders, one of them common", keys: []stored{{ladder: coarse}, {ladder: coarse}, {ladder: coarse}}, calls: [][][]int{formerOnly, onBoth, {{0}, {2}}}, limits: [][2]int{{2, 2}}, n: three, clock: same, span: 2},
		{name: "coarse covers", keys: []stored{{ladder: fine}, {ladder: coarse}}, calls: change, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 3, coarse: true},
	})
}

// Each rule of a change of ladder is needed.
func TestModelOfAChangeOfLadderFindsHoles(t *testing.T) {
	pair, three := []int{1, 1}, []int{1, 1, 1}
	same := []int{0, 0, 0}
	ladder := [][2]int{{2, 2}}
	keys := []stored{{ladder: ladder}, {ladder: ladder}}
	ends := model{keys: keys, calls: [][][]int{formerOnly, newOnly}, limits: [][2]int{{1, 2}}, n: pair, clock: same, span: 4}
	begins := model{keys: keys, calls: [][][]int{formerOnly, onBoth}, limits: [][2]int{{1, 2}}, n: pair, clock: same, span: 4}
	skew := ends
	skew.keys, skew.eps, skew.clock = []stored{{ladder: ladder, eps: 1}, {ladder: ladder, eps: 1}}, 1, []int{1, 0}
	change := model{keys: keys, calls: [][][]int{formerOnly, onBoth, newOnly}, limits: [][2]int{{1, 2}}, n: three, clock: same, span: 4}
	pairs := model{keys: []stored{{ladder: ladder}, {ladder: ladder}, {ladder: ladder}}, calls: [][][]int{{{0}, {1}}, {{1}, {2}}, {{0}, {2}}}, limits: [][2]int{{2, 2}}, n: three, clock: same, span: 1}
	wide := [][2]int{{4, 4}}
	settle := model{keys: []stored{{ladder: wide}, {ladder: wide, d: 3}}, calls: [][][]int{formerOnly, onBoth}, limits: [][2]int{{1, 4}}, n: pair, clock: same, span: 8}
	findHoles(t, []hole{
		{"a gap of exactly Per, clocks alike", ends, func(m *model) { m.gap = ptr(1) }},
		{"a gap of exactly Per + Skew", skew, func(m *model) { m.gap = ptr(2) }},
		{"three ladders in pairs", pairs, func(m *model) { m.pairwise = true }},
		{"the former dropped while a call with it alone waits", ends, func(m *model) { m.queued = []bool{true, false} }},
		{"the former dropped by a timer", begins, func(m *model) { m.timer = 3 }},
		{"judged in the new only", begins, func(m *model) { m.unjudged = ptr(0) }},
		{"judged in the former only", model{keys: keys, calls: [][][]int{newOnly, onBoth}, limits: [][2]int{{1, 2}}, n: pair, clock: same, span: 4},
			func(m *model) { m.unjudged = ptr(1) }},
		{"confirmed within the larger Settle", settle, func(m *model) { m.largestSettle = true }},
		{"clocks within the larger Skew", skew, func(m *model) {
			m.keys, m.calls = []stored{{ladder: ladder}, {ladder: ladder, eps: 1}}, [][][]int{formerOnly, onBoth}
		}},
		{"each key with its own label", model{keys: []stored{{ladder: [][2]int{{2, 4}}, d: 1}, {ladder: [][2]int{{2, 4}}, d: 1}}, calls: [][][]int{newOnly, onBoth}, limits: [][2]int{{1, 4}}, n: pair, clock: same, span: 6},
			func(m *model) { m.ownLabels = true }},
		{"a refund from both keys of a hit in one", change, func(m *model) { m.refund, m.refundsAll = true, true }},
	})
}

// A soft key is added to after the enforced keys have admitted. No window of the
// hits that it keeps has more than Max, and it is over only by hits that were
// admitted.
func TestModelOfSoftKeys(t *testing.T) {
	three, same := []int{1, 1, 1}, []int{0, 0, 0}
	ladder := [][2]int{{2, 2}}
	keys := []stored{{ladder: ladder, limits: []int{0}}, {ladder: ladder, limits: []int{1}, soft: true}}
	after := [][][]int{onBoth, onBoth, onBoth}
	allHold(t, []model{
		{name: "tighter than the enforced key", keys: keys, calls: after, limits: [][2]int{{2, 2}, {1, 2}}, n: three, clock: same, span: 3},
		{name: "as tight", keys: keys, calls: after, limits: [][2]int{{1, 2}, {1, 2}}, n: three, clock: same, span: 3},
		{name: "Settle", keys: []stored{{ladder: ladder, d: 1, limits: []int{0}}, {ladder: ladder, d: 1, limits: []int{1}, soft: true}}, calls: after[:2], limits: [][2]int{{2, 2}, {1, 2}}, n: three[:2], clock: same, span: 4},
		{name: "a longer window", keys: []stored{{ladder: ladder, limits: []int{0}}, {ladder: [][2]int{{4, 4}}, limits: []int{1}, soft: true}}, calls: after, limits: [][2]int{{1, 2}, {1, 4}}, n: three, clock: same, span: 3},
		{name: "faults", keys: keys, calls: after, limits: [][2]int{{2, 2}, {1, 2}}, n: three, clock: same, span: 2, faults: 1},
		{name: "refunds", keys: keys, calls: after, limits: [][2]int{{2, 2}, {1, 2}}, n: three, clock: same, span: 2, refund: true},
		{name: "a change of ladder", keys: []stored{{ladder: ladder, limits: []int{0}}, {ladder: ladder, limits: []int{0}}, {ladder: ladder, limits: []int{1}, soft: true}}, calls: [][][]int{{{0}, {2}}, {{0}, {1}, {2}}}, limits: [][2]int{{2, 2}, {1, 2}}, n: three[:2], clock: same, span: 4},
	})

	beside := model{keys: keys, calls: [][][]int{{{0, 1}}, {{0, 1}}, {{0, 1}}}, limits: [][2]int{{1, 2}, {1, 2}}, n: three, clock: same, span: 1}
	findHoles(t, []hole{
		{"a soft key beside the enforced one", beside, func(*model) {}},
		{"a refund of a hit that the soft key did not keep", beside, func(m *model) {
			m.calls, m.limits, m.refund, m.refundsAll = after, [][2]int{{3, 2}, {1, 2}}, true, true
		}},
	})
}
