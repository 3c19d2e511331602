package classic_test

import (
	"math/big"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// A model decides by the plainest rule whether n hits may happen at an instant,
// in microseconds, of a key's history, and nothing else. All other fields of a
// Verdict follow from the decisions for other n and other instants.
type model interface {
	can(at, n int64) bool
	hit(at, n int64)
}

// asked is a model that a denied call changes.
type asked interface{ deny(at int64) }

// setup configures a model: per in microseconds.
type setup struct {
	max, per, room int64
}

func (s setup) window() time.Duration { return time.Duration(s.per) * time.Microsecond }

// modelOf is the model of a kind. While clocks do not go back, all limiters with a
// burst have the rule of the leaky meter.
func modelOf(k kind, s setup, forward bool) model {
	name := k.name
	if k.shape == bursting && forward {
		name = "leaky-meter"
	}
	switch name {
	case "fixed-window":
		return &spanModel{setup: s, span: func(at int64) (from, to int64) {
			from = floor(at, s.per) * s.per
			return from, from + s.per - 1
		}}
	case "sliding-log": // no hit is ever dropped
		return &spanModel{setup: s, span: func(at int64) (from, to int64) { return at - s.per, afterAll }}
	case "textbook-tiers": // cut to whole seconds, the last of which holds the instant
		return &spanModel{setup: s, span: func(at int64) (from, to int64) {
			end := (floor(at, 1e6) + 1) * 1e6
			return end - s.per/1e6*1e6, end - 1
		}}
	case "fixed-slots":
		return &slotModel{setup: s}
	case "sliding-counter":
		return &counterModel{setup: s, counts: map[int64]int64{}}
	case "sliding-decay":
		return &decayModel{setup: s, level: new(big.Rat)}
	case "token-bucket", "leaky-meter": // tokens are the room that is left
		return &meterModel{setup: s, level: new(big.Rat), fresh: true}
	case "gcra", "token-shaper":
		return &arrivalModel{setup: s}
	case "leaky-queue":
		return &queueModel{setup: s}
	case "first-hit-window":
		return &firstModel{setup: s}
	case "request-decay":
		return &wholeModel{setup: s}
	}
	panic("no model of " + k.name)
}

// afterAll is after all calls, in microseconds.
const afterAll = 1 << 53

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func frac(a, b int64) *big.Rat { return big.NewRat(a, b) }

func plus(a, b *big.Rat) *big.Rat  { return new(big.Rat).Add(a, b) }
func minus(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

// floor is a/b rounded down.
func floor(a, b int64) int64 { return tiers.Index(a, time.Duration(b)) }

// spanModel: every hit of the span of an instant.
type spanModel struct {
	setup
	log  oracle.Log
	span func(at int64) (from, to int64)
}

func (m *spanModel) can(at, n int64) bool {
	from, to := m.span(at)
	return m.log.Count(time.UnixMicro(from), time.UnixMicro(to))+n <= m.max
}

func (m *spanModel) hit(at, n int64) { m.log.Add(time.UnixMicro(at), n) }

// slotModel: three counts with their windows; the newer window wins.
type slotModel struct {
	setup
	window, count [3]int64
	used          [3]bool
}

func (m *slotModel) find(at int64) (slot int, window, count int64) {
	window = floor(at, m.per)
	slot = int(window - 3*floor(window, 3))
	if m.used[slot] && m.window[slot] >= window {
		return slot, m.window[slot], m.count[slot]
	}
	return slot, window, 0
}

func (m *slotModel) can(at, n int64) bool {
	_, _, count := m.find(at)
	return count+n <= m.max
}

func (m *slotModel) hit(at, n int64) {
	slot, window, count := m.find(at)
	m.used[slot], m.window[slot], m.count[slot] = true, window, count+n
}

// counterModel: the former window's share by overlap.
type counterModel struct {
	setup
	counts map[int64]int64
	newest int64
	used   bool
}

func (m *counterModel) locate(at int64) (window, elapsed int64) {
	window = floor(at, m.per)
	if m.used && m.newest > window {
		return m.newest, 0
	}
	return window, at - window*m.per
}

func (m *counterModel) can(at, n int64) bool {
	window, elapsed := m.locate(at)
	estimate := plus(rat(m.counts[window]+n), times(rat(m.counts[window-1]), frac(m.per-elapsed, m.per)))
	return estimate.Cmp(rat(m.max)) <= 0
}

func (m *counterModel) hit(at, n int64) {
	window, _ := m.locate(at)
	m.counts[window] += n
	m.newest, m.used = window, true
}

// decayModel: a line from what the count was at the last hit to nothing.
type decayModel struct {
	setup
	level *big.Rat
	at    int64
	used  bool
}

func (m *decayModel) now(at int64) *big.Rat {
	passed := max(0, at-m.at)
	if !m.used || passed >= m.per {
		return new(big.Rat)
	}
	return times(m.level, frac(m.per-passed, m.per))
}

// up is r, rounded up to 1024ths.
func up(r *big.Rat) *big.Rat {
	r = times(r, rat(1024))
	whole := new(big.Int).Div(r.Num(), r.Denom())
	if !r.IsInt() {
		whole.Add(whole, big.NewInt(1))
	}
	return new(big.Rat).SetFrac(whole, big.NewInt(1024))
}

func (m *decayModel) can(at, n int64) bool { return plus(up(m.now(at)), rat(n)).Cmp(rat(m.max)) <= 0 }

func (m *decayModel) hit(at, n int64) {
	m.level = plus(up(m.now(at)), rat(n))
	if !m.used || at > m.at {
		m.at, m.used = at, true
	}
}

// meterModel: units, which drain at max/per.
type meterModel struct {
	setup
	level *big.Rat
	at    int64
	fresh bool
}

func (m *meterModel) now(at int64) *big.Rat {
	l := minus(m.level, times(rat(max(0, at-m.at)), frac(m.max, m.per)))
	if m.fresh || l.Sign() < 0 {
		return new(big.Rat)
	}
	return l
}

func (m *meterModel) can(at, n int64) bool { return plus(m.now(at), rat(n)).Cmp(rat(m.room)) <= 0 }

func (m *meterModel) hit(at, n int64) {
	l := plus(m.now(at), rat(n))
	if m.fresh || at > m.at {
		m.at = at
	}
	m.level, m.fresh = l, false
}

// arrivalModel: when the next hit would be due if hits came at max/per.
type arrivalModel struct {
	setup
	due *big.Rat
}

func (m *arrivalModel) next(at, n int64) *big.Rat {
	from := rat(at)
	if m.due != nil && m.due.Cmp(from) > 0 {
		from = m.due
	}
	return plus(from, times(rat(n), frac(m.per, m.max)))
}

func (m *arrivalModel) can(at, n int64) bool {
	last := plus(rat(at), times(rat(m.room), frac(m.per, m.max)))
	return m.next(at, n).Cmp(last) <= 0
}

func (m *arrivalModel) hit(at, n int64) { m.due = m.next(at, n) }

// queueModel: when the next departure is free.
type queueModel struct {
	setup
	free *big.Rat
}

func (m *queueModel) can(at, n int64) bool {
	return n <= m.max && (m.free == nil || m.free.Cmp(rat(at)) <= 0)
}

func (m *queueModel) hit(at, n int64) { m.free = plus(rat(at), times(rat(n), frac(m.per, m.max))) }

// firstModel: a count since a first hit.
type firstModel struct {
	setup
	first, count int64
	used         bool
}

func (m *firstModel) over(at int64) bool { return !m.used || at > m.first+m.per }

func (m *firstModel) can(at, n int64) bool {
	if m.over(at) {
		return n <= m.max
	}
	return m.count+n <= m.max
}

func (m *firstModel) hit(at, n int64) {
	if m.over(at) {
		m.first, m.count, m.used = at, 0, true
	}
	m.count += n
}

// wholeModel: whole units, less the whole units of the time since the last request.
type wholeModel struct {
	setup
	count, at int64
	used      bool
}

func (m *wholeModel) now(at int64) int64 {
	if !m.used {
		return 0
	}
	gone := times(rat(max(0, at-m.at)), frac(m.max, m.per))
	return max(0, m.count-new(big.Int).Quo(gone.Num(), gone.Denom()).Int64())
}

func (m *wholeModel) can(at, n int64) bool { return m.now(at)+n <= m.max }

func (m *wholeModel) hit(at, n int64) {
	if !m.used {
		m.at, m.used = at, true
	}
	m.deny(at)
	m.count += n
}

func (m *wholeModel) deny(at int64) {
	if m.used {
		m.count, m.at = m.now(at), max(m.at, at)
	}
}
