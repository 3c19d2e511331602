package compare

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// inMemory opens the store of --store memory.
func inMemory(t testing.TB) *stores.Opened { return opened(t, "memory") }

func opened(t testing.TB, text string) *stores.Opened {
	name := try.To(stores.Parse(text))(t)
	store := try.To(stores.Open(name, 10*time.Second))(t)
	t.Cleanup(func() { store.Close() })
	return store
}

// logOf is a log of hits of a single key, at the given times after a noon.
func logOf(t testing.TB, after ...time.Duration) *Log {
	b := newLog("by hand")
	for _, d := range after {
		require.NoError(t, b.add(genBegin.Add(d), counter.Key{Event: "signup", Feature: "ada"}))
	}
	return try.To(b.finish())(t)
}

func compareOn(t testing.TB, cfg Config, log *Log) []*Report {
	cfg.Timeout = 10 * time.Second
	c := try.To(New(cfg))(t)
	reports := try.To(c.Run(t.Context(), log))(t)
	require.Len(t, reports, len(cfg.Limits))
	return reports
}

// alone compares under a single limit, in memory.
func alone(t testing.TB, limit string, after ...time.Duration) *Report {
	t.Helper()
	return compareOn(t, Config{Limits: counter.MustLimits(limit), Store: inMemory(t)}, logOf(t, after...))[0]
}

func (r *Report) named(t testing.TB, name string) Algorithm {
	for _, a := range r.Algorithms {
		if a.Name == name {
			return a
		}
	}
	require.Failf(t, "not compared", "%s", name)
	return Algorithm{}
}

const onDefault = "abacus 1s:1d, 1m:1d, 1h:1d"

// Ten hits just before the edge of a minute and ten just after.
func TestEdge(t *testing.T) {
	var hits []time.Duration
	for i := range 20 {
		hits = append(hits, time.Minute-10*time.Millisecond+time.Duration(i)*time.Millisecond)
	}
	r := alone(t, "10/m", hits...)
	require.NoError(t, r.Broken())
	require.EqualValues(t, 20, r.Events)
	require.Equal(t, 1, r.Keys)
	require.Equal(t, "sliding log", r.Reference)
	require.Equal(t, r.Reference, r.Algorithms[0].Name)

	type decisions struct {
		admitted, wronglyAdmitted, wronglyDenied, differently, delayed int64
		worst                                                          float64
	}
	exact, fixed, abacus := r.Algorithms[0], r.named(t, "fixed window"), r.named(t, onDefault)
	queue := r.named(t, "leaky queue")
	for _, row := range []struct {
		Algorithm
		want decisions
	}{
		{exact, decisions{admitted: 10, worst: 1}},
		{fixed, decisions{admitted: 20, wronglyAdmitted: 10, differently: 10, worst: 2}},
		{abacus, decisions{admitted: 10, worst: 1}},
		{queue, decisions{11, 1, 0, queue.Differently, 10, queue.WorstWindow}}, // six seconds apart, the last a minute after the first
	} {
		a := row.Algorithm
		require.Equal(t, row.want, decisions{a.Admitted, a.WronglyAdmitted, a.WronglyDenied, a.Differently, a.Delayed, a.WorstWindow}, a.Name)
	}
	require.Equal(t, 2.0, fixed.Relative)
	require.Equal(t, 60.0, math.Ceil(queue.LongestDelay))
	require.InDelta(t, 30, queue.MeanDelay, 0.01)
	shaper := r.named(t, "token shaper")
	require.Equal(t, []int64{20, 10}, []int64{shaper.Admitted, shaper.Delayed}, "ten at once, and ten that wait")
	require.True(t, abacus.Default)
	require.False(t, r.WholeSeconds)

	// An event reads a state, and an admitted event writes the state; buckets are
	// read by covers and added to by tiers.
	require.Equal(t, []float64{1, 0.5}, []float64{exact.ReadsPerEvent, exact.WritesPerEvent})
	require.Equal(t, []float64{1, 1}, []float64{fixed.ReadsPerEvent, fixed.WritesPerEvent})
	require.Equal(t, 1.5, abacus.WritesPerEvent)
	var reads int64
	for _, d := range hits {
		cover := try.To(tiers.Default.Cover(genBegin.Add(d), time.Minute, 0))(t)
		reads += cover.Reads()
	}
	require.Equal(t, float64(reads)/20, abacus.ReadsPerEvent)
	for _, a := range r.Algorithms {
		require.Positive(t, a.BytesPerKey, a.Name)
		require.EqualValues(t, a.BytesPerKey, a.BytesWorstKey, a.Name) // of a single key
		require.Positive(t, a.NanosPerEvent, a.Name)
		require.Zero(t, a.TripsPerEvent, a.Name)
	}

	// The curve shows all hits of the only key.
	require.Equal(t, "signup of ada", r.Curve.Key)
	require.EqualValues(t, 10, r.Curve.Max)
	require.Len(t, r.Curve.Counts, len(r.Algorithms))
	for i, a := range r.Algorithms {
		require.Len(t, r.Curve.Counts[i], len(r.Curve.Times))
		most := int64(0)
		for _, n := range r.Curve.Counts[i] {
			most = max(most, n)
		}
		require.Equal(t, a.WorstWindow, float64(most)/10, a.Name)
	}

	try.To(json.Marshal(r))(t)
}

// A window may be the fullest for a single instant, since both ends belong to the
// window.
func TestCurveHasThePeak(t *testing.T) {
	r := alone(t, "1/s", 999*time.Millisecond, 1999*time.Millisecond)
	require.Equal(t, "fixed window", r.Algorithms[1].Name)
	require.Equal(t, 2.0, r.Algorithms[1].WorstWindow)
	require.Contains(t, r.Curve.Counts[1], int64(2))
}

// A log holds each hit. The buckets of abacus are bounded: soon in a burst and on a
// coarse ladder, and by the seconds of a day in any case.
func TestGrowth(t *testing.T) {
	cfg := Config{Limits: counter.MustLimits("5/d"), Store: inMemory(t), Growth: true}
	log := logOf(t, 0, time.Second)
	r := compareOn(t, cfg, log)[0]
	require.True(t, r.WholeSeconds)
	g := r.Growth
	require.EqualValues(t, 100_000, g.Hits[len(g.Hits)-1])
	var names []string
	for _, line := range g.Lines {
		names = append(names, fmt.Sprint(line.Name, line.Burst))
		require.Len(t, line.Bytes, len(g.Hits))
		require.IsNonDecreasing(t, line.Bytes)
		require.Positive(t, line.Bytes[0])
	}
	require.Equal(t, []string{"sliding logfalse", onDefault + "false", "abacus 1m:1d, 1h:1dfalse", "abacus 10m:1d, 1h:1dfalse", onDefault + "true"}, names)
	exact, bursts, minutes := g.Lines[0], g.Lines[4], g.Lines[2]
	for i, n := range g.Hits {
		require.Greater(t, exact.Bytes[i], 16*n)
	}
	last := len(g.Hits) - 1
	require.Less(t, exact.Bytes[0], bursts.Bytes[0])
	require.Less(t, g.Lines[1].Bytes[last], exact.Bytes[last])
	for _, line := range []GrowthLine{bursts, minutes} {
		require.Equal(t, line.Bytes[last-1], line.Bytes[last], line.Name)
		require.Less(t, 20*line.Bytes[last], exact.Bytes[last], line.Name)
	}

	c := try.To(New(cfg))(t)
	require.EqualValues(t, 16*2+5*188_880, c.Steps(log))
	cfg.Growth = false
	require.Nil(t, compareOn(t, cfg, log)[0].Growth)
}

func TestOneEvent(t *testing.T) {
	for _, limit := range []string{"1/10ms", "1/366d", "9/d"} {
		r := alone(t, limit, 0)
		require.NoError(t, r.Broken())
		names := map[string]bool{}
		for _, a := range r.Algorithms {
			require.False(t, names[a.Name], "%s of %s twice", a.Name, limit)
			names[a.Name] = true
			require.EqualValues(t, 1, a.Admitted, "%s of %s", a.Name, limit)
			require.Equal(t, 1.0, a.Relative)
		}
		try.To(json.Marshal(r))(t)
	}
}

// An algorithm that cannot serve a window is left out, with the reason.
func TestLeftOut(t *testing.T) {
	for _, row := range []struct {
		limit string
		out   []string
		fit   string // the ladder fitted to the window
	}{
		{"5/h", nil, "abacus 1s:1h, 1m:1h, 1h:1h"},
		{"5/d", nil, ""},
		{"5/2d", []string{onDefault, "abacus 1m:1d, 1h:1d", "abacus 10m:1d, 1h:1d"}, "abacus 1s:2d, 1m:2d, 1h:2d, 1d:2d"},
		{"5/m", []string{"abacus 10m:1d, 1h:1d"}, "abacus 1s:1m, 10s:1m"},
		{"5/1500ms", []string{"textbook tiers", "abacus 1m:1d, 1h:1d", "abacus 10m:1d, 1h:1d"}, "abacus 50ms:1500ms, 1s:1500ms"},
	} {
		r := alone(t, row.limit, 0)
		var out []string
		for _, left := range r.LeftOut {
			out = append(out, left.Name)
			require.Regexp(t, "^(Per is|a window) ", left.Why)
		}
		require.Equal(t, row.out, out, row.limit)
		if row.fit != "" {
			fit := r.Algorithms[len(r.Algorithms)-1]
			require.Equal(t, "abacus "+tiers.For(counter.MustLimits(row.limit)[0].Per).String(), fit.Name)
		}
		require.Len(t, r.Algorithms, len(candidates(counter.MustLimits(row.limit)[0]))-len(out))
	}
}

func TestNewRefuses(t *testing.T) {
	for text, limits := range map[string]counter.Limits{
		"Config.Limits is empty, want at least one limit to compare under": {},
		"limit 0/d: Max is 0, want at least 1 to compare":                  {{Max: 0, Per: 24 * time.Hour}},
		"limit 9/10.000001ms: Per is 10.000001ms, want whole":              {{Max: 9, Per: 10*time.Millisecond + 1}},
		"limit 99999999999/s: Max is 99999999999, want 0 to":               {{Max: 99_999_999_999, Per: time.Second}},
	} {
		require.ErrorContains(t, try.Err(New(Config{Limits: limits, Store: inMemory(t)})), text)
	}
	_, err := New(Config{Limits: counter.MustLimits("1/s"), Store: inMemory(t), Skew: 25 * time.Hour})
	require.EqualError(t, err, "skew is 1d1h, want at most 1d")
	_, err = New(Config{Limits: counter.MustLimits("1/s"), Store: opened(t, "redis://127.0.0.1:1?layout=plain")})
	require.EqualError(t, err, "store redis://127.0.0.1:1?layout=plain: want the layout sums, whose memory is compared")
}

// crowded is a log at random under a limit, always the same.
func crowded(t testing.TB) *Log {
	return randomLog(t, rand.New(rand.NewPCG(1, 0)), counter.Limit{Max: 5, Per: time.Minute}, 0)
}

// randomLog has bursts and pauses of a few keys, each key at nearly twice the
// limit; back is the largest distance by which stamps run back.
func randomLog(t testing.TB, rnd *rand.Rand, limit counter.Limit, back time.Duration) *Log {
	b := newLog("at random")
	now, step := genBegin, int64(limit.Per)/limit.Max
	for range 250 {
		if rnd.IntN(4) == 0 {
			now = now.Add(time.Duration(rnd.Int64N(2 * step)))
		} else {
			now = now.Add(time.Duration(rnd.Int64N(step / 10)))
		}
		at := now
		if back > 0 {
			at = at.Add(-time.Duration(rnd.Int64N(int64(back))))
		}
		key := counter.Key{Event: "e", Feature: string(rune('a' + rnd.IntN(4)))}
		for range 1 + rnd.IntN(3) {
			require.NoError(t, b.add(at, key))
		}
	}
	return try.To(b.finish())(t)
}

// The exact log is exact, and abacus agrees with the oracle of its ladder, also
// where stamps run back.
func TestDecisions(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, text := range []string{"3/50ms", "5/3s", "7/m", "20/h", "9/d", "9/3d"} {
		for _, skewed := range []bool{false, true} {
			limit := counter.MustLimits(text)[0]
			var skew time.Duration
			if skewed {
				skew = limit.Per / 4
			}
			log := randomLog(t, rnd, limit, skew)
			c := try.To(New(Config{Limits: counter.Limits{limit}, Store: inMemory(t), Skew: skew}))(t)
			c.grace = min(maxGrace, log.Back)
			tried := &trial{c: c, log: log, limit: limit, sample: log.sample(3), decided: make([]uint32, int(log.Events))}
			var algorithms []Algorithm
			for i, candidate := range c.rounds[0].candidates {
				a := try.To(tried.run(t.Context(), i, candidate))(t)
				algorithms = append(algorithms, a)
			}
			try.To(tried.judge(t.Context(), algorithms))(t)
			r := &Report{Reference: exactLog, Algorithms: algorithms, Seen: log.Seen, skew: skew}
			require.NoError(t, r.Broken(), "seed %d, %s", seed, text)
			require.Positive(t, algorithms[0].Admitted)
			require.Less(t, algorithms[0].Admitted, int64(int(log.Events)))
			judged := 0
			for _, l := range ladders(limit.Per) {
				i := slices.IndexFunc(algorithms, func(a Algorithm) bool { return a.Name == "abacus "+l.String() })
				if i < 0 {
					continue // left out
				}
				judged++
				judge := oracle.Judge{Ladder: l, Skew: skew}
				for key := range log.keys {
					var admitted oracle.Log
					for _, hit := range tried.hits(nil, key, i) {
						right := judge.Allowed(&admitted, hit.At, 1, counter.Limits{limit})
						require.Equal(t, right, hit.Admitted, "seed %d, %s: %s at %s", seed, text, l, hit.At)
						if hit.Admitted {
							admitted.Add(hit.At, 1)
						}
					}
				}
			}
			require.Positive(t, judged)
		}
	}
}

// Several limits are several comparisons of the same log, each from nothing.
func TestLimitsOneAfterTheOther(t *testing.T) {
	log := crowded(t)
	store := inMemory(t)
	both := compareOn(t, Config{Limits: counter.MustLimits("5/m,9/h"), Store: store}, log)
	one := compareOn(t, Config{Limits: counter.MustLimits("9/h"), Store: store}, log)[0]
	require.Equal(t, "5/m", both[0].Limit)
	require.Equal(t, "9/h", both[1].Limit)
	require.Equal(t, timeless(one), timeless(both[1]))
	require.NotEqual(t, both[0].Algorithms[0].Admitted, both[1].Algorithms[0].Admitted)
}

// timeless is a report without timings, equal in all runs.
func timeless(r *Report) *Report {
	for i := range r.Algorithms {
		r.Algorithms[i].NanosPerEvent = 0
	}
	return r
}

func TestProgressAndInterrupt(t *testing.T) {
	log := crowded(t)
	names, given := map[string]bool{}, int64(-1)
	var c *Comparison
	cfg := Config{Limits: counter.MustLimits("5/m"), Store: inMemory(t), Progress: func(name string, events int64) {
		names[name] = true
		require.GreaterOrEqual(t, events, given)
		require.Less(t, events, c.Steps(log))
		given = events
	}}
	c = try.To(New(cfg))(t)
	require.Len(t, names, len(try.To(c.Run(t.Context(), log))(t)[0].Algorithms))
	require.Equal(t, c.Steps(log), c.given)

	for _, at := range []string{"sliding log", "GCRA", onDefault} {
		ctx, cancel := context.WithCancel(t.Context())
		cfg.Progress = func(name string, _ int64) {
			require.NoError(t, ctx.Err())
			if name == at {
				cancel()
			}
		}
		c = try.To(New(cfg))(t)
		require.ErrorIs(t, try.Err(c.Run(ctx, log)), context.Canceled)
	}
}

func TestBroken(t *testing.T) {
	exact, abacus := Algorithm{Name: "sliding log", Source: "classic"}, Algorithm{Name: onDefault, Source: "abacus", WronglyDenied: 9}
	fixed := Algorithm{Name: "fixed window", Source: "classic", WronglyAdmitted: 9}
	report := func(runsBack, skew time.Duration) *Report {
		return &Report{Limit: "5/m", Reference: "sliding log", Algorithms: []Algorithm{exact, fixed, abacus}, Seen: eventlog.Seen{Back: runsBack}, skew: skew}
	}
	require.NoError(t, report(0, 0).Broken())
	abacus.WronglyAdmitted = 1
	require.EqualError(t, report(0, 0).Broken(), "limit 5/m: "+onDefault+" has admitted 1 hits too many, want none")
	require.Error(t, report(time.Second, time.Second).Broken())
	require.NoError(t, report(time.Second+1, time.Second).Broken())
	exact.WronglyDenied = 1
	require.EqualError(t, report(time.Second+1, time.Second).Broken(), "limit 5/m: 1 decisions of the sliding log are wrong, want none")
	require.NoError(t, report(25*time.Hour, 0).Broken())
}
