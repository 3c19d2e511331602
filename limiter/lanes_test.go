package limiter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

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
