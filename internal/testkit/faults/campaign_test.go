package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/child"
	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/race"
)

var (
	seed   = flag.Uint64("seed", 0, "the seed of the campaign; 0: one by chance")
	length = flag.Duration("for", 0, "how long the campaign lasts; 0: 3s, and 30s in the long form of the tests")
)

func TestMain(m *testing.M) {
	child.Serve(serve)
	if os.Getenv(parentVariable) != "" {
		parent()
	}
	os.Exit(m.Run())
}

// Faults come to every store, in the long form every kind at least once, and no
// promise is broken; and nothing is left behind. -seed repeats the calls and the faults of a run, as far as real
// time allows.
func TestShortCampaign(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(rand.Uint32()) + 1
	}
	before := runtime.NumGoroutine()
	c := &campaign{seed: s, rate: float64(long.Rounds(200, 320)), calm: time.Duration(long.Rounds(400, 200)) * time.Millisecond}
	again := "go test ./internal/testkit/faults -run TestShortCampaign -seed " + fmt.Sprint(s)
	t.Log("again:", again)
	lasts, all := *length, kinds
	if !long.Asked() {
		all = nil
	}
	if lasts == 0 {
		lasts = time.Duration(long.Rounds(3, 30)) * time.Second
	}
	runCampaign(t, c, lasts, func() bool {
		full := slices.ContainsFunc(c.worlds, func(w *world) bool { return w.report().Full > 0 })
		idle := slices.ContainsFunc(c.worlds, func(w *world) bool { return w.report().Windows == 0 })
		missing := slices.ContainsFunc(all, func(k kind) bool {
			return !slices.ContainsFunc(c.worlds, func(w *world) bool { return w.came(k.Name) })
		})
		return full && !idle && !missing
	})
	require.NoError(t, c.verdict(), again)
	nothingLeft(t, c, before)
	came := map[string]int{}
	full := int64(0)
	for _, w := range c.worlds {
		for name, n := range w.faults {
			came[name] += n
		}
		full += w.report().Full
		require.Positive(t, w.report().Windows, w.name)
	}
	for _, k := range all {
		require.Positive(t, came[k.Name], k.Name)
	}
	require.Positive(t, full, "no window was full: that proves nothing")
	t.Log("\n" + c.page(again))
}

// came reports whether a fault came upon the world.
func (w *world) came(fault string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults[fault] > 0
}

// runCampaign runs a campaign, and prints what it finds. On a slow machine the
// campaign lasts longer, until it has enough.
func runCampaign(t *testing.T, c *campaign, length time.Duration, enough func() bool) {
	t.Helper()
	const longest = 4 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	require.NoError(t, c.run(ctx, func(c *campaign) {
		if time.Since(c.Began) >= length && enough() {
			cancel()
		}
	}))
	for _, w := range c.worlds {
		for _, f := range w.report().Findings {
			t.Logf("%s: %s", w.name, &f)
		}
	}
}

// A store which breaks its contract is found in seconds, whatever faults excuse; and
// so is a loss without a word to the rules.
func TestPlantedBreaksAreFound(t *testing.T) {
	long.Only(t, "twenty short campaigns, a minute and a half of two processors")
	if race.On {
		t.Skip("the campaigns find the same without the race detector; another test races one")
	}
	const loses, believes, low, high, early = "every 50th addition is not made", "an error is a count of zero", "a count is one too low", "a count is one too high", "a day begins early"
	for _, row := range []struct {
		plant, blind string
		worlds       []string
		rules        []int // one of which finds it
	}{
		{loses, "", []string{"memcached", "memcached nodes", "memcached that evicts", "redis", "redis that evicts", "redis sentinel", "redis cluster"}, []int{2, 3}},
		{low, "", []string{"memcached", "redis"}, []int{2, 3}},
		{high, "", []string{"redis", "redis cluster", "memory"}, []int{4}},
		{early, "", []string{"redis", "memory"}, []int{4}},
		{believes, "", []string{"memcached", "redis"}, []int{2, 3}},
		{"", "server emptied", []string{"memcached nodes"}, []int{2, 3}},
		{"", "list of servers changed", []string{"memcached nodes"}, []int{2, 3}},
		{"", evicted, []string{"memcached that evicts", "redis that evicts"}, []int{2, 3}},
		{"", failedOver, []string{"redis sentinel", "redis cluster"}, []int{2, 3}},
	} {
		for _, world := range row.worlds {
			t.Run(row.plant+row.blind+", "+world, func(t *testing.T) {
				c := &campaign{seed: 7, rate: 300, calm: time.Second, plant: row.plant, only: world, blind: row.blind}
				if row.blind != "" || row.plant == believes {
					c.calm = 500 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
				defer cancel()
				var found *history.Finding
				require.NoError(t, c.run(ctx, func(*campaign) {
					for _, f := range c.worlds[0].report().Findings {
						if found == nil && slices.Contains(row.rules, f.Rule) {
							found = &f
							cancel()
						}
					}
				}))
				require.NotNil(t, found)
				require.Error(t, c.verdict())
				t.Logf("found after %v: %s", c.Took.Round(100*time.Millisecond), found)
			})
		}
	}
}

func init() {
	plants["every 50th addition is not made"] = func(s backend.Store) backend.Store { return planted(s, &plant{loses: 50}) }
	plants["an error is a count of zero"] = func(s backend.Store) backend.Store { return planted(s, &plant{believes: true}) }
	plants["a day begins early"] = func(s backend.Store) backend.Store { return planted(s, &plant{early: 10 * time.Second}) }
	plants["a count is one too low"] = func(s backend.Store) backend.Store { return planted(s, &plant{adds: -1}) }
	plants["a count is one too high"] = func(s backend.Store) backend.Store { return planted(s, &plant{adds: 1}) }
}

// plant is a store with a mistake.
type plant struct {
	backend.Store
	loses int64 // of so many additions one; 0: none
	adds  int64 // to what it counts, in one of ten
	early time.Duration

	believes bool // any answer

	calls atomic.Int64
}

// plantedTaker is a plant with an atomic step.
type plantedTaker struct {
	*plant
	backend.Atomic
}

// plantedLocal is a plant in the process, whose denials no one remembers.
type plantedLocal struct{ plantedTaker }

func (plantedLocal) Keeps() bool                                        { return true }
func (plantedLocal) Bind(backend.Store, *backend.TakeKey) backend.Quota { return nil }

var _ backend.Local = plantedLocal{}

func (p plantedTaker) Do(ctx context.Context, op *backend.Request) error { return p.plant.Do(ctx, op) }

func planted(s backend.Store, p *plant) backend.Store {
	p.Store = s
	taker, atomically := s.(backend.Atomic)
	if _, local := s.(backend.Local); local {
		return plantedLocal{plantedTaker{p, taker}}
	}
	if atomically {
		return plantedTaker{p, taker}
	}
	return p
}

func (p *plant) Do(ctx context.Context, op *backend.Request) error {
	if err := p.Store.Do(ctx, op); err != nil {
		if p.believes {
			return nil
		}
		return err
	}
	if p.loses > 0 && op.N > 0 && len(op.Add) > 0 && p.calls.Add(1)%p.loses == 0 {
		back := *op
		back.N, back.Read = -op.N, nil
		back.Add = append([]backend.Slot(nil), op.Add...)
		return p.Store.Do(ctx, &back)
	}
	if p.adds != 0 && len(op.Read) > 0 && p.calls.Add(1)%10 == 0 {
		for _, span := range op.Read {
			for i := range span.Counts {
				if span.Counts[i] > 0 {
					span.Counts[i] += p.adds
					return nil
				}
			}
		}
	}
	return nil
}

func (p plantedTaker) Take(ctx context.Context, t *backend.TakeRequest) error {
	for i := range t.Keys {
		for j, w := range t.Keys[i].Windows {
			if !w.Period.IsZero() {
				t.Keys[i].Windows[j].Reach += p.early
				defer func() { t.Keys[i].Windows[j].Reach -= p.early }()
			}
		}
	}
	if p.adds != 0 && p.calls.Add(1)%10 == 0 {
		for i := range t.Keys {
			for j := range t.Keys[i].Windows {
				t.Keys[i].Windows[j].Max -= p.adds
				defer func() { t.Keys[i].Windows[j].Max += p.adds }()
			}
		}
		return p.Atomic.Take(ctx, t)
	}
	err := p.Atomic.Take(ctx, t)
	if err != nil && p.believes {
		t.Allowed = true
		return nil
	}
	if err != nil || !t.Allowed || t.Peek {
		return err
	}
	if p.loses > 0 && p.calls.Add(1)%p.loses == 0 {
		for i := range t.Keys {
			op := &backend.Request{Key: string(t.Keys[i].Key), Ladder: t.Keys[i].Ladder, Now: t.Now, N: -t.Keys[i].N}
			for j, b := range t.Keys[i].Ladder.Buckets(t.Now) {
				op.Add = append(op.Add, backend.Slot{Bucket: b, TTL: t.Keys[i].TTLs[j]})
			}
			if err := p.Store.Do(ctx, op); err != nil {
				return err
			}
		}
	}
	return nil
}

// A call whose limits do not fit the ladder would fail, as under a fault.
func TestLimitsFitTheirLadders(t *testing.T) {
	for _, g := range groups {
		for _, l := range g.limits {
			require.NoError(t, l.Check(ladders[g.ladder]), "%s", g.name)
		}
	}
	for _, l := range slices.Concat(crowdLimits[:]...) {
		require.NoError(t, l.Check(ladders[0]))
	}
}

func TestClockKnowsItsReadings(t *testing.T) {
	c := &clock{rng: random(1), pause: func(*rand.Rand) time.Duration { return 0 }}
	c.set(0, 0)
	for i := range 2000 {
		switch i % 100 {
		case 30:
			c.set(time.Duration(i)*time.Microsecond, 0)
		case 60:
			c.set(-time.Duration(i)*time.Microsecond, 20*time.Millisecond)
		}
		from := time.Now().UnixNano()
		label := c.Now().UnixNano()
		to := time.Now().UnixNano()
		at := c.read(label, from)
		require.True(t, from <= at && at <= to)
		lo, hi, off := c.span(from, to)
		require.True(t, lo <= label && label <= hi, "%d is not within %d and %d", label, lo, hi)
		require.LessOrEqual(t, off, int64(2*time.Millisecond))
	}
	require.Zero(t, c.read(1, 0))
	// A step between the two instants.
	c.set(0, 0)
	from := time.Now().UnixNano()
	c.set(time.Second, 0)
	time.Sleep(time.Millisecond)
	label := c.Now().UnixNano()
	lo, hi, _ := c.span(from, time.Now().UnixNano())
	require.True(t, lo < label-int64(time.Second) && label <= hi, "%d is not within %d and %d", label, lo, hi)
}

// nothingLeft requires that the processes, connections, servers and goroutines of a
// campaign have ended.
func nothingLeft(t *testing.T, c *campaign, before int) {
	for _, w := range c.worlds {
		require.Empty(t, w.processes)
		require.GreaterOrEqual(t, w.left.ended, w.crew)
		require.Zero(t, w.left.processes, w.left.stacks)
		require.Zero(t, w.left.conns)
		for _, server := range w.servers {
			require.NoDirExists(t, server.Dir())
		}
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, time.Minute, 10*time.Millisecond,
		"the thread that starts servers stays")
}
