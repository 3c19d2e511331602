package classic

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// scheduler is the common part of the limiters that wait: [LeakyQueue] and
// [TokenShaper].
type scheduler struct {
	engine[moment]
	rule    schedule
	longest moment // the longest wait
}

// open makes s ready. n hits may leave at once, up to burst; with a burst of 0 any
// n leave at once, and the hits after them wait for all n.
func (s *scheduler) open(kind string, limit counter.Limit, store *Store, most, length, burst int64) {
	s.longest = rateOf(limit).time(length)
	s.rule = schedule{e: &s.engine, rate: rateOf(limit), burst: rateOf(limit).time(burst)}
	// The wait for the last slot, and the time of the largest request in that slot.
	life := s.longest.ceil() + s.rule.time(most).ceil()
	s.start(kind, limit, store, most, life, &s.rule)
}

// Wait takes a slot for n hits of key and returns at the time of the slot. If all
// slots are taken, Wait denies at once, with the time until there will be a slot as
// RetryAfter. If ctx would end before the slot's time, no slot is taken, and the
// error is [context.DeadlineExceeded]. If ctx ends during the wait, the slot is
// given back if it is the last. Other errors are the errors of [Limiter].
//
// Wait sleeps real time, so Config.Now should be a clock that runs with real
// time.
func (s *scheduler) Wait(ctx context.Context, key counter.Key, n int64) (counter.Verdict, error) {
	c := call{n: n}
	v, wait, err := s.reserve(ctx, key, &c)
	if err != nil || !v.Allowed {
		return v, err
	}
	timer := time.NewTimer(wait - time.Since(c.stamped))
	defer timer.Stop()
	select {
	case <-timer.C:
		return v, nil
	case <-ctx.Done():
		s.leave(ctx, key, &c)
		return counter.Verdict{}, s.wrong(key, ctx.Err())
	}
}

// Reserve takes a slot as Wait does, and returns at once, with the time from now
// until the slot: for a caller with a timer, or a clock, of its own. A slot of
// Reserve cannot be given back.
func (s *scheduler) Reserve(ctx context.Context, key counter.Key, n int64) (v counter.Verdict, wait time.Duration, err error) {
	return s.reserve(ctx, key, &call{n: n})
}

func (s *scheduler) reserve(ctx context.Context, key counter.Key, c *call) (v counter.Verdict, wait time.Duration, err error) {
	n := c.n
	c.patience = s.longest
	if deadline, is := ctx.Deadline(); is {
		// A slot at the very deadline would leave the outcome to chance.
		if left := (moment{max(0, micros(time.Until(deadline))-1), 0}); s.longest.after(left) {
			c.hurry = &left
		}
	}
	if v, err = s.take(ctx, key, c); err != nil {
		return counter.Verdict{}, 0, err
	}
	slot := s.rule.leaves(c)
	if !v.Allowed {
		if c.hurry != nil && n <= s.most && !slot.after(moment{c.now + s.longest.us, s.longest.part}) {
			return counter.Verdict{}, 0, s.wrong(key, fmt.Errorf("the wait would be longer: %w", context.DeadlineExceeded))
		}
		return v, 0, nil
	}
	return v, duration(max(0, slot.ceil()-c.now)), nil
}

// leave gives back the slot of c, if the slot is the last.
func (s *scheduler) leave(ctx context.Context, key counter.Key, c *call) {
	name := s.base(key)
	slot, next := moment{c.facts[0], c.facts[1]}, moment{c.facts[2], c.facts[3]}
	var cost call
	if s.table != nil {
		s.table.edit(name, func(stored *moment) {
			cost.cost.Reads++
			if *stored == next {
				*stored = slot
				cost.cost.Writes++
			}
		})
	} else {
		_ = s.store.remote.run(context.WithoutCancel(ctx), schedulerLeaveScript, name, &cost,
			slot.us, slot.part, next.us, next.part, s.ttlMillis())
	}
	s.spend(&cost)
}

//go:embed scheduler.lua
var schedulerLua string

//go:embed scheduler_leave.lua
var schedulerLeaveLua string

var (
	schedulerScript      = newScript(schedulerLua)
	schedulerLeaveScript = newScript(schedulerLeaveLua)
)

// schedule is the rule. A state is the instant from which on all hits have left at
// the rate: of a queue the next free slot, of a bucket the instant at which it will
// be full.
type schedule struct {
	e *engine[moment]
	rate
	burst moment // the time of a burst; zero for a queue
	single[moment]
}

var _ rule[moment] = (*schedule)(nil)

// early is the time by which c may leave before the scheduled instant: the burst
// less its own hits.
func (r *schedule) early(c *call) moment {
	if r.burst == (moment{}) {
		return moment{}
	}
	return r.sub(r.burst, r.time(c.n))
}

// leaves is the instant of c's slot, perhaps before now, after its step.
func (r *schedule) leaves(c *call) moment {
	return r.sub(moment{c.facts[0], c.facts[1]}, r.early(c))
}

// ahead is the time by which the schedule may be ahead of now for c to be admitted;
// below zero if c must not be admitted.
func (r *schedule) ahead(c *call) moment {
	switch {
	case c.n > r.e.most:
		return moment{-1, 0}
	case c.hurry != nil:
		return r.add(*c.hurry, r.early(c))
	}
	return r.add(c.patience, r.early(c))
}

func (r *schedule) step(s *moment, known bool, c *call) {
	c.cost.Reads++
	at := moment{c.now, 0}
	if known {
		at = r.later(c.now, s.us, s.part)
	}
	c.facts[0], c.facts[1] = at.us, at.part
	if c.allowed = !at.after(r.add(moment{c.now, 0}, r.ahead(c))); c.allowed {
		*s = r.add(at, r.time(c.n))
		c.facts[2], c.facts[3] = s.us, s.part
		c.cost.Writes++
	}
}

func (r *schedule) remote(ctx context.Context, to *remote, name string, c *call) error {
	cost, ahead := r.time(c.n), r.ahead(c)
	return to.run(ctx, schedulerScript, name, c, c.now, cost.us, cost.part, ahead.us, ahead.part, r.max, r.e.ttlMillis())
}

func (r *schedule) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	next := moment{c.facts[0], c.facts[1]}
	if c.allowed {
		next = moment{c.facts[2], c.facts[3]}
	}
	ahead := r.sub(next, moment{c.now, 0})
	room := r.sub(r.add(r.burst, c.patience), ahead)
	if remaining = r.hits(room); r.burst == (moment{}) && room.us >= 0 {
		remaining++ // a hit of a queue leaves at its slot, before the time it takes
	}
	return remaining, r.sub(ahead, r.add(c.patience, r.early(c))).ceil(), ahead.ceil()
}
