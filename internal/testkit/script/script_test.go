package script

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// A printed script can be read again.
func TestRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	verbs := map[string]bool{}
	for _, l := range []string{"1s:1d, 1m:1d, 1h:1d", "100ms:1m, 1s:1h, 1m:1d, 1h:7d, 1d:7d", "10s:1d"} {
		s := Random(r, parse.Ladder(l), time.Second, -1, 400)
		again := try.To(Parse(s.String()))(t)
		require.Equal(t, s, again)
		for _, c := range s.Calls {
			verbs[c.Verb] = true
		}
	}
	require.Len(t, verbs, 11)
}

func TestParseShowsTheLine(t *testing.T) {
	for line, want := range map[string]string{
		"ladder 1m":         `script: "ladder 1m": tiers: "1m": want width:keep`,
		"skew fast":         `script: "skew fast": `,
		"0 take":            "2 words",
		"soon take 1 a/x":   `parsing "soon"`,
		"0 take one a/x":    `parsing "one"`,
		"0 give 1 a/x":      `no verb "give"`,
		"0 take 1 a/x=7":    `limit "7"`,
		"0 take 1":          "1 words after the verb, want N ask",
		"0 refund 0":        "a refund of call 0, want one before",
		"0 settle 0 1":      "a settle of call 0, want one before",
		"0 settle 0":        "want N Used",
		"0 count a/x":       "want ask Window",
		"0 count a/x later": "later",
		"0 addat 1 a/x":     "want N ask Back",
	} {
		require.ErrorContains(t, try.Err(Parse(line)), want, line)
	}
}

// forgetful is a store that adds to no minute in one second of three.
type forgetful struct{ backend.Store }

func (f forgetful) Do(ctx context.Context, op *backend.Request) error {
	if op.N > 0 && len(op.Add) == 3 && op.Add[0].Index%3 == 0 {
		short := *op
		short.Add = []backend.Slot{op.Add[0], op.Add[2]}
		err := f.Store.Do(ctx, &short)
		op.Add[0], op.Add[2], op.Add[1].Count = short.Add[0], short.Add[1], op.N
		return err
	}
	return f.Store.Do(ctx, op)
}

// twice is a store that counts a hit twice now and then.
type twice struct{ backend.Store }

func (s twice) Do(ctx context.Context, op *backend.Request) error {
	if op.N == 1 && len(op.Add) > 0 && op.Add[0].Index%50 == 0 {
		again := *op
		again.Add, again.Read = append([]backend.Slot(nil), op.Add...), nil
		if err := s.Store.Do(ctx, &again); err != nil {
			return err
		}
	}
	return s.Store.Do(ctx, op)
}

// A store that miscounts is found, and what is left of the script is short, and
// fails as well.
func TestAFailingScriptIsShrunk(t *testing.T) {
	for name, wrong := range map[string]func(backend.Store) backend.Store{
		"forgetful": func(s backend.Store) backend.Store { return forgetful{s} },
		"twice":     func(s backend.Store) backend.Store { return twice{s} },
	} {
		t.Run(name, func(t *testing.T) {
			play := func(s Script) ([]Answer, error) { return s.Play(wrong(memory.New(memory.Config{})), "x") }
			r := rand.New(rand.NewPCG(1, 2))
			var err error
			for tries := 100; err == nil && tries > 0; tries-- {
				_, err = Random(r, parse.Ladder("1s:1d, 1m:1d, 1h:1d"), -1, -1, 80).Try(play)
			}
			require.Error(t, err, "no script found it")
			text := err.Error()
			short := try.To(Parse(text[strings.LastIndex(text, "ladder "):]))(t)
			require.Less(t, len(short.Calls), 20, "%s", short)
			require.Error(t, try.Err(play(short)))
			require.NoError(t, try.Err(short.Play(memory.New(memory.Config{}), "x")))
		})
	}
}

// stingy is a store that gives back one hit less of several.
type stingy struct{ backend.Atomic }

func (s stingy) Do(ctx context.Context, op *backend.Request) error {
	short := *op
	if op.N < -1 {
		short.N++
	}
	return s.Atomic.Do(ctx, &short)
}

// A Settle that counts more than was used is found.
func TestASettleThatMiscountsIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	fails := func(s Script) bool {
		_, err := s.Play(stingy{memory.New(memory.Config{})}, "x")
		return err != nil
	}
	for range 100 {
		s := Random(r, parse.Ladder("1s:1d, 1m:1d, 1h:1d"), -1, -1, 80)
		for i := len(s.Calls) - 1; i >= 0; i-- { // takes, and settlements of them
			if c := s.Calls[i]; c.Verb != "take" && (c.Verb != "settle" || s.Calls[c.N].Verb != "take") {
				s, _ = s.without(i)
			}
		}
		if !fails(s) {
			continue
		}
		short := s.Shrink(fails)
		require.Less(t, len(short.Calls), 10, "%s", short)
		require.True(t, slices.ContainsFunc(short.Calls, func(c Call) bool { return c.Verb == "settle" }), "%s", short)
		require.NoError(t, try.Err(short.Play(memory.New(memory.Config{}), "x")))
		return
	}
	t.Fatal("no script found it")
}

// late is a store that has dropped the finest buckets of a key.
type late struct{ backend.Atomic }

func (s late) Do(ctx context.Context, op *backend.Request) error {
	if op.N > 0 && len(op.Add) == op.Ladder.Len() && !op.AnyLabel {
		return backend.ErrStaleLabel
	}
	return s.Atomic.Do(ctx, op)
}

// Hits that are older than the finest Keep are not in dropped buckets: their bucket may
// reach into a window, which the store of other callers then need not know.
func TestHitsInCoarserTiersAlone(t *testing.T) {
	s := try.To(Parse("ladder 1s:10s, 10s:10m\nskew -1ns\nsettle -1ns\n" +
		"10354657620 addat 1 a/x 10.138283689s\n10504293234 peek 5 a/x=84/10s,48/10s"))(t)
	store := late{memory.New(memory.Config{})}
	require.NoError(t, try.Err(s.Play(store, "x")))
	require.ErrorContains(t, try.Err(s.Play(store, "")), "the log says")
}

// Scripts with prefixes of their own do not meet on one store.
func TestScriptsShareAStore(t *testing.T) {
	store := memory.New(memory.Config{})
	s := Random(rand.New(rand.NewPCG(1, 2)), parse.Ladder("1s:1d, 1m:1d, 1h:1d"), -1, -1, 80)
	for _, prefix := range []string{"a", "b"} {
		require.NoError(t, try.Err(s.Play(store, prefix)))
	}
	require.ErrorContains(t, try.Err(s.Play(store, "a")), "call ")
}
