package limiter_test

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
)

// The decision when the store fails: in this process, over a network, and by
// ticket.
func TestPolicies(t *testing.T) {
	open := func(r limiter.Rule) limiter.Rule { return onFailure(limiter.FailOpen, r) }
	skip := func(r limiter.Rule) limiter.Rule { return ifMissing(limiter.MissingSkip, r) }
	share := func(r limiter.Rule) limiter.Rule { return ifMissing(limiter.MissingShare, r) }
	byIP, byUser := by("ip", "5/h"), by("user", "5/h")
	home, ada := ip("192.0.2.1"), user("ada")
	for _, row := range []struct {
		name     string
		rules    []limiter.Rule
		features []feature.Feature
		want     limiter.Outcome
	}{
		{"closed", []limiter.Rule{byIP}, featuresOf(home), limiter.OutcomeFailedClosed},
		{"open", []limiter.Rule{open(byIP)}, featuresOf(home), limiter.OutcomeFailedOpen},
		{"open twice", []limiter.Rule{open(byIP), open(byUser)}, featuresOf(home, ada), limiter.OutcomeFailedOpen},
		{"one is closed", []limiter.Rule{open(byIP), byUser}, featuresOf(home, ada), limiter.OutcomeFailedClosed},
		{"the other is closed", []limiter.Rule{byIP, open(byUser)}, featuresOf(home, ada), limiter.OutcomeFailedClosed},
		{"one that is skipped is not asked", []limiter.Rule{open(byIP), skip(byUser)}, featuresOf(home), limiter.OutcomeFailedOpen},
		{"nor one before it", []limiter.Rule{skip(byUser), open(byIP)}, featuresOf(home), limiter.OutcomeFailedOpen},
		{"one that shares is", []limiter.Rule{open(byIP), share(byUser)}, featuresOf(home), limiter.OutcomeFailedClosed},
		{"one that is skipped does not open either", []limiter.Rule{byIP, open(skip(byUser))}, featuresOf(home), limiter.OutcomeFailedClosed},
		{"nothing to ask", []limiter.Rule{skip(byIP)}, nil, limiter.OutcomeSkipped},
		{"something missing", []limiter.Rule{open(byIP), open(byUser)}, featuresOf(home), limiter.OutcomeMissing},
	} {
		for name, on := range map[string]func(s *flakyStore) backend.Store{
			"in this process": func(s *flakyStore) backend.Store { return s },
			"over a network":  func(s *flakyStore) backend.Store { return struct{ backend.Atomic }{s} },
			"by ticket":       func(s *flakyStore) backend.Store { return struct{ backend.Store }{s} },
		} {
			t.Run(row.name+", "+name, func(t *testing.T) {
				store := &flakyStore{Store: memory.New(memory.Config{})}
				c := newCounter(t, on(store), counter.Config{Patience: time.Minute})
				lim := newLimiter(t, c, limiter.Config{Rules: row.rules, DecideWithin: time.Minute})
				store.broken.Store(true)
				for call, v := range map[string]limiter.Verdict{
					"allow": allow(t, lim, row.features...), "peek": peek(t, lim, 2, row.features...), "all of it": allowN(t, lim, 5, row.features...),
				} {
					require.Equal(t, row.want, v.Outcome(), call)
					require.Equal(t, row.want == limiter.OutcomeFailedOpen || row.want == limiter.OutcomeSkipped, v.Allowed, call)
					if row.want == limiter.OutcomeFailedClosed || row.want == limiter.OutcomeFailedOpen {
						require.ErrorIs(t, v.Degraded, counter.ErrStore, call)
						require.ErrorIs(t, v.Degraded, errBroken, call)
						require.NotContains(t, v.Degraded.Error(), "192.0.2.1", call)
						requireRetry(t, v, call)
						require.Equal(t, []any{int64(0), time.Duration(0), "", 0}, []any{v.Remaining, v.ResetAfter, v.Kind(), len(v.All())}, call)
					} else {
						require.NoError(t, v.Degraded, call)
					}
				}

				v, err := lim.Allow(ctx, "signup", row.features...)
				require.NoError(t, err)
				store.broken.Store(false)
				require.NoError(t, lim.Refund(ctx, &v), "nothing was counted")
				require.Zero(t, counted(t, c, "ip:192.0.2.1"))
				if v, err = lim.Allow(ctx, "signup", row.features...); row.want == limiter.OutcomeFailedClosed || row.want == limiter.OutcomeFailedOpen {
					require.NoError(t, err)
					require.Equal(t, limiter.OutcomeAdmitted, v.Outcome(), "the store is back")
					require.EqualValues(t, 4, v.Remaining)
				}
			})
		}
	}
}

// requireRetry looks at what a decision without the store's answer says of
// coming back.
func requireRetry(t testing.TB, v limiter.Verdict, what string) {
	if v.Allowed {
		require.Zero(t, v.RetryAfter, what)
		return
	}
	require.GreaterOrEqual(t, v.RetryAfter, 500*time.Millisecond, what)
	require.Less(t, v.RetryAfter, 1500*time.Millisecond, what)
}

// A decision is there in time, whatever the store does.
func TestDecideWithin(t *testing.T) {
	const slow = 10 * time.Second
	for _, row := range []struct {
		name   string
		within time.Duration
		deaf   bool
		policy limiter.OnFailure
		takes  time.Duration
		want   limiter.Outcome
	}{
		{"the default", 0, false, limiter.FailClosed, limiter.DefaultDecideWithin, limiter.OutcomeFailedClosed},
		{"the default, open", 0, false, limiter.FailOpen, limiter.DefaultDecideWithin, limiter.OutcomeFailedOpen},
		{"shorter", 20 * time.Millisecond, true, limiter.FailClosed, 20 * time.Millisecond, limiter.OutcomeFailedClosed},
		{"longer", 3 * time.Second, false, limiter.FailOpen, 3 * time.Second, limiter.OutcomeFailedOpen},
		{"long enough", slow + time.Second, false, limiter.FailClosed, slow, limiter.OutcomeAdmitted},
		{"none", -1, true, limiter.FailClosed, slow, limiter.OutcomeAdmitted},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newFarStore(slow)
			store.deaf = row.deaf
			var told []limiter.Decision
			lim := newLimiter(t, farCounter(t, store), limiter.Config{
				Rules:        []limiter.Rule{onFailure(row.policy, by("ip", "5/h")), onFailure(row.policy, by("user", "5/h"))},
				DecideWithin: row.within,
				Observe:      func(d limiter.Decision) { told = append(told, d) },
			})
			began := time.Now()
			v := allow(t, lim, ip("192.0.2.1"), user("ada"))
			require.Equal(t, row.takes, time.Since(began), row.name)
			require.Equal(t, row.want, v.Outcome(), row.name)
			if row.want != limiter.OutcomeAdmitted {
				if row.deaf { // else the store itself may be first to say so
					require.EqualError(t, v.Degraded, `limiter: event "signup": the store failed: no answer within Config.DecideWithin of `+row.takes.String(), row.name)
				}
				require.ErrorContains(t, v.Degraded, `event "signup": `, row.name)
				require.ErrorIs(t, v.Degraded, counter.ErrStore, row.name)
				requireRetry(t, v, row.name)
			}
			require.Len(t, told, 1, row.name)
			require.Equal(t, row.takes, told[0].Latency, row.name)
			time.Sleep(slow) // the call in the background ends, and the bubble with the call
		})
	}
}

// A store in this process has no deadline: no answer of it could be late.
func TestDecideWithinIsNotForThisProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := struct {
			*farStore
			local
		}{farStore: newFarStore(time.Second)}
		store.deaf = true
		lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("ip", "5/h")}, DecideWithin: time.Millisecond})
		require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, ip("192.0.2.1")).Outcome())
	})
}

type local struct{}

func (local) Keeps() bool                                        { return false }
func (local) Bind(backend.Store, *backend.TakeKey) backend.Quota { return nil }

// All features share a deadline, though each feature takes a step.
func TestDecideWithinIsForAllFeatures(t *testing.T) {
	for _, policy := range []limiter.OnFailure{limiter.FailClosed, limiter.FailOpen} {
		synctest.Test(t, func(t *testing.T) {
			const timeout = 50 * time.Millisecond
			store := newFarStore(30 * time.Millisecond)
			store.apart, store.deaf = true, true
			c := farCounter(t, store)
			lim := newLimiter(t, c, limiter.Config{DecideWithin: timeout, Rules: []limiter.Rule{
				onFailure(policy, by("ip", "5/h")), onFailure(policy, by("user", "5/h")), onFailure(policy, by("email", "5/h"))}})
			features := featuresOf(ip("192.0.2.1"), user("ada"), feature.Email("ada@example.org"))
			began := time.Now()
			require.Equal(t, limiter.OutcomeMissing, allow(t, lim, features[0]).Outcome())
			v := allow(t, lim, features...)
			require.Equal(t, timeout, time.Since(began))
			require.ErrorIs(t, v.Degraded, counter.ErrStore)
			time.Sleep(time.Second)
			for _, feature := range []string{"ip:192.0.2.1", "user:ada", "email:ada@example.org"} {
				require.Zero(t, counted(t, c, feature), "all or nothing, also late: %s", feature)
			}
		})
	}
}

// An error of the Counter is the caller's unless the store failed, over a
// network too.
func TestCallersMistakesAreNotTheStores(t *testing.T) {
	for name, store := range map[string]backend.Store{
		"in this process": memory.New(memory.Config{}),
		"over a network":  newFarStore(0),
	} {
		c := newCounter(t, store, counter.Config{Now: func() time.Time { return time.Time{} }})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailOpen, by("ip", "5/h"))}, DecideWithin: time.Minute})
		for range 100 { // what was wrong once depended on who was first
			v, err := lim.Allow(ctx, "signup", ip("192.0.2.1"))
			require.ErrorContains(t, err, "counter: Config.Now: ", name)
			require.NotErrorIs(t, err, counter.ErrStore, name)
			require.Equal(t, limiter.Verdict{}, v, name)
		}
	}
}

// Two thousand callers, each with an address of its own, call a server that
// stands still, with all defaults: each caller has a decision after a second,
// and when the server goes on, no hit of theirs stays.
func TestFrozenServer(t *testing.T) {
	const callers = 2000
	for _, kind := range kindsOfServer {
		t.Run(kind.name, func(t *testing.T) {
			w := newWire(t, kind)
			idle := w.conns()
			var store backend.Store
			var closeStore func() error
			if kind.name == "Redis" {
				s := try.To(redis.Open("redis://"+w.server.Addr, redis.Config{}))(t)
				store, closeStore = s, s.Close
			} else {
				s := try.To(memcache.New(memcache.Config{}, w.server.Addr))(t)
				store, closeStore = s, s.Close
			}
			lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("ip", "5/h")}})
			before := runtime.NumGoroutine()
			require.Eventually(t, func() bool { return allow(t, lim, ip("192.0.2.1")).Outcome() == limiter.OutcomeAdmitted }, patience, time.Millisecond)
			w.server.Pause()
			took := make([]time.Duration, callers)
			ticket.SideBySide(callers, func(i int) {
				began := time.Now()
				v, err := lim.Allow(ctx, "signup", feature.IP(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})))
				took[i] = time.Since(began)
				if err != nil || v.Outcome() != limiter.OutcomeFailedClosed {
					t.Error(v, err)
				}
			})
			slices.Sort(took)
			t.Logf("%d decisions: p50 %s, slowest %s", callers, took[callers/2], took[callers-1])
			long.Less(t, took[callers-1], limiter.DefaultDecideWithin+slowness)
			require.GreaterOrEqual(t, took[callers-1], limiter.DefaultDecideWithin/2)
			w.server.Resume()
			require.Eventually(t, func() bool {
				v := allow(t, lim, ip("192.0.2.2"))
				return v.Outcome() == limiter.OutcomeAdmitted
			}, patience, 10*time.Millisecond)
			began := time.Now()
			require.NoError(t, closeStore())
			var conns, goroutines int
			for conns, goroutines = w.conns(), runtime.NumGoroutine(); (conns > idle || goroutines > before) && time.Since(began) < patience; {
				<-time.After(10 * time.Millisecond)
				conns, goroutines = w.conns(), runtime.NumGoroutine()
			}
			require.LessOrEqual(t, conns, idle, "connections are left")
			require.LessOrEqual(t, goroutines, before, "goroutines are left")
			t.Logf("nothing is left %s after it went on", time.Since(began))
		})
	}
}
