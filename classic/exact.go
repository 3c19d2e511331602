package classic

import (
	"math"
	"math/bits"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Instants are microseconds since the Unix epoch: from 1700 to 2250 instants
// are below 2^53, so the floating point of a script counts them exactly. A
// window is shorter than 2^45 microseconds, a number of hits below 2^35.

func micros(d time.Duration) int64 { return tiers.Index(int64(d), time.Microsecond) }

// microsUp is d in microseconds, rounded up.
func microsUp(d time.Duration) int64 { return -tiers.Index(-int64(d), time.Microsecond) }

// duration is us microseconds, at most just below [counter.Never].
func duration(us int64) time.Duration {
	return time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond
}

// mulDiv is a*b/q in whole numbers, and the rest. A result beyond 2^63 becomes
// 2^63 - 1. classic.lua has the same function.
func mulDiv(a, b, q int64) (whole, rest int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(q) {
		return math.MaxInt64, 0
	}
	w, r := bits.Div64(hi, lo, uint64(q))
	return int64(min(w, math.MaxInt64)), int64(r)
}

// mulDivUp is a*b/q, rounded up.
func mulDivUp(a, b, q int64) int64 {
	whole, rest := mulDiv(a, b, q)
	if rest > 0 {
		whole++
	}
	return whole
}

// ceilDiv is a/q rounded up, whatever the sign of a.
func ceilDiv(a, q int64) int64 { return -tiers.Index(-a, time.Duration(q)) }

// rate is max hits in per microseconds. A hit takes per/max of them, a number
// that is seldom whole: 3 in a second are 333,333 1/3 apart. Rounded, a
// limiter would be off by up to a third at 700,000 a second; so what is beyond
// the whole is kept as a number of max-ths.
type rate struct{ max, per int64 }

// moment is an instant or a span of us + part/max microseconds, 0 <= part < max.
type moment struct{ us, part int64 }

func rateOf(l counter.Limit) rate { return rate{l.Max, micros(l.Per)} }

// time is the time of n hits at the rate.
func (r rate) time(n int64) moment {
	us, part := mulDiv(n, r.per, r.max)
	return moment{us, part}
}

// hits is the number of whole hits in the time m; 0 if m is below zero.
func (r rate) hits(m moment) int64 {
	if m.us < 0 {
		return 0
	}
	whole, rest := mulDiv(m.us, r.max, r.per)
	return whole + (rest+m.part)/r.per
}

func (r rate) add(a, b moment) moment {
	m := moment{a.us + b.us, a.part + b.part}
	if m.part >= r.max {
		m.us, m.part = m.us+1, m.part-r.max
	}
	return m
}

func (r rate) sub(a, b moment) moment {
	m := moment{a.us - b.us, a.part - b.part}
	if m.part < 0 {
		m.us, m.part = m.us-1, m.part+r.max
	}
	return m
}

// later is the moment with the stored at and part, or now if now is later. A
// part stored under a larger max is cut: less than a microsecond.
func (r rate) later(now, at, part int64) moment {
	if at < now {
		return moment{now, 0}
	}
	return moment{at, min(part, r.max-1)}
}

func (m moment) after(o moment) bool {
	return m.us > o.us || m.us == o.us && m.part > o.part
}

func (m moment) ceil() int64 {
	if m.part > 0 {
		return m.us + 1
	}
	return m.us
}
