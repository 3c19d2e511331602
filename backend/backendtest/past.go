package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/tiers"
)

// past are hits that are counted long after they happened.
func past(s *subject) {
	for i, l := range []tiers.Ladder{dayLadder, parse.Ladder("1s:1h, 1m:1d, 1h:1d"), parse.Ladder("1s:10m, 1m:1h, 10m:1d")} {
		p := &additions{subject: s, ladder: l, now: noon.AddDate(100, 0, 30*i)} // later than all labels of other cases
		p.counter = s.counter(fmt.Sprint("a", i), counter.Config{Ladder: l, Skew: time.Second, Settle: enough, Patience: enough, Now: func() time.Time { return p.now }})
		for _, f := range []func(){p.order, p.edge, p.wait} {
			during(f, "ladder %s", l)
		}
	}
}

// additions are AddAt calls of a single caller.
type additions struct {
	*subject
	counter *counter.Counter
	ladder  tiers.Ladder
	now     time.Time
}

func (p *additions) add(key counter.Key, n int64, back time.Duration) {
	mustf(p.counter.AddAt(context.Background(), key, n, p.now.Add(-back)), "%d hits of %s ago", n, back)
}

// counts holds High of windows to what is wanted.
func (p *additions) counts(key counter.Key, want map[time.Duration]int64) {
	for window, n := range want {
		got := value(p.counter.Count(context.Background(), key, window))
		if got.High != n || got.Low > n {
			failf("%s: the window of %s counts %+v, want %d", key.Feature, window, got, n)
		}
	}
}

// order adds out of order, among present hits.
func (p *additions) order() {
	key := counter.Key{Event: "e", Feature: "order"}
	for _, a := range []struct {
		n    int64
		back time.Duration
	}{{1, 0}, {2, 10 * time.Minute}, {4, 5 * time.Hour}, {8, 5*time.Hour - time.Minute}, {16, time.Minute}, {32, 10 * time.Minute}, {64, 20 * time.Hour}, {128, -time.Second}} {
		p.add(key, a.n, a.back)
	}
	must(p.counter.Add(context.Background(), key, 256))
	p.counts(key, map[time.Duration]int64{
		30 * time.Second: 385, 5 * time.Minute: 401, time.Hour: 435, 4 * time.Hour: 435, 6 * time.Hour: 447, 24 * time.Hour: 511,
	})
	// Given back, whatever came meanwhile.
	must(p.counter.RefundAt(context.Background(), key, 4, p.now.Add(-5*time.Hour)))
	must(p.counter.RefundAt(context.Background(), key, 32, p.now.Add(-10*time.Minute)))
	p.counts(key, map[time.Duration]int64{5 * time.Minute: 401, time.Hour: 403, 6 * time.Hour: 411, 24 * time.Hour: 475})
}

// wait has a Take denied by hits of the past, which tell how long to wait.
func (p *additions) wait() {
	for _, back := range []time.Duration{10 * time.Minute, 5 * time.Hour} {
		for _, per := range []time.Duration{time.Hour, 24 * time.Hour} {
			p.now = p.now.AddDate(0, 0, 3) // an AddAt does not come before what later labels have dropped
			during(func() { p.denied(back, per) }, "a present hit and 2 of %s ago, under 3/%s", back, per)
		}
	}
}

func (p *additions) denied(back, per time.Duration) {
	began := p.now
	key := counter.Key{Event: "e", Feature: fmt.Sprint("wait ", back, per)}
	take := func(at time.Time) counter.Verdict {
		p.now = at
		return value(p.counter.Take(context.Background(), key, 1, counter.Limits{{Max: 3, Per: per}}))
	}
	if !take(began).Allowed {
		failf("a fresh key is denied")
	}
	p.add(key, 2, back)
	v := take(began)
	if v.Allowed != (back > per) {
		failf("allowed %v", v.Allowed)
	}
	if v.Allowed {
		return
	}
	fine := value(p.ladder.Finest(per))
	judge := oracle.Judge{Ladder: p.ladder, Skew: time.Second}
	if p.taker == nil {
		judge.Settle = enough
	}
	width := p.ladder.At(fine).Width
	hit := tiers.Bucket{Width: width, Index: tiers.Index(began.Add(-back).UnixNano(), width)}
	if want := hit.End().Add(judge.Reach(per) + time.Second).Sub(began); v.RetryAfter != want {
		failf("retry after %s, want %s", v.RetryAfter, want)
	}
	if take(began.Add(v.RetryAfter - time.Second - 1)).Allowed {
		failf("allowed a moment too early")
	}
	if !take(began.Add(v.RetryAfter)).Allowed {
		failf("denied after the wait that was told")
	}
}

// edge refuses what nothing is kept for, and counts all that something is kept for.
func (p *additions) edge() {
	key := counter.Key{Event: "e", Feature: "edge"}
	keep := p.ladder.At(p.ladder.Len() - 1).Keep
	for i := range p.ladder.Len() {
		t := p.ladder.At(i)
		p.add(key, 1, t.Keep)
	}
	p.counts(key, map[time.Duration]int64{keep: int64(p.ladder.Len())})
	for _, back := range []time.Duration{2*keep + 4*enough, 1000 * keep} {
		if err := p.counter.AddAt(context.Background(), key, 1, p.now.Add(-back)); !errors.Is(err, counter.ErrTooOld) || errors.Is(err, counter.ErrStore) {
			failf("a hit of %s ago, where a day is kept: %v, want ErrTooOld and not ErrStore", back, err)
		}
	}
	if err := p.counter.AddAt(context.Background(), key, 1, p.now.Add(time.Second+1)); err == nil || errors.Is(err, counter.ErrTooOld) || errors.Is(err, counter.ErrStore) {
		failf("a hit of the future: %v, want an error of the caller", err)
	}
	p.counts(key, map[time.Duration]int64{keep: int64(p.ladder.Len())})
}
