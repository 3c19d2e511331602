package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/page"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// callersEach is the number of clocks of a process.
const callersEach = 4

// campaign is a run of some worlds, side by side.
type campaign struct {
	seed  uint64
	rate  float64       // calls a second, in all
	calm  time.Duration // between two faults of a world, in the mean
	plant string        // see [plants]
	blind string        // name of a fault whose losses are kept from the rules, for tests
	only  string        // name of the only world; empty: all worlds

	stage  *servertest.Stage
	ctx    context.Context // done when no more calls are to be made
	worlds []*world
	page.Run
}

// run lets callers call and faults come until ctx is done, or something is
// wrong with the campaign itself. during is called now and then.
func (c *campaign) run(ctx context.Context, during func(c *campaign)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.stage = &servertest.Stage{OnFailure: func(error) { cancel() }}
	defer c.stage.End()
	c.ctx, c.Run = ctx, page.Begin()
	for i := range theWorlds {
		w := &world{setting: theWorlds[i], campaign: c, number: i + 1}
		w.prefix = fmt.Sprintf("w%d", w.number)
		if c.only == w.name {
			w.share = 1
		}
		if c.only == w.name || c.only == "" {
			c.worlds = append(c.worlds, w)
		}
	}
	// A failure of the stage ends a goroutine, but not this goroutine.
	c.inParallel((*world).open)
	if err := c.stage.Err(); err != nil {
		return err
	}
	step := watchClock(c)
	var checks sync.WaitGroup
	checked := make(chan struct{})
	for _, w := range c.worlds {
		checks.Go(func() { every(100*time.Millisecond, checked, w.look) })
	}
	checks.Go(func() {
		every(250*time.Millisecond, checked, func() {
			for _, w := range c.worlds {
				w.check()
			}
			step()
			during(c)
		})
	})
	c.inParallel(func(w *world) { w.suffer(random(c.seed, w.number, 1<<20)) })
	c.End()
	c.inParallel((*world).close)
	close(checked)
	checks.Wait()
	return c.stage.Err()
}

// inParallel calls do for each world, and waits for all of them.
func (c *campaign) inParallel(do func(w *world)) {
	var all sync.WaitGroup
	for _, w := range c.worlds {
		all.Go(func() { do(w) })
	}
	all.Wait()
}

// every calls do again and again, a period after the last began, until done.
func every(period time.Duration, done <-chan struct{}, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			do()
		}
	}
}

// goesOn reports whether the campaign is not over yet.
func (c *campaign) goesOn() bool { return c.ctx.Err() == nil }

// watchClock returns a function that reports an error when the clock of the
// machine, the true time of the campaign, has been stepped. A process that loses its
// processor between the two readings of time.Now, of the wall and of the monotonic
// clock, sees a step too, but not in the next reading.
func watchClock(c *campaign) func() {
	last := time.Now()
	return func() {
		var d time.Duration
		for range 3 {
			now := time.Now()
			d = now.Round(0).Sub(last.Round(0)) - now.Sub(last)
			if d.Abs() <= 5*time.Millisecond {
				last = now
				return
			}
		}
		c.stage.Report(fmt.Errorf("the clock of this machine has been stepped by %v: labels cannot be judged", d))
	}
}
