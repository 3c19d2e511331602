package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

type tourCmd struct{}

// toured is the numbers of the tour, all computed during the run.
type toured struct {
	Now                      time.Time
	Seconds, Textbook, Cover int64 // reads of a window of a day
	Lines                    []string

	Limit       counter.Limit
	Burst       int
	Within      time.Duration // of a burst
	Drip        time.Duration // between two attempts afterwards
	Rows        []played
	Back        time.Duration // the RetryAfter of the first denial
	Early, Then string        // the decisions a second sooner than told, and when told

	Limits                counter.Limits
	Keys, Takes, Admitted int64
	Each                  int64 // nanoseconds of a Take
}

// played is a limiter under attack.
type played struct {
	Name, Label, Hours string // Hours has a column for every hour: nothing, a number, or # for more than nine
	Days               [3]int64
	Admitted, Worst    int64 // Worst: in the fullest true window
	Ratio              float64
}

// Run prints a screen.
func (*tourCmd) Run(e *cli.Env) error {
	t := &toured{
		Now: time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC), Seconds: int64(dur.Day / time.Second),
		Limit: counter.Limit{Max: 20, Per: dur.Day}, Burst: 60, Within: 10 * time.Second, Drip: 10 * time.Minute,
		Limits: counter.MustLimits("10/m, 50/h, 100/d"), Keys: 10_000, Takes: 200_000,
	}
	cover, err := tiers.Default.Cover(t.Now, dur.Day, 0)
	textbook, wrong := classic.TextbookCover(tiers.Default, t.Now, dur.Day)
	if err := cmp.Or(err, wrong); err != nil {
		return err
	}
	t.Textbook, t.Cover, t.Lines = textbook.Reads(), cover.Reads(), drawCovers(drawn{"textbook", textbook}, drawn{"abacus", cover})
	if err := cmp.Or(t.attack(e.Ctx), t.speed(e.Ctx)); err != nil {
		return err
	}
	return e.Print(false, "tour", t)
}

// attack plays a sign-up attack over three days against a fixed window and abacus: a
// burst just before the first midnight and a burst just after, then a steady drip.
func (t *toured) attack(ctx context.Context) error {
	key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	start := t.Now.Truncate(dur.Day)
	midnight := start.Add(dur.Day)
	var attempts []time.Time
	for i := range time.Duration(2 * t.Burst) {
		attempts = append(attempts, midnight.Add(-t.Within+i*t.Within/time.Duration(t.Burst)))
	}
	for at := midnight.Add(t.Drip); at.Before(start.Add(3 * dur.Day)); at = at.Add(t.Drip) {
		attempts = append(attempts, at)
	}
	var now time.Time
	count, err := replay.NewCounter(memory.New(memory.Config{}), tiers.For(t.Limit.Per), 0, "", &now)
	if err != nil {
		return err
	}
	store, err := classic.Memory(classic.Config{Now: func() time.Time { return now }})
	if err != nil {
		return err
	}
	fixed, err := classic.NewFixedWindow(t.Limit, store)
	if err != nil {
		return err
	}
	for _, limiter := range []struct {
		name string
		take func() (counter.Verdict, error)
	}{
		{"tried", func() (counter.Verdict, error) { return counter.Verdict{Allowed: true}, nil }},
		{"fixed window", func() (counter.Verdict, error) { return fixed.Take(ctx, key, 1) }},
		{"abacus", func() (counter.Verdict, error) { return count.Take(ctx, key, 1, counter.Limits{t.Limit}) }},
	} {
		var log oracle.Log
		var hours [72]int64
		row := played{Name: limiter.name}
		row.Label, _, _ = strings.Cut(limiter.name, " ")
		for _, now = range attempts {
			v, err := limiter.take()
			if err != nil {
				return err
			}
			if v.Allowed {
				log.Add(now, 1)
				hours[now.Sub(start)/time.Hour]++
				row.Days[now.Sub(start)/dur.Day]++
			}
		}
		for _, n := range hours {
			row.Hours += string(".123456789#"[min(n, 10)])
		}
		row.Admitted, row.Worst = log.Total(), log.Worst(t.Limit.Per)
		row.Ratio = float64(row.Worst) / float64(t.Limit.Max)
		t.Rows = append(t.Rows, row)
	}
	return t.comeBack(ctx, key, attempts)
}

// comeBack has the one who is denied first come back, a second sooner than told and when
// told.
func (t *toured) comeBack(ctx context.Context, key counter.Key, attempts []time.Time) error {
	var now time.Time
	count, err := replay.NewCounter(memory.New(memory.Config{}), tiers.For(t.Limit.Per), 0, "", &now)
	if err != nil {
		return err
	}
	v := counter.Verdict{Allowed: true}
	for i := 0; v.Allowed; i++ {
		now = attempts[i] // more than the limit
		if v, err = count.Take(ctx, key, 1, counter.Limits{t.Limit}); err != nil {
			return err
		}
	}
	t.Back = v.RetryAfter.Round(time.Millisecond)
	now = now.Add(v.RetryAfter - time.Second)
	early, err := count.Peek(ctx, key, 1, counter.Limits{t.Limit})
	if err != nil {
		return err
	}
	now = now.Add(time.Second)
	v, err = count.Take(ctx, key, 1, counter.Limits{t.Limit})
	answer := map[bool]string{true: "admitted", false: "denied"}
	t.Early, t.Then = answer[early.Allowed], answer[v.Allowed]
	return err
}

// speed times a Take on this machine.
func (t *toured) speed(ctx context.Context) error {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{Ladder: t.Limits.Ladder()})
	if err != nil {
		return err
	}
	keys := make([]counter.Key, t.Keys)
	for i := range keys {
		keys[i] = counter.Key{Event: "signup", Feature: fmt.Sprint("ip:", i)}
	}
	began := time.Now()
	for i := range t.Takes {
		v, err := c.Take(ctx, keys[i%t.Keys], 1, t.Limits)
		if err != nil {
			return err
		}
		if v.Allowed {
			t.Admitted++
		}
	}
	t.Each = time.Since(began).Nanoseconds() / t.Takes
	return nil
}
