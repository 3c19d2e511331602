//go:build !race

package ticket

import "testing"

// A caller of the model may take up to n hits: it adds n, counts, keeps as many as have
// room, at least one, and takes the others back before it is admitted. So does a call
// of several callers, of which one may leave later and give its hit back while the
// others stay.

// upToPart is the part of a caller that takes up to n.
type upToPart struct {
	part  [maxTiers]int8 // the hits added to each tier
	kept  int8           // the hits that have had room in all stages until now
	twice bool           // the second taking back of a hole was made
	left  bool           // a hit was given back
}

// upToHoles are holes of callers that take up to n.
type upToHoles struct {
	keepsAll    bool // the rest is taken back, and all n are admitted
	keepsEarly  bool // the part is admitted before the rest is taken back
	restUnread  bool // a part is kept by the first trip, without the unsettled buckets
	lessTwice   bool // an unanswered taking back of the rest is sent again
	refundsRest bool // a refund takes back all that was added
	leavesTwice bool // the hit of a caller that has left is given back twice
	keepsMore   bool // the room for the part is counted without the hits of calls that have not ended
}

func (m *model) takesUpTo(i int) bool { return m.upTo != nil && m.upTo[i] }

// spare are the hits that caller i can do without.
func (m *model) spare(i int, me *caller) int {
	if !m.takesUpTo(i) {
		return 0
	}
	return int(m.added(i, me)) - 1
}

// added are the hits that caller i adds in its stage.
func (m *model) added(i int, me *caller) int8 {
	if m.takesUpTo(i) && me.kept > 0 {
		return me.kept
	}
	return int8(m.n[i])
}

// send sends the additions of the stage.
func (m *model) send(i int, me *caller) {
	all := m.stages[i][me.stage].all
	me.sent |= all
	for tier := range m.ladder {
		if all&(1<<tier) != 0 && m.takesUpTo(i) {
			me.part[tier] = m.added(i, me)
		}
	}
}

// hits are the hits that caller i adds to a tier.
func (m *model) hits(i int, me *caller, tier int) int8 {
	if m.takesUpTo(i) {
		return me.part[tier]
	}
	return int8(m.n[i])
}

// keeps are the hits that caller i has if it is admitted.
func (m *model) keeps(i int, me *caller) int8 {
	if m.takesUpTo(i) && !m.keepsAll {
		return me.kept
	}
	return int8(m.n[i])
}

// mayHold are the hits that caller j may have in the store from now on.
func (m *model) mayHold(me *caller, j int) int8 {
	if m.takesUpTo(j) && me.told() && !m.leaves {
		return me.kept
	}
	return int8(m.n[j])
}

// told reports whether the caller was told that it is admitted.
func (me *caller) told() bool { return me.phase == admitted || me.phase == leaving }

// partly reports whether caller i keeps a part alone, by what it has read until now.
func (m *model) partly(i int, me *caller) bool {
	judges, part := m.stages[i][me.stage].judges, false
	for k := range judges {
		count, most := int(m.count(&judges[k], me)), m.limits[judges[k].limit][0]
		if count-m.spare(i, me) > most {
			return false
		}
		part = part || count > most
	}
	return part
}

// keep notes how many hits of a stage that fits have room, and reports whether it is
// fewer than can be.
func (m *model) keep(i int, me *caller, counted *[maxWindows]int8) (tooFew bool) {
	added := m.added(i, me)
	kept, could := added, added
	for _, j := range m.stages[i][me.stage].judges {
		most := int8(m.limits[j.limit][0])
		count := counted[j.limit] - added // of other callers
		if m.keepsMore {
			count = min(count, me.sum[j.limit]+me.oldest[j.limit])
		}
		kept, could = min(kept, most-count), min(could, most-me.could[j.limit])
	}
	me.kept = max(1, kept)
	return m.strict() && !me.remembered && me.kept < could
}

// lessens begins to take the rest back, if there is one.
func (m *model) lessens(i int, me *caller) bool {
	if !m.takesUpTo(i) {
		return false
	}
	for tier := range m.ladder {
		if me.counted&(1<<tier) != 0 && me.part[tier] > me.kept {
			me.back |= 1 << tier
		}
	}
	if me.back == 0 {
		return false
	}
	if me.phase = lessening; m.keepsEarly {
		me.phase = leaving
	}
	return true
}

// undone are the hits that caller i takes back from a tier now.
func (m *model) undone(i int, me *caller, tier int) int8 {
	switch {
	case !m.takesUpTo(i):
		return int8(m.n[i])
	case me.phase == lessening, me.phase == leaving && !me.left:
		return me.part[tier] - me.kept
	case me.phase == leaving:
		return 1
	case me.phase == refunding && !m.refundsRest:
		return me.kept
	}
	return me.part[tier]
}

// settle ends the taking back of a caller.
func (m *model) settle(me *caller) {
	switch me.phase {
	case takingBack, refunding:
		me.phase = denied
		return
	case lessening:
		if m.lessTwice && !me.twice {
			me.twice, me.back = true, me.counted
			return
		}
	case leaving:
		if m.leavesTwice && me.left && !me.twice {
			me.twice, me.back = true, me.counted
			return
		}
	}
	if me.phase = admitted; me.left && me.kept == 0 {
		me.phase = denied
	}
}

func (m *model) mayLeave(i int, me *caller) bool {
	return m.leaves && m.takesUpTo(i) && me.phase == admitted && !me.left
}

// leave begins to give a hit back.
func (m *model) leave(me *caller) {
	me.phase, me.back, me.left = leaving, me.counted, true
	me.kept--
}

// reduce drops what no later step of a caller that is not admitted depends on.
func (p *upToPart) reduce() { p.twice, p.left = false, false }

func TestModelUpTo(t *testing.T) {
	pair, three := []int{2, 2}, []int{2, 1, 2}
	both := []bool{true, true, true}
	allHold(t, []model{
		{name: "one tier", ladder: [][2]int{{3, 3}}, limits: [][2]int{{3, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7, upTo: both},
		{name: "two tiers", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{3, 4}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 6, upTo: both, coarse: true},
		{name: "more than Max", ladder: [][2]int{{1, 4}, {2, 4}}, limits: [][2]int{{2, 4}}, eps: 0, d: 1, n: []int{3, 2}, clock: []int{0, 0}, span: 6, upTo: both, coarse: true},
		{name: "next to a call for one", ladder: [][2]int{{2, 2}}, limits: [][2]int{{3, 2}}, eps: 1, d: 1, n: three, clock: []int{0, 1, 0}, span: 3, upTo: []bool{true, false, true}},
		{name: "window wider than the tiers", ladder: [][2]int{{1, 5}, {3, 5}}, limits: [][2]int{{3, 5}}, eps: 1, d: 1, n: pair, clock: []int{1, 0}, span: 8, upTo: []bool{false, true}, coarse: true},
		{name: "two limits", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{2, 2}, {3, 4}}, eps: 0, d: 1, n: pair, clock: []int{0, 0}, span: 6, upTo: both, coarse: true},
		{name: "a limit more than the other", ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{1, 2}, {3, 4}}, asks: [][]int{{1}, {0, 1}}, eps: 1, d: 0, n: pair, clock: []int{0, 1}, span: 6, upTo: both},
		{name: "faults", ladder: [][2]int{{2, 3}}, limits: [][2]int{{3, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 5, faults: 2, upTo: both},
		{name: "refunds", ladder: [][2]int{{2, 3}}, limits: [][2]int{{3, 3}}, eps: 1, d: 0, n: three, clock: []int{0, 1, 0}, span: 2, refund: true, upTo: []bool{true, false, true}},
		{name: "ordered", ladder: [][2]int{{3, 3}}, limits: [][2]int{{3, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7, upTo: both, ordered: true},
		{name: "memory", ladder: [][2]int{{1, 4}, {2, 4}}, limits: [][2]int{{2, 4}}, eps: 0, d: 0, n: three, clock: []int{0, 0, 0}, span: 2, upTo: both, cache: []bool{true, true, false}, coarse: true},
		{name: "expiry", ladder: [][2]int{{2, 3}}, limits: [][2]int{{3, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 7, expiry: true, upTo: both},
		{name: "two keys", keys: []stored{{ladder: [][2]int{{2, 2}}, d: 1}, {ladder: [][2]int{{1, 2}, {2, 2}}, d: 1}}, calls: [][][]int{oneByOne, onSecond}, limits: [][2]int{{3, 2}}, n: pair, clock: []int{0, 0}, span: 4, upTo: both},

		// Callers that go together: two processes, and members that leave.
		{name: "two batches", ladder: [][2]int{{2, 3}}, limits: [][2]int{{3, 3}}, eps: 1, d: 1, n: []int{3, 2}, clock: []int{0, 1}, span: 5, upTo: both, leaves: true},
		{name: "two batches and a lone caller", ladder: [][2]int{{2, 2}}, limits: [][2]int{{2, 2}}, eps: 0, d: 1, n: three, clock: []int{0, 0, 0}, span: 2, upTo: []bool{true, false, true}, leaves: true},
		{name: "batches, coarse", ladder: [][2]int{{1, 4}, {2, 4}}, limits: [][2]int{{2, 4}}, eps: 0, d: 1, n: []int{3, 2}, clock: []int{0, 0}, span: 6, upTo: both, leaves: true, coarse: true},
		{name: "batches, faults and refunds", ladder: [][2]int{{2, 3}}, limits: [][2]int{{3, 3}}, eps: 1, d: 0, n: pair, clock: []int{0, 1}, span: 4, upTo: both, leaves: true, refund: true, faults: 1},

		// An estimate that is settled for less gives back as a call of which one has left.
		{name: "settled, crashes", ladder: [][2]int{{1, 3}, {3, 3}}, limits: [][2]int{{3, 3}}, eps: 1, d: 1, n: pair, clock: []int{0, 1}, span: 5, upTo: both, leaves: true, faults: 2},
	})
}

var (
	oneByOne = [][]int{{0}, {1}}
	onSecond = [][]int{{1}}
)

func TestModelFindsHolesUpTo(t *testing.T) {
	both := []bool{true, true, true}
	two := model{ladder: [][2]int{{2, 4}, {4, 4}}, limits: [][2]int{{3, 4}}, eps: 1, d: 1, n: []int{2, 2}, clock: []int{0, 1}, span: 8, upTo: both}
	three := model{ladder: [][2]int{{2, 2}}, limits: [][2]int{{2, 2}}, eps: 0, d: 0, n: []int{1, 2, 2}, clock: []int{0, 0, 0}, span: 1, upTo: both}
	findHoles(t, []hole{
		{"the rest is taken back and admitted", two, func(m *model) { m.keepsAll = true }},
		{"a part admitted before the rest is taken back", model{ladder: [][2]int{{2, 2}}, limits: [][2]int{{2, 2}}, eps: 0, d: 0, n: []int{1, 2, 1}, clock: []int{0, 0, 0}, span: 1, upTo: both, coarse: true, refund: true},
			func(m *model) { m.keepsEarly = true }},
		{"a part kept without the unsettled buckets", two, func(m *model) { m.n, m.restUnread = []int{4, 2}, true }},
		{"a part by counts without calls under way", two, func(m *model) { m.keepsMore = true }},
		{"the rest taken back twice", three, func(m *model) { m.lessTwice = true }},
		{"a refund of all that was added", three, func(m *model) { m.refund, m.refundsRest = true, true }},
		{"a refund after a settlement", three, func(m *model) {
			m.limits, m.n, m.leaves, m.refund, m.refundsRest = [][2]int{{3, 2}}, []int{2, 2, 2}, true, true, true
		}},
		{"a member that leaves gives back twice", three, func(m *model) { m.leaves, m.leavesTwice = true, true }},
	})
}
