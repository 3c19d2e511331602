package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// past are hits that are counted long after they happened.
func past(s *subject) error {
	for i, l := range []tiers.Ladder{dayLadder, mustLadder("1s:1h, 1m:1d, 1h:1d"), mustLadder("1s:10m, 1m:1h, 10m:1d")} {
		p := &additions{subject: s, ladder: l, now: noon.AddDate(100, 0, 30*i)} // later than all labels of other cases
		var err error
		if p.counter, err = s.counter(fmt.Sprint("a", i), counter.Config{Ladder: l, Skew: time.Second, Settle: enough, Patience: enough, Now: func() time.Time { return p.now }}); err != nil {
			return err
		}
		for _, f := range []func() error{p.order, p.edge, p.wait} {
			if err := f(); err != nil {
				return fmt.Errorf("ladder %s: %w", l, err)
			}
		}
	}
	return nil
}

// additions are AddAt calls of a single caller.
type additions struct {
	*subject
	counter *counter.Counter
	ladder  tiers.Ladder
	now     time.Time
}

func (p *additions) add(key counter.Key, n int64, back time.Duration) error {
	if err := p.counter.AddAt(context.Background(), key, n, p.now.Add(-back)); err != nil {
		return fmt.Errorf("%d hits of %s ago: %w", n, back, err)
	}
	return nil
}

// counts holds High of windows to what is wanted.
func (p *additions) counts(key counter.Key, want map[time.Duration]int64) error {
	for window, n := range want {
		got, err := p.counter.Count(context.Background(), key, window)
		if err != nil {
			return err
		}
		if got.High != n || got.Low > n {
			return fmt.Errorf("%s: the window of %s counts %+v, want %d", key.Feature, window, got, n)
		}
	}
	return nil
}

// order adds out of order, among present hits.
func (p *additions) order() error {
	key := counter.Key{Event: "e", Feature: "order"}
	for _, a := range []struct {
		n    int64
		back time.Duration
	}{{1, 0}, {2, 10 * time.Minute}, {4, 5 * time.Hour}, {8, 5*time.Hour - time.Minute}, {16, time.Minute}, {32, 10 * time.Minute}, {64, 20 * time.Hour}, {128, -time.Second}} {
		if err := p.add(key, a.n, a.back); err != nil {
			return err
		}
	}
	if err := p.counter.Add(context.Background(), key, 256); err != nil {
		return err
	}
	if err := p.counts(key, map[time.Duration]int64{
		30 * time.Second: 385, 5 * time.Minute: 401, time.Hour: 435, 4 * time.Hour: 435, 6 * time.Hour: 447, 24 * time.Hour: 511,
	}); err != nil {
		return err
	}
	// Given back, whatever came meanwhile.
	if err := p.counter.RefundAt(context.Background(), key, 4, p.now.Add(-5*time.Hour)); err != nil {
		return err
	}
	if err := p.counter.RefundAt(context.Background(), key, 32, p.now.Add(-10*time.Minute)); err != nil {
		return err
	}
	return p.counts(key, map[time.Duration]int64{5 * time.Minute: 401, time.Hour: 403, 6 * time.Hour: 411, 24 * time.Hour: 475})
}

// wait has a Take denied by hits of the past, which tell how long to wait.
func (p *additions) wait() error {
	for _, back := range []time.Duration{10 * time.Minute, 5 * time.Hour} {
		for _, per := range []time.Duration{time.Hour, 24 * time.Hour} {
			p.now = p.now.AddDate(0, 0, 3) // an AddAt does not come before what later labels have dropped
			if err := p.denied(back, per); err != nil {
				return fmt.Errorf("a present hit and 2 of %s ago, under 3/%s: %w", back, per, err)
			}
		}
	}
	return nil
}

func (p *additions) denied(back, per time.Duration) error {
	began := p.now
	key := counter.Key{Event: "e", Feature: fmt.Sprint("wait ", back, per)}
	take := func(at time.Time) (counter.Verdict, error) {
		p.now = at
		return p.counter.Take(context.Background(), key, 1, counter.Limits{{Max: 3, Per: per}})
	}
	if v, err := take(began); err != nil || !v.Allowed {
		return fmt.Errorf("a fresh key: allowed %v, %w", v.Allowed, err)
	}
	if err := p.add(key, 2, back); err != nil {
		return err
	}
	v, err := take(began)
	if err != nil || v.Allowed != (back > per) {
		return fmt.Errorf("allowed %v, %w", v.Allowed, err)
	}
	if v.Allowed {
		return nil
	}
	fine, err := p.ladder.Finest(per)
	if err != nil {
		return err
	}
	judge := oracle.Judge{Ladder: p.ladder, Skew: time.Second}
	if p.taker == nil {
		judge.Settle = enough
	}
	width := p.ladder.At(fine).Width
	hit := tiers.Bucket{Width: width, Index: tiers.Index(began.Add(-back).UnixNano(), width)}
	if want := hit.End().Add(judge.Reach(per) + time.Second).Sub(began); v.RetryAfter != want {
		return fmt.Errorf("retry after %s, want %s", v.RetryAfter, want)
	}
	if v, err := take(began.Add(v.RetryAfter - time.Second - 1)); err != nil || v.Allowed {
		return fmt.Errorf("a moment too early: allowed %v, %w", v.Allowed, err)
	}
	if v, err := take(began.Add(v.RetryAfter)); err != nil || !v.Allowed {
		return fmt.Errorf("after the wait that was told: allowed %v, %w", v.Allowed, err)
	}
	return nil
}

// edge refuses what nothing is kept for, and counts all that something is kept for.
func (p *additions) edge() error {
	key := counter.Key{Event: "e", Feature: "edge"}
	keep := p.ladder.At(p.ladder.Len() - 1).Keep
	for i := range p.ladder.Len() {
		t := p.ladder.At(i)
		if err := p.add(key, 1, t.Keep); err != nil {
			return err
		}
	}
	if err := p.counts(key, map[time.Duration]int64{keep: int64(p.ladder.Len())}); err != nil {
		return err
	}
	for _, back := range []time.Duration{2*keep + 4*enough, 1000 * keep} {
		if err := p.counter.AddAt(context.Background(), key, 1, p.now.Add(-back)); !errors.Is(err, counter.ErrTooOld) || errors.Is(err, counter.ErrStore) {
			return fmt.Errorf("a hit of %s ago, where a day is kept: %v, want ErrTooOld and not ErrStore", back, err)
		}
	}
	if err := p.counter.AddAt(context.Background(), key, 1, p.now.Add(time.Second+1)); err == nil || errors.Is(err, counter.ErrTooOld) || errors.Is(err, counter.ErrStore) {
		return fmt.Errorf("a hit of the future: %v, want an error of the caller", err)
	}
	return p.counts(key, map[time.Duration]int64{keep: int64(p.ladder.Len())})
}
