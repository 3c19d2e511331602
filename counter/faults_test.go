package counter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// farStore is a plainStore behind a bad network, in the virtual time of a
// synctest bubble: every operation takes its own time, answers come late or
// never, and a request may arrive long after its sender has given up.
type farStore struct {
	*plainStore
	rand  func(n int64) int64
	usual time.Duration // largest usual delay before an operation, and after
	slow  int64         // one operation in slow takes up to ten times maxTry
	lost  int64         // one request in lost never arrives
	mute  int64         // one answer in mute never arrives
}

func (s *farStore) delay() time.Duration {
	if s.slow > 0 && s.rand(s.slow) == 0 {
		return time.Duration(s.rand(int64(10 * maxTry)))
	}
	return time.Duration(s.rand(int64(s.usual)))
}

const maxTry = 50 * time.Millisecond

func (s *farStore) Do(ctx context.Context, op *backend.Request) error {
	for i := range op.Add {
		op.Add[i].Count = 0
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	type answer struct {
		to    *int64
		count int64
		err   error
	}
	sent := 0
	answers := make(chan answer, len(op.Add)+len(op.Read)*64+1000)
	send := func(to *int64, work func() (int64, error)) {
		sent++
		there, back := s.delay(), s.delay()
		lost, mute := s.lost > 0 && s.rand(s.lost) == 0, s.mute > 0 && s.rand(s.mute) == 0
		go func() {
			time.Sleep(there)
			if lost {
				return
			}
			count, err := work()
			time.Sleep(back)
			if !mute {
				answers <- answer{to, count, err}
			}
		}()
	}
	request := *op // the goroutines outlive the call, and keep copies only
	for i, slot := range op.Add {
		send(&op.Add[i].Count, func() (int64, error) { return s.add(&request, &slot) })
	}
	for _, span := range op.Read {
		for j := range span.Counts {
			c := bucketKey{op.Key, tiers.Bucket{Width: span.Width, Index: span.First + int64(j)}}
			send(&span.Counts[j], func() (int64, error) { return s.get(c, request.Now), nil })
		}
	}
	timeout := make(<-chan time.Time)
	if !op.Deadline.IsZero() {
		timer := time.NewTimer(time.Until(op.Deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	for ; sent > 0; sent-- {
		select {
		case a := <-answers:
			if a.err != nil {
				return a.err
			}
			*a.to = a.count
		case <-timeout:
			return errors.New("far: no answer by the deadline")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lots draws numbers below n for many goroutines.
func lots(seed, round uint64) func(n int64) int64 {
	r := rand.New(rand.NewPCG(seed, round))
	var mu sync.Mutex
	return func(n int64) int64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Int64N(n)
	}
}

// admission is an admitted hit: its label, and the true time of the label.
type admission struct {
	label, at time.Time
	n         int64
}

// over reports whether a window of length per holds more than max hits, by the
// labels or in true time.
func over(hits []admission, max int64, per time.Duration) bool {
	var labels, instants oracle.Log
	for _, h := range hits {
		labels.Add(h.label, h.n)
		instants.Add(h.at, h.n)
	}
	return labels.Worst(per) > max || instants.Worst(per) > max
}

// Callers with skewed clocks race over a bad network. They die, are cancelled,
// and have different limits and patience. Nevertheless no window of a limit
// holds more than Max hits, and every call returns within its patience and the
// time of taking back.
func TestNeverOverOnABadNetwork(t *testing.T) {
	ladder := try.To(tiers.Parse("100ms:10s, 1s:10s, 5s:10s"))(t)
	s := seed(t)
	admitted, refused, failed := 0, 0, 0
	for round := range 10 * rounds() {
		synctest.Test(t, func(t *testing.T) {
			draw := lots(s, uint64(round))
			var mu sync.Mutex
			far := &farStore{plainStore: newPlainStore(), rand: draw, usual: time.Duration(1+draw(15)) * time.Millisecond}
			far.Store = backend.FromDo(far.Do)
			if round%2 == 1 {
				far.slow, far.lost, far.mute = 300, 400, 400
			}
			skew := time.Duration(draw(3)) * 40 * time.Millisecond
			all := counter.MustLimits("3/s, 5/3s, 9/10s")
			key := counter.Key{Event: "e", Feature: fmt.Sprint(round)}
			hits := map[counter.Limit][]admission{}
			var wg sync.WaitGroup
			for caller := range 6 {
				limits := all[draw(3):]
				if draw(2) == 0 {
					limits = limits[:1]
				}
				ahead := time.Duration(draw(int64(skew) + 1))
				patience := maxTry * time.Duration(1+draw(4))
				cfg := counter.Config{Ladder: ladder, Skew: max(skew, 1), Settle: maxTry, Patience: patience, Now: func() time.Time {
					return time.Now().Add(ahead)
				}}
				c := newCounter(t, far, cfg)
				wg.Go(func() {
					for range 12 {
						time.Sleep(time.Duration(draw(int64(700 * time.Millisecond))))
						ctx, cancel := context.WithCancel(context.Background())
						if draw(15) == 0 {
							time.AfterFunc(time.Duration(draw(int64(maxTry))), cancel)
						}
						n := 1 + draw(8)/7
						from := time.Now()
						v, err := c.Take(ctx, key, n, limits)
						to := time.Now()
						cancel()
						mu.Lock()
						switch {
						case err != nil:
							failed++
							if v.Allowed {
								t.Error("an error that admits")
							}
							if !errors.Is(err, counter.ErrStore) && !errors.Is(err, context.Canceled) {
								t.Error(err)
							}
						case v.Allowed:
							admitted++
							at := v.At().Add(-ahead)
							if at.Before(from) || at.After(to) {
								t.Errorf("labelled %s, called at %s, returned at %s", at, from, to)
							}
							for _, l := range limits {
								hits[l] = append(hits[l], admission{v.At(), at, n})
							}
						default:
							refused++
						}
						if spent := to.Sub(from); spent > patience+maxTry {
							t.Errorf("a call took %s (caller %d)", spent, caller)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Minute) // late requests arrive
			for _, l := range all {
				require.False(t, over(hits[l], l.Max, l.Per), "round %d: more than %s in %v", round, l, hits[l])
			}
		})
	}
	t.Logf("%d admitted, %d refused, %d failed", admitted, refused, failed)
	require.Positive(t, admitted)
	require.Positive(t, refused)
	require.Positive(t, failed)
}

// Racing calls astride a boundary of the ticket tier are in two buckets, and
// refuse each other. After taking back, the calls look again, and try when
// there is room: all room is used, where otherwise hardly any would be.
func TestRacersAstrideABoundaryTryAgain(t *testing.T) {
	const racers, places = 40, 7
	races := long.Rounds(20, 100)
	s := seed(t)
	admitted := 0
	for race := range races {
		synctest.Test(t, func(t *testing.T) {
			draw := lots(s, uint64(race))
			var mu sync.Mutex
			far := &farStore{plainStore: newPlainStore(), rand: draw, usual: 2 * time.Millisecond}
			far.Store = backend.FromDo(far.Do)
			c := newCounter(t, far, counter.Config{Ladder: tiers.For(time.Minute), Skew: time.Millisecond, Patience: time.Second})
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - 5*time.Millisecond)))
			in := 0
			var wg sync.WaitGroup
			for range racers {
				wait := time.Duration(draw(int64(10 * time.Millisecond)))
				wg.Go(func() {
					time.Sleep(wait)
					v, err := c.Take(context.Background(), counter.Key{Event: "race", Feature: "boundary"}, 1, counter.MustLimits("7/m"))
					mu.Lock()
					defer mu.Unlock()
					assert.NoError(t, err)
					if v.Allowed {
						in++
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, in, places)
			n := try.To(c.Count(context.Background(), counter.Key{Event: "race", Feature: "boundary"}, time.Minute))(t)
			require.EqualValues(t, in, n.High, "what is left after the race")
			admitted += in
		})
	}
	t.Logf("%d of %d places filled", admitted, places*races)
	require.GreaterOrEqual(t, admitted, places*races*99/100)
}

// A call that a panic of the store has ended may still be looking: no later call gets its
// buffers. The store panics when hits of 1 are taken back, while 3 is looked at, and goes on
// with the look when 6 is added to.
func TestAPanicOfTheStoreSpoilsNoOtherCall(t *testing.T) {
	plain, looked, goOn := newPlainStore(), make(chan struct{}), make(chan struct{})
	var look sync.Once
	c := newCounter(t, backend.FromDo(func(ctx context.Context, op *backend.Request) error {
		switch {
		case op.N < 0 && strings.HasSuffix(op.Key, ":1"):
			<-looked
			panic("the store is broken")
		case op.N == 0 && strings.HasSuffix(op.Key, ":3"):
			look.Do(func() { close(looked) })
			<-goOn
		case op.N > 0 && strings.HasSuffix(op.Key, ":6"):
			close(goOn)
			time.Sleep(50 * time.Millisecond)
		}
		return plain.Do(ctx, op)
	}), counter.Config{})
	asks := func(features ...string) (asks []counter.Ask) {
		for _, f := range features {
			asks = append(asks, counter.Ask{Key: keyOf(f), N: 1, Limits: limits("9/h")})
		}
		return asks
	}
	require.NoError(t, c.Add(ctx, keyOf("2"), 9))
	require.NoError(t, c.Add(ctx, keyOf("3"), 5))
	require.Panics(t, func() { _, _ = c.TakeAll(ctx, asks("1", "2", "3")...) })
	require.Equal(t, "took *5 9/h 8, 6 9/h 8, 4 9/h 8", told(try.To(c.TakeAll(ctx, asks("5", "6", "4")...))(t)))
}

// stale is a store that has dropped the buckets of every label.
type stale struct {
	*memory.Store
	Bind  struct{} // hides the method, and backend.Local with it
	err   error
	asked int
}

func (s *stale) answer(anyLabel bool, do func() error) error {
	switch s.asked++; {
	case s.err != nil || s.asked == 10:
		return cmp.Or(s.err, errors.New("asked ten times"))
	case !anyLabel:
		return backend.ErrStaleLabel
	}
	return do()
}

func (s *stale) Do(ctx context.Context, r *backend.Request) error {
	return s.answer(r.AnyLabel, func() error { return s.Store.Do(ctx, r) })
}

func (s *stale) Take(ctx context.Context, r *backend.TakeRequest) error {
	return s.answer(r.AnyLabel, func() error { return s.Store.Take(ctx, r) })
}

// A call gets four labels at most, and no second one of a clock that stands. Then it is
// answered by the buckets that the store still has. Another error is an error at once.
func TestTheLastLabel(t *testing.T) {
	for tick, want := range map[time.Duration]int{0: 2, time.Millisecond: 5} {
		s, now := &stale{Store: memory.New(memory.Config{})}, halfPast
		c := newCounter(t, s, counter.Config{Now: func() time.Time { now = now.Add(tick); return now }})
		v := try.To(c.Take(ctx, counter.Key{Event: "signup", Feature: "a"}, 1, limits("1/h")))(t)
		require.True(t, v.Allowed)
		require.Equal(t, want, s.asked)
		for _, away := range []error{nil, errors.New("away")} {
			s.asked, s.err = 0, away
			require.ErrorIs(t, try.Err(c.Count(ctx, counter.Key{Event: "signup", Feature: "a"}, time.Hour)), away)
			require.Equal(t, want, s.asked)
			want = 1
		}
	}
}
