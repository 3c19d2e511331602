package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/child"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

func TestMain(m *testing.M) {
	child.Serve(serve)
	os.Exit(m.Run())
}

// tiny is s in seconds, for a busy machine. In the short form a connection pauses between
// two requests: the store stands still for a second and more.
func tiny(s scenario) scenario {
	s.connections, s.requests = min(s.connections, long.Rounds(60, 300)), min(s.requests, long.Rounds(200, 4000))
	if s.stop > 0 && !long.Asked() {
		s.pause = 80 * time.Millisecond
	}
	if s.users > 1 {
		s.users, s.connections, s.pause = 10, 20, 50*time.Millisecond
	}
	if s.stop > 0 {
		// Longer than a process remembers a denial.
		s.stop, s.tail = 1200*time.Millisecond, min(s.tail, 200*time.Millisecond)
	}
	s.lead, s.again = min(s.lead, 300*time.Millisecond), min(s.again, 1)
	return s
}

// The short form: no policy lets more through than its bound, a hit that was let
// through is counted in the end, a Peek denies at once, no answer hangs, and no
// goroutine is left. No time is judged. Scenarios take turns with the stores.
func TestShortFloods(t *testing.T) {
	turn := rand.IntN(len(stores))
	for i := range policies {
		policy := &policies[i]
		for _, s := range slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return s.Name == "stopped for 30 s" }) {
			s := tiny(s)
			if !policy.bounded || !policy.tries(&s) || policy.onFailure == limiter.FailClosed && s.services == 1 {
				continue // there is nothing to break, or the others say it all
			}
			turn++
			on := stores
			if !long.Asked() {
				on = on[turn%len(on):][:1]
			}
			t.Run(policy.name+", "+s.Name, func(t *testing.T) {
				t.Parallel()
				var trials []*trial
				for _, store := range on {
					trials = append(trials, &trial{scenario: &s, policy: policy, store: store, runs: 1})
				}
				require.NoError(t, sideBySide(t.Context(), trials...))
				for _, trial := range trials {
					require.Empty(t, trial.broken())
					require.Len(t, trial.floods, 1)
					f := trial.floods[0]
					require.GreaterOrEqual(t, len(f.took), s.requests)
					if s.usedUp {
						require.Positive(t, f.admitted)
					}
					require.NotEmpty(t, f.peeks)
					t.Logf("%s: %s let through of %d requests, the slowest after %s, all counted %s later", trial.store, trial.letThrough(),
						len(f.took), quantile(trial.times(), 1), f.carried.Round(time.Millisecond))
				}
			})
		}
	}
}

// A policy that lets requests through uncounted breaks every promise about hits.
func TestBrokenPromisesAreFound(t *testing.T) {
	open := policy{name: "open", onFailure: limiter.FailOpen, bounded: true}
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := tiny(flooded(scenario{Name: "stopped, fresh", services: 1, stop: standstill}))
			s.carry = time.Millisecond
			trial := &trial{scenario: &s, policy: &open, store: store, runs: 1}
			require.NoError(t, trial.run(t, t.Context()))
			found := strings.Join(trial.broken(), "\n")
			require.Contains(t, found, "hits in a window of 10/h, want at most 10")
			require.Contains(t, found, "hits are not in the store")
			trial.ends[0].Leak = "goroutine 1"
			require.Contains(t, strings.Join(trial.broken(), "\n"), "goroutines are left: goroutine 1")
		})
	}
}

// A key with hits that the store does not know has room where a Peek must deny.
func TestPeekThatAdmitsIsFound(t *testing.T) {
	s := scenarios[0]
	s.within = 0
	trial := &trial{scenario: &s, policy: &policies[1], store: "redis"}
	p := trial.start(t, startStore(t, trial.store).Addr)
	r := &round{trial: trial, flood: &flood{}, names: []string{"ada"}, services: []*process{p}}
	r.load.admitted = make([]atomic.Int64, 1)
	require.NoError(t, r.peek("at once"))
	require.Empty(t, r.breaks, "nobody has room for eleven")
	r.load.admitted[0].Store(1)
	require.NoError(t, r.peek("at once"))
	require.Len(t, r.breaks, 1)
	require.Contains(t, r.breaks[0], "Peek admits 10 hits of user ada at once, at least 1 of 10/h are admitted")
	require.NoError(t, try.Err(p.end()))
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := tiny(scenarios[0])
	require.ErrorIs(t, (&trial{scenario: &s, policy: &policies[1], store: "redis", runs: 1}).run(t, ctx), context.Canceled)
}

func TestCommandLine(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, run([]string{"--help"}, &out, io.Discard))
	require.Contains(t, out.String(), "--runs")
	for _, args := range [][]string{{"--runs", "0"}, {"--only", "nothing"}, {"--what"}, {"more"}} {
		require.Equal(t, 2, run(args, io.Discard, io.Discard), args)
	}
}

func TestPageIsWrapped(t *testing.T) {
	for _, line := range strings.Split(newCampaign(1, "", "").page("go run ./internal/testkit/floods"), "\n") {
		if !strings.HasPrefix(line, "|") {
			require.LessOrEqual(t, len(line), 100, line)
		}
	}
}

func TestOpenStore(t *testing.T) {
	for _, kind := range stores {
		require.Error(t, try.Err(openStore(kind, "no address")))
	}
}
