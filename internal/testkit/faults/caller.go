package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/history"
)

// caller is a clock of a process and the counters that go by the clock. Several
// goroutines call at once.
type caller struct {
	job      *job
	number   int
	timeout  time.Duration
	clock    *clock
	counters [len(ladders)]*counter.Counter
	days     backend.Store
	tell     *teller
	ids      *atomic.Uint64

	mid   sync.Mutex    // guards counters[byDay], for the day of the latest call
	ahead time.Duration // of that day

	mu     sync.RWMutex // held while a call is made, against a clock that goes beyond the skew
	beyond bool
}

func newCaller(j *job, number int, store, days backend.Store, t *teller, ids *atomic.Uint64) *caller {
	c := &caller{job: j, number: number, days: days, tell: t, ids: ids, timeout: timeouts[(j.Process+number)%len(timeouts)]}
	local := worldKind(j.World) == "memory"
	c.clock = &clock{rng: random(j.Seed, j.Process, number), pause: standStill(local)}
	c.clock.set(0, 0)
	for i := range byDay {
		c.counters[i] = newCounter(store, j.World, i, c.timeout, c.clock.Now)
	}
	return c
}

// standStill draws how long a caller stands still after it has read its clock:
// seldom, and in a process with a store of its own also for longer than short
// windows are.
func standStill(local bool) func(*rand.Rand) time.Duration {
	return func(rng *rand.Rand) time.Duration {
		p := rng.IntN(1000)
		switch {
		case local && p < 10:
			return time.Second + time.Duration(rng.Int64N(int64(2*time.Second)))
		case p < 6, local && p < 20:
			return time.Duration(rng.Int64N(int64(300 * time.Millisecond)))
		}
		return 0
	}
}

// obey changes the clock.
func (c *caller) obey(o order) {
	if o.Beyond != c.beyond {
		// No call goes on that began by the other clock.
		c.mu.Lock()
		defer c.mu.Unlock()
		c.beyond = o.Beyond
	}
	c.clock.set(o.Offset, o.PerSecond)
}

// run makes calls until stop is closed.
func (c *caller) run(number int, stop <-chan struct{}) {
	rng := random(c.job.Seed, c.job.Process, c.number, number)
	mean := float64(c.job.Callers*c.job.Each) / c.job.Rate * float64(time.Second)
	var admitted []taken
	joined := int64(0)
	for {
		// The next call comes after a time that has nothing to do with the last.
		wait := time.Duration(min(rng.ExpFloat64(), 5) * mean)
		now := time.Now().UnixNano()
		end := (now/int64(crowdEvery) + 1) * int64(crowdEvery)
		inCrowd := false
		if now+int64(wait) > end && joined != end {
			joined = end
			if inCrowd = rng.IntN(4) > 0; inCrowd {
				wait = max(0, time.Duration(end-now)+comes(rng, end))
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(wait):
		}
		c.mu.RLock()
		p := draw(rng, c.job, time.Now().UnixNano(), c.beyond)
		if inCrowd && !c.beyond {
			p = crowd(rng, c.job.Prefix, end)
		}
		c.call(p, rng, &admitted)
		c.mu.RUnlock()
	}
}

// comes is the time of a crowd's member, from the end of a bucket on: crowds stand
// astride the end, more or less closely, or all in the next bucket.
func comes(rng *rand.Rand, end int64) time.Duration {
	around := func(spread time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(2*spread))) - spread }
	switch end / int64(crowdEvery) % 3 {
	case 0:
		return around(2 * time.Millisecond)
	case 1:
		return around(30 * time.Millisecond)
	}
	return 400*time.Millisecond + around(time.Millisecond)
}

// taken is an admitted Take that may be refunded.
type taken struct {
	id      uint64
	on      *counter.Counter
	ladder  int
	ahead   time.Duration
	verdict counter.Verdict
}

// counter returns the Counter of a call.
func (c *caller) counter(p plan) *counter.Counter {
	if p.ladder != byDay {
		return c.counters[p.ladder]
	}
	c.mid.Lock()
	defer c.mid.Unlock()
	if c.counters[byDay] == nil || c.ahead != p.ahead {
		c.ahead = p.ahead
		c.counters[byDay] = newCounter(c.days, c.job.World, byDay, c.timeout, func() time.Time { return c.clock.Now().Add(p.ahead) })
	}
	return c.counters[byDay]
}

// call makes a call, and tells of it before and after.
func (c *caller) call(p plan, rng *rand.Rand, admitted *[]taken) {
	begin := &call{history.Call{ID: c.ids.Add(1), Kind: p.kind, Caller: c.number, N: p.n, Asks: p.asks}, p.ladder, c.timeout, p.ahead}
	var refund taken
	if p.kind == history.Refund {
		n := len(*admitted)
		if n == 0 {
			return
		}
		i := rng.IntN(n)
		refund = (*admitted)[i]
		(*admitted)[i] = (*admitted)[n-1]
		*admitted = (*admitted)[:n-1]
		begin.Of, begin.Ladder, begin.Ahead, begin.Asks = refund.id, refund.ladder, refund.ahead, nil
	}
	on := refund.on
	if on == nil {
		on = c.counter(p)
	}
	pauses := c.clock.paused.Load()
	began := c.tell.tell(&line{Begin: begin})
	end := &begin.Call
	end.Outcome = history.Done
	v, err := callOn(on, p, &refund.verdict, end)
	end.Ended = time.Now().UnixNano()
	if err != nil {
		end.Outcome, end.Error = history.Failed, err.Error()
	}
	var off int64
	end.Lo, end.Hi, off = c.clock.span(began, end.Ended)
	end.Lo, end.Hi = end.Lo+int64(begin.Ahead), end.Hi+int64(begin.Ahead)
	end.Paused = c.clock.paused.Load() > pauses
	end.Beyond = off > int64(c.job.Skew)/2
	if p.kind == history.Take && end.Outcome == history.Done {
		end.Label = v.At().UnixNano()
		end.True = c.clock.read(end.Label-int64(begin.Ahead), began)
		*admitted = append(*admitted, taken{begin.ID, on, begin.Ladder, begin.Ahead, v})
		if len(*admitted) > 16 {
			*admitted = (*admitted)[1:]
		}
	}
	c.tell.tell(&line{End: end})
}

// callOn makes the call of p on a Counter, and writes what it returns into end.
func callOn(on *counter.Counter, p plan, refund *counter.Verdict, end *history.Call) (v counter.Verdict, err error) {
	ctx := context.Background()
	key := func(i int) counter.Key { return counterKey(p.asks[i].Key) }
	switch p.kind {
	case history.Take, history.Peek:
		asks := make([]counter.Ask, len(p.asks))
		for i, a := range p.asks {
			asks[i] = counter.Ask{Key: key(i), N: p.n, Limits: a.Limits}
		}
		if p.kind == history.Take {
			v, err = on.TakeAll(ctx, asks...)
		} else {
			v, err = on.PeekAll(ctx, asks...)
		}
		if err == nil && !v.Allowed {
			end.Outcome = history.Denied
		}
		if err == nil && (p.kind == history.Peek || v.Allowed) {
			for _, s := range v.All() {
				end.Remaining = append(end.Remaining, s.Remaining)
			}
		}
	case history.Add:
		err = on.Add(ctx, key(0), p.n)
	case history.Count:
		var n counter.Count
		n, err = on.Count(ctx, key(0), p.asks[0].Limits[0].Per)
		end.High = n.High
	case history.Forget:
		err = on.Forget(ctx, key(0))
	case history.Refund:
		err = on.Refund(ctx, refund)
	}
	return v, err
}
