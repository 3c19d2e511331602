package history

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/parse"
)

const (
	ms   = int64(time.Millisecond)
	skew = 100 * time.Millisecond
)

var testLadder = parse.Ladder("100ms:10s, 1s:1m, 10s:1m")

// atomicStore is a store with an atomic step that keeps a log of every hit, and the
// promises: the calls are a valid history by construction.
type atomicStore struct {
	rng  *rand.Rand
	logs map[string]*oracle.Log // by key
	took []*Call                // admitted and not refunded

	// Faults of a broken store.
	forgetEvery int           // the hits of each call with this number are not kept; 0: all are
	shorter     time.Duration // windows reach back so much less
	longer      time.Duration // or so much more, for denials
}

func (s *atomicStore) log(key string) *oracle.Log {
	if s.logs[key] == nil {
		s.logs[key] = &oracle.Log{}
	}
	return s.logs[key]
}

// do does the call at its step, and fills in what its caller hears. A Refund gives
// back the hits of undone.
func (s *atomicStore) do(c *Call, label int64, undone *Call) {
	judge, at := oracle.Judge{Ladder: testLadder, Skew: skew - s.shorter + s.longer}, time.Unix(0, label)
	c.Outcome = Done
	switch c.Kind {
	case Add:
		s.add(c, label)
	case Take, Peek:
		counts := c.N // by the Remaining of the call
		if c.Kind == Peek {
			counts = 0
		}
		for _, ask := range c.Asks {
			for _, l := range ask.Limits {
				if !judge.Allowed(s.log(ask.Key), at, c.N, counter.Limits{l}) {
					c.Outcome = Denied
				}
				room, _ := judge.Room(s.log(ask.Key), at, counts, l)
				c.Remaining = append(c.Remaining, room)
			}
		}
		if c.Kind == Take && c.Outcome == Denied {
			c.Remaining = nil
		}
		if c.Kind == Take && c.Outcome == Done {
			c.Label = label
			s.add(c, label)
			s.took = append(s.took, c)
		}
	case Count:
		c.High = judge.Count(s.log(c.Asks[0].Key), at, c.Asks[0].Limits[0])
	case Forget:
		s.log(c.Asks[0].Key).Reset()
	case Refund:
		for _, ask := range undone.Asks {
			if hit := time.Unix(0, undone.Label); s.log(ask.Key).Count(hit, hit) >= undone.N { // neither lost nor forgotten
				s.log(ask.Key).Remove(hit, undone.N)
			}
		}
	}
}

func (s *atomicStore) add(c *Call, label int64) {
	if s.forgetEvery > 0 && c.ID%uint64(s.forgetEvery) == 0 {
		return
	}
	for _, ask := range c.Asks {
		s.log(ask.Key).Add(time.Unix(0, label), c.N)
	}
}

// step is a call and the instant of its execution in the store.
type step struct {
	*Call
	at int64
}

var menus = []counter.Limits{
	counter.MustLimits("5/2s"),
	counter.MustLimits("3/2s, 12/10s"),
	counter.MustLimits("12/10s"),
	counter.MustLimits("30/1m, 5/2s"),
}

// simulate makes a history of calls, in the order in which the store did them.
func simulate(s *atomicStore, calls int) []*Call {
	s.logs = map[string]*oracle.Log{}
	began := time.Date(2026, 3, 1, 23, 59, 0, 0, time.UTC).UnixNano()
	var steps []step
	for i := range calls {
		at := began + int64(i)*5*ms + s.rng.Int64N(40*ms)
		caller := s.rng.IntN(5)
		c := &Call{ID: uint64(i) + 1, Process: caller / 2, Caller: caller, N: 1 + s.rng.Int64N(2)*s.rng.Int64N(2)}
		c.Began, c.Ended = at-s.rng.Int64N(60*ms), at+1+s.rng.Int64N(60*ms)
		key := "abcde"[s.rng.IntN(5):][:1]
		c.Asks = []Ask{{key, menus[s.rng.IntN(len(menus))]}}
		switch p := s.rng.IntN(100); {
		case p < 60:
			c.Kind = Take
			if p < 10 {
				c.Asks = append(c.Asks, Ask{key + key, menus[s.rng.IntN(len(menus))]})
			}
		case p < 68:
			c.Kind = Peek
		case p < 76:
			c.Kind = Count
			c.Asks[0].Limits = counter.Limits{{Per: c.Asks[0].Limits[0].Per}}
		case p < 78:
			c.Kind = Add
			c.Asks[0].Limits = nil
		case p < 79 && s.rng.IntN(10) == 0:
			c.Kind = Forget
			c.Asks[0].Limits = nil
		case p < 94:
			c.Kind = Take
		default:
			c.Kind = Refund
			c.Asks = nil
		}
		steps = append(steps, step{c, at})
	}
	sort.Slice(steps, func(i, j int) bool { return steps[i].at < steps[j].at })
	var history []*Call
	for _, st := range steps {
		c := st.Call
		offset := int64(skew) * int64(c.Caller-2) / 4 // clocks are apart by the skew
		read := c.Began + s.rng.Int64N(st.at-c.Began+1)
		c.True, c.Lo, c.Hi = read, c.Began+offset, c.Ended+offset
		var undone *Call
		if c.Kind == Refund {
			if len(s.took) == 0 {
				continue
			}
			i := s.rng.IntN(len(s.took))
			undone, c.Of = s.took[i], s.took[i].ID
			if s.took[i].Ended >= c.Began {
				continue
			}
			s.took = slices.Delete(s.took, i, i+1)
		}
		switch fails := s.rng.IntN(20); {
		case fails == 0 && c.Kind == Take: // counted, and nobody was told
			s.do(c, read+offset, undone)
			c.Outcome, c.Remaining = Failed, nil
			s.took = slices.DeleteFunc(s.took, func(t *Call) bool { return t == c })
		case fails == 1: // nothing happened, and nobody was told
			c.Outcome = Failed
		default:
			s.do(c, read+offset, undone)
		}
		history = append(history, c)
	}
	return history
}

// check runs a Checker over a history, in steps of a second.
func check(cfg Config, history []*Call, faults ...Fault) *Report {
	c := New(cfg, &Report{})
	for _, f := range faults {
		c.Fault(f)
	}
	calls := slices.Clone(history)
	sort.SliceStable(calls, func(i, j int) bool { return calls[i].Began < calls[j].Began })
	next := int64(0)
	for _, call := range calls {
		if call.Began > next {
			c.Advance(call.Began)
			next = call.Began + int64(time.Second)
		}
		c.Call(call)
	}
	c.Advance(far)
	return c.Report
}

var atomicConfig = Config{Ladder: testLadder, Skew: skew, Late: time.Second}
