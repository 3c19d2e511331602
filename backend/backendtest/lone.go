package backendtest

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// lone has a caller without company use up a limit, at phases all around the end of
// a bucket of each tier. The caller is denied, comes back a moment too early, and
// then when its RetryAfter is over.
func lone(s *subject) {
	for i, l := range []*loneCaller{
		{limits: counter.MustLimits("5/s"), n: 1, apart: 10 * time.Millisecond},
		{limits: counter.MustLimits("5/10s"), n: 1, apart: 10 * time.Millisecond},
		{limits: counter.MustLimits("5/10s"), n: 1, apart: 700 * time.Millisecond},
		{limits: counter.MustLimits("5/m"), n: 1, apart: 100 * time.Millisecond},
		{limits: counter.MustLimits("10/h"), n: 1, apart: 10 * time.Millisecond},
		{limits: counter.MustLimits("10/h"), n: 2, apart: 7 * time.Minute},
		{limits: counter.MustLimits("100/d"), n: 25, apart: 10 * time.Millisecond},
		{limits: counter.MustLimits("3/m, 100/d"), n: 1, apart: 10 * time.Millisecond},
	} {
		// Items end by the server's clock, which may pass faster than the caller's.
		var rungs []tiers.Tier
		for _, t := range l.limits.Ladder().Tiers() {
			rungs = append(rungs, tiers.Tier{Width: t.Width, Keep: max(t.Keep, time.Minute)})
		}
		ladder := value(tiers.New(rungs...))
		l.now = noon
		l.counter = s.counter(fmt.Sprint("w", i), counter.Config{Ladder: ladder, Skew: loneSkew, Patience: enough, Now: l.clock})
		for _, t := range ladder.Tiers() {
			for phase := -time.Second; phase <= time.Second; phase += 90 * time.Millisecond * time.Duration(s.thrift*thrift()) {
				l.now = l.now.Add(2*l.limits[0].Per + 5*time.Second).Truncate(t.Width).Add(t.Width + phase)
				during(func() { l.round() }, "%s by %d each %s, the first at %s", l.limits, l.n, l.apart, l.began.Format("15:04:05.000"))
			}
		}
	}
}

const loneSkew = 100 * time.Millisecond

// loneCaller is the only caller of its keys.
type loneCaller struct {
	counter *counter.Counter
	limits  counter.Limits
	n       int64         // of each call
	apart   time.Duration // the calls
	now     time.Time
	began   time.Time // of the round
}

// clock is a clock that moves on with each reading, as clocks do.
func (l *loneCaller) clock() time.Time {
	l.now = l.now.Add(time.Microsecond)
	return l.now
}

func (l *loneCaller) round() {
	l.began = l.now
	key := counter.Key{Event: "lone", Feature: l.began.Format(time.RFC3339Nano)}
	take := func() (counter.Verdict, error) { return l.counter.Take(context.Background(), key, l.n, l.limits) }
	var last time.Time // the latest moment that the first hit may be labelled
	for room := l.limits[0].Max; room > 0; room -= l.n {
		if v, err := take(); err != nil || !v.Allowed {
			failf("%d places are free: allowed %v, %w", room, v.Allowed, err)
		}
		if last.IsZero() {
			last = l.now
		}
		l.now = l.now.Add(l.apart)
	}
	v, err := take()
	if err != nil || v.Allowed {
		failf("no place is free: allowed %v, %w", v.Allowed, err)
	}
	told := l.now.Add(v.RetryAfter)
	if least := last.Add(l.limits[0].Per); told.Before(least) {
		failf("retry after %s, which is %s before the first hit leaves", v.RetryAfter, least.Sub(told))
	}
	for _, early := range []time.Duration{2*loneSkew + time.Millisecond, 0} {
		l.now = told.Add(-early)
		if v, err = take(); err != nil || v.Allowed != (early == 0) {
			failf("%s before the time that was told: allowed %v, retry after %s, %w", early, v.Allowed, v.RetryAfter, err)
		}
	}
}
