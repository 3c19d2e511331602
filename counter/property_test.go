package counter_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/script"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "seed of the random scripts; 0: a new one")
	roundsFlag = flag.Int("scripts", 0, "random scripts for each path, ladder and skew; 0: as many as the form of the tests has")
	scriptFlag = flag.String("script", "", "play the script in this file, as a failing test printed it")
)

func seed(t testing.TB) uint64 {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d: run again with -run '%s' -seed %d", s, t.Name(), s)
	return s
}

// wideLadder has up to 8,641 buckets in a window, and few scripts.
const wideLadder = "10s:1d"

// rounds is the number of random scripts for each path, ladder and skew.
func rounds() int {
	if *roundsFlag > 0 {
		return *roundsFlag
	}
	return long.Rounds(2, 25)
}

// scripts is the number of random scripts for each path and skew.
func scripts(l tiers.Ladder) int {
	if l.String() == wideLadder {
		return max(1, rounds()/4)
	}
	return rounds()
}

func ladders(t testing.TB) []tiers.Ladder {
	var all []tiers.Ladder
	for _, s := range []string{
		"1s:1d, 1m:1d, 1h:1d",
		"100ms:1m, 1s:1h, 1m:1d, 1h:7d, 1d:7d",
		"1m:1d, 1h:1d",
		"10s:1h",
		wideLadder,
		"1s:1m, 1h:7d", // the fine tier is dropped long before a coarse bucket is full
		"1s:10s, 10s:10m, 10m:1d",
		"1m:1d, 1h:30d",
		"1s:1h, 1m:1d, 1h:30d",
		"1s:1h, 15m:32d, 1h:32d, 1d:32d",
	} {
		l := try.To(tiers.Parse(s))(t)
		all = append(all, l)
	}
	return all
}

// Every answer to every script, on both paths, agrees with the log of all hits:
// never over Max in any true window, never denied beyond the grid, all or
// nothing, and RetryAfter exact to the nanosecond.
func TestScriptsAgainstTheOracle(t *testing.T) {
	if *scriptFlag != "" {
		s := try.To(script.Parse(string(try.To(os.ReadFile(*scriptFlag))(t))))(t)
		for _, path := range paths {
			require.NoError(t, try.Err(s.Play(path.store(), "")), path.name)
		}
		return
	}
	var played, allowed, denied atomic.Int64
	t.Cleanup(func() {
		require.Greater(t, allowed.Load(), 5*played.Load(), "scripts in which nothing is admitted prove nothing")
		require.Greater(t, denied.Load(), 5*played.Load(), "nor do those in which nothing is denied")
	})
	for _, path := range paths {
		for _, ladder := range ladders(t) {
			for _, clocks := range []struct{ skew, settle time.Duration }{{-1, -1}, {150 * time.Millisecond, -1}, {3 * time.Second, 10 * time.Second}, {ladder.At(0).Width * 9 / 8, -1}} {
				t.Run(fmt.Sprintf("%s, %s, skew %s", path.name, ladder, clocks.skew), func(t *testing.T) {
					t.Parallel()
					r := rand.New(rand.NewPCG(seed(t), 1))
					for range scripts(ladder) {
						played.Add(1)
						s := script.Random(r, ladder, clocks.skew, clocks.settle, 80)
						s.Exact = r.IntN(4) == 0
						answers, err := s.Play(path.store(), "")
						if err != nil {
							t.Fatalf("%v\nsave this script and play it with -script FILE:\n%s", err, s.Shrink(func(s script.Script) bool {
								_, err := s.Play(path.store(), "")
								return err != nil
							}))
						}
						for i, a := range answers {
							if v := s.Calls[i].Verb; v == "take" || v == "takeall" {
								if a.Verdict.Allowed {
									allowed.Add(1)
								} else {
									denied.Add(1)
								}
							}
						}
					}
				})
			}
		}
	}
}

// Scripts that once failed.
func TestScriptsThatOnceFailed(t *testing.T) {
	scripts := script.Once()
	require.NotEmpty(t, scripts)
	for name, s := range scripts {
		for _, path := range paths {
			t.Run(name+", "+path.name, func(t *testing.T) {
				try.To(s.Play(path.store(), ""))(t)
			})
		}
	}
}

// taker is an atomic store without the methods of every store.
type taker interface {
	Take(ctx context.Context, r *backend.TakeRequest) error
	Together(keys []backend.TakeKey) bool
}

// A script gets the same verdicts on every path: the binding limit, the
// remaining hits, the time to come back; and by the short way of the memory store the
// same answers, to the last state. Denials that may be remembered are alike in being
// denials.
func TestPathsAgree(t *testing.T) {
	for _, ladder := range ladders(t) {
		for _, clocks := range []struct{ skew, settle time.Duration }{{-1, -1}, {150 * time.Millisecond, -1}} {
			t.Run(fmt.Sprintf("%s, skew %s", ladder, clocks.skew), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(seed(t), 2))
				for range scripts(ladder) {
					s := script.Random(r, ladder, clocks.skew, clocks.settle, 80)
					s.Exact = true
					// All forget as FromDo does: the label of a Forget is remembered to the
					// second there, and exactly by other stores.
					atomic := paths[0].store().(backend.Atomic)
					want := try.To(s.Play(struct {
						backend.Store
						taker
					}{backend.FromDo(atomic.Do), atomic}, ""))(t)
					for _, path := range paths[1:] {
						got := try.To(s.Play(backend.FromDo(path.store().Do), ""))(t)
						denied := map[string]int64{} // the clock of the latest denial, by call
						for i, c := range s.Calls {
							if call := fmt.Sprint(c.N, c.Asks); !want[i].Verdict.Allowed && slices.Contains([]string{"take", "takeall", "peek"}, c.Verb) {
								was, again := denied[call]
								denied[call] = c.At
								if again && c.At < was+int64(time.Second) && !got[i].Verdict.Allowed {
									continue // one of the paths may remember what it has told
								}
							}
							if diff := differ(s, want[i], got[i]); diff != "" {
								t.Fatalf("call %d, %s: %s, not as %s:\n%s", i, path.name, diff, paths[0].name, s)
							}
						}
					}
					general := try.To(s.Play(general{memory.New(memory.Config{})}, ""))(t)
					short := try.To(s.Play(memory.New(memory.Config{}), ""))(t)
					for i, want := range general {
						require.Equal(t, want.States, short[i].States, "call %d:\n%s", i, s)
						require.Equal(t, want.Verdict.At(), short[i].Verdict.At(), "call %d:\n%s", i, s)
						require.Equal(t, want.Verdict.ResetAfter, short[i].Verdict.ResetAfter, "call %d:\n%s", i, s)
						require.Empty(t, differ(s, want, short[i]), "call %d:\n%s", i, s)
					}
				}
			})
		}
	}
}

// general is a memory store without a short way.
type general struct{ local }

type local interface {
	backend.Atomic
	backend.Local
}

func differ(s script.Script, want, got script.Answer) string {
	a, b := want.Verdict, got.Verdict
	switch {
	case a.Allowed != b.Allowed || a.Key != b.Key || a.Limit != b.Limit:
		return fmt.Sprintf("allowed %v by %v %v, want %v by %v %v", b.Allowed, b.Key, b.Limit, a.Allowed, a.Key, a.Limit)
	case a.RetryAfter != b.RetryAfter:
		return fmt.Sprintf("retry after %v, want %v", b.RetryAfter, a.RetryAfter)
	case want.Count != got.Count:
		return fmt.Sprintf("count %v, want %v", got.Count, want.Count)
	case a.Remaining != b.Remaining:
		return fmt.Sprintf("remaining %v, want %v", b.Remaining, a.Remaining)
	case len(want.States) != len(got.States):
		return fmt.Sprintf("%d states, want %d", len(got.States), len(want.States))
	}
	// An admitted ticket knows its own label only, and not the hits of a clock
	// ahead.
	if apart := a.ResetAfter - b.ResetAfter; s.Skew < 0 && apart != 0 {
		return fmt.Sprintf("reset after %v, want %v", b.ResetAfter, a.ResetAfter)
	}
	return ""
}
