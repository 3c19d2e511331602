package limiter_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// A flood of made-up names, before the store fails and after, takes neither places
// in the local counter nor pending additions from the users whom it knows: the
// local counter decides for each of them, by all of her hits. Numbers, a Check and
// the log tell of the flood.
func TestKnownUsersKeepTheirPlaces(t *testing.T) {
	users, flood := long.Rounds(250, 1_000), long.Rounds(5_000, 20_000)
	full := rand.IntN(4) > 0 // drawn, but both in the long form: without room are 100,000 hits more
	for name, room := range map[string]int{"a full local counter": long.Rounds(35_000, 200_000), "no room for additions": 0} {
		if !long.Asked() && full != (room > 0) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				full := room > 0
				var log bytes.Buffer
				store := &flakyStore{Store: memory.New(memory.Config{})}
				here := newCounter(t, memory.New(memory.Config{MaxBuckets: room}), counter.Config{Skew: counter.DefaultSkew + limiter.DefaultDecideWithin})
				lim := newLimiter(t, newCounter(t, struct{ backend.Atomic }{store}, counter.Config{}), limiter.Config{
					Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("user", "5/h"))}, Local: here, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				})
				defer lim.Close(over)
				made := 0
				attack := func(flood int, want ...limiter.Outcome) {
					for range flood {
						made++
						if v := allow(t, lim, user(fmt.Sprint("made up ", made))); !slices.Contains(want, v.Outcome()) {
							require.Contains(t, want, v.Outcome())
						}
					}
				}
				hit := func(want limiter.Outcome) {
					for i := range users {
						v := allow(t, lim, user(fmt.Sprint(i)))
						require.Equal(t, want, v.Outcome(), "user %d: %v", i, v.Degraded)
					}
				}
				requireFull := func(full bool) {
					stats, err := lim.Stats(), lim.Check(ctx)
					if full {
						require.ErrorIs(t, err, counter.ErrCondition)
						require.Positive(t, stats.Unmirrored)
						require.Greater(t, stats.Lacking, 0.5)
						require.Regexp(t, `(?m)^limiter: Config.Local was full and lacks hits of \d+\.\d% of the keys that it does not know, want none: `, err.Error())
						require.Contains(t, log.String(), "Config.Local was full and lacks hits")
					} else {
						require.Zero(t, stats.Lacking)
						require.NoError(t, err)
					}
				}

				hit(limiter.OutcomeAdmitted)
				time.Sleep(10 * time.Second)
				hit(limiter.OutcomeAdmitted)
				requireFull(false)
				attack(flood, limiter.OutcomeAdmitted)
				time.Sleep(10 * time.Second)
				hit(limiter.OutcomeAdmitted) // in further buckets
				requireFull(full)
				store.broken.Store(true)
				all := flood
				if !full {
					all += limiter.MaxAdditions
				}
				attack(all, limiter.OutcomeLocalAdmitted, limiter.OutcomeFailedClosed)
				require.Greater(t, lim.Stats().LocalRefused, int64(flood*9/10))
				time.Sleep(10 * time.Second)
				hit(limiter.OutcomeLocalAdmitted)
				if !full { // nor for an excess
					v := allow(t, lim, user("0"))
					require.ErrorContains(t, lim.Settle(ctx, &v, 2), "too many hits wait to be carried to the store")
					require.NoError(t, lim.Settle(ctx, &v, 0))
				}
				attack(flood, limiter.OutcomeFailedClosed)
				hit(limiter.OutcomeLocalAdmitted)
				hit(limiter.OutcomeLocalOverLimit)
				require.Contains(t, log.String(), map[bool]string{true: "lacks hits", false: "too many hits wait to be carried to the store"}[full])
				require.GreaterOrEqual(t, lim.Stats().Additions, int64(users))

				store.broken.Store(false)
				time.Sleep(25 * time.Hour) // the ladder keeps a day
				hit(limiter.OutcomeAdmitted)
				requireFull(false)
				require.Zero(t, lim.Stats().Additions)
				require.Contains(t, log.String(), map[bool]string{true: "Config.Local has all hits again", false: "there is room again for hits that wait"}[full])
			})
		})
	}
}

// withoutRoom is a Limiter by 5/m on a store, with a local counter that is full while room
// is broken.
func withoutRoom(t *testing.T) (lim *limiter.Limiter, store, room *flakyStore) {
	store, room = &flakyStore{Store: memory.New(memory.Config{})}, &flakyStore{Store: memory.New(memory.Config{})}
	rule := onFailure(limiter.FailLocal, by("user", "5/m"))
	rule.Ladder = tiers.For(time.Minute)
	lim = newLimiter(t, newCounter(t, struct{ backend.Atomic }{store}, counter.Config{}), limiter.Config{
		Rules: []limiter.Rule{rule}, Local: newCounter(t, room, counter.Config{Skew: counter.DefaultSkew + limiter.DefaultDecideWithin}),
	})
	return lim, store, room
}

// Once there is room again, users of whom the local counter has no hit come in, and
// their traffic does not prolong the time in which it lacks hits.
func TestUsersComeInAfterAFlood(t *testing.T) {
	const users = 2_000
	synctest.Test(t, func(t *testing.T) {
		lim, store, room := withoutRoom(t)
		defer lim.Close(over)
		next := 0
		hit := func(n int, want limiter.Outcome) {
			for range n {
				v := allow(t, lim, user(fmt.Sprint(next%users))) // each comes back after 100 s
				require.Equal(t, want, v.Outcome(), v.Degraded)
				next++
			}
		}
		room.broken.Store(true)
		hit(users, limiter.OutcomeAdmitted)
		room.broken.Store(false)
		lacking := lim.Stats().Lacking
		require.Positive(t, lacking)
		for range 30 {
			hit(20, limiter.OutcomeAdmitted)
			time.Sleep(time.Second)
		}
		require.Equal(t, lacking, lim.Stats().Lacking)
		require.EqualValues(t, users, lim.Stats().Unmirrored)
		store.broken.Store(true)
		next -= 20
		hit(20, limiter.OutcomeFailedClosed) // of each the first hit is missing
		time.Sleep(time.Minute)
		require.Zero(t, lim.Stats().Lacking)
		hit(100, limiter.OutcomeLocalAdmitted)
	})
}

// A user who comes in while the local counter is full for others is decided locally
// once all hits of the time before have left her window, however long the others go on.
func TestNewcomersDoNotWaitForTheFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, store, room := withoutRoom(t)
		defer lim.Close(over)
		for i, want := range outcomes(2, 2, 2, 2, 7) { // after 80 s
			room.broken.Store(true)
			for j := range 4_000 {
				allow(t, lim, user(fmt.Sprint("flood ", i, j)))
			}
			if i == 0 {
				allow(t, lim, user("ada"))
			}
			room.broken.Store(false)
			require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, user("ada")).Outcome())
			store.broken.Store(true)
			v := allow(t, lim, user("ada"))
			require.Equal(t, want, v.Outcome(), "%d: %v", i, v.Degraded)
			store.broken.Store(false)
			time.Sleep(20 * time.Second)
		}
		require.Greater(t, lim.Stats().Lacking, 0.9)
	})
}

// Hits that wait when a process ends, soon after the store is back, are carried
// within the time that Close has.
func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const users = 4_000
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("user", "5/h"))}})
		s.store.broken.Store(true)
		for i := range users {
			require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, s.lim, user(fmt.Sprint(i))).Outcome())
		}
		time.Sleep(30 * time.Second)
		s.store.broken.Store(false)
		time.Sleep(700 * time.Millisecond)
		require.Greater(t, s.lim.Stats().Pending, int64(users/2))
		late, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		require.NoError(t, s.lim.Close(late))
		require.Zero(t, s.lim.Stats().Pending)
		require.ErrorIs(t, try.Err(s.lim.Allow(ctx, "signup", user("0"))), limiter.ErrClosed)
		for i := range users {
			require.EqualValues(t, 1, counted(t, s.c, fmt.Sprint("user:", i)))
		}
	})
}

// Close ends with its context, whatever the store does.
func TestCloseKeepsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("user", "5/h"))}})
		s.store.broken.Store(true)
		for i := range 3 {
			allow(t, s.lim, user(fmt.Sprint(i)))
		}
		began := time.Now()
		late, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err := s.lim.Close(late)
		require.EqualError(t, err, "limiter: Close: 3 hits that were admitted locally are not known to be in the store: context deadline exceeded")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.NoError(t, s.lim.Close(ctx))
	})
}

// threeServers is a store on three servers: the first hangs, the second refuses,
// and the third is well, unless all are down.
type threeServers struct {
	flakyStore
	of func(key string) int
}

func (s *threeServers) ServerOf(key string) string { return fmt.Sprint("server ", s.of(key)) }

// placer is a backend.Placer without the backend.Store.
type placer interface{ ServerOf(key string) string }

func (s *threeServers) serve(ctx context.Context, key string, deadline time.Time) error {
	switch of := s.of(key); {
	case of == 0:
		late, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		<-late.Done()
		return context.DeadlineExceeded
	case of == 1:
		return errBroken
	}
	return nil
}

func (s *threeServers) Take(ctx context.Context, t *backend.TakeRequest) error {
	if s.broken.Load() {
		return errBroken
	}
	if err := s.serve(ctx, string(t.Keys[0].Key), t.Deadline); err != nil {
		return err
	}
	return s.flakyStore.Take(ctx, t)
}

func (s *threeServers) Do(ctx context.Context, r *backend.Request) error {
	if s.broken.Load() {
		return errBroken
	}
	if err := s.serve(ctx, r.Key, r.Deadline); err != nil {
		return err
	}
	return s.flakyStore.Do(ctx, r)
}

// Of three servers one hangs and one refuses: the hits of the third are carried at
// full pace, before either of the others has answered once, also while calls of
// both kinds go on.
func TestABadServerHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 1_000
		store := &threeServers{flakyStore: flakyStore{Store: memory.New(memory.Config{})}, of: func(key string) int {
			return strings.IndexByte("abc", key[len(key)-1])
		}}
		store.broken.Store(true)
		through := backend.Wrap(struct {
			backend.Atomic
			placer
		}{store, store}, func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error { return do(ctx) })
		lim := newLimiter(t, newCounter(t, through, counter.Config{}), limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("user", "5/h"))}, Local: localCounter(t)})
		for i := range each {
			for _, server := range "abc" {
				require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, lim, user(fmt.Sprintf("%d %c", i, server))).Outcome())
			}
		}
		time.Sleep(30 * time.Second)
		store.broken.Store(false)
		for range 10 {
			allow(t, lim, user("a guest b"))
			allow(t, lim, user("a guest c"))
			time.Sleep(500 * time.Millisecond)
		}
		stats := lim.Stats()
		require.EqualValues(t, each, stats.Carried, "%+v", stats)
		require.EqualValues(t, 2*each+5, stats.Pending)
		_ = lim.Close(over)
	})
}
