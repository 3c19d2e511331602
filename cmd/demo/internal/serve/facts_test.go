package serve

import (
	"context"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/world"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

var writeFacts = flag.Bool("write", false, "write pages/facts.json")

// eleven is the boundary in the scenes.
var eleven = world.Boundary.Add(11 * time.Hour)

func since(at time.Time) int64 { return at.Sub(eleven).Milliseconds() }

// TestFacts holds the facts of the page to the code that they are about.
func TestFacts(t *testing.T) {
	made := allFacts{
		Limit: counter.MustLimits("10/h")[0].Max, Seconds: int64(dur.Day / time.Second),
		Promise: promise(t), Clock: moves(t), Attack: attack(t), Rods: stacks(t), Day: lastDay(t), Error: widths(t), Race: opening(t),
	}
	text := try.To(json.Marshal(made))(t)
	if *writeFacts {
		require.NoError(t, os.WriteFile(factsFile, append(text, '\n'), 0o644))
		return
	}
	shipped := try.To(files.ReadFile(factsFile))(t)
	require.JSONEq(t, string(text), string(shipped), "the numbers have changed: go test ./cmd/demo/internal/serve -run TestFacts -write, and read the scenes again")
}

// promise is the way of a visitor who presses again and again, and then waits as long
// as the answer says.
func promise(t *testing.T) (all []pressFact) {
	now := eleven.Add(-15 * time.Minute)
	c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Skew: -1, Now: func() time.Time { return now }}))(t)
	limits := counter.MustLimits("10/h")
	for i := range 14 {
		v := try.To(c.Take(t.Context(), world.Key, 1, limits))(t)
		all = append(all, pressFact{since(now), v.Allowed, v.RetryAfter.Milliseconds()})
		if now = now.Add(5 * time.Second); i == 12 {
			now = now.Add(v.RetryAfter - 5*time.Second)
		}
	}
	require.True(t, all[13].Allowed, "the wait is exact")
	return all
}

// at makes attempts at once, and returns how many each limiter has admitted.
func at(t *testing.T, w *world.World, when time.Time, n int) (admitted []int64, f *world.Frame) {
	require.NoError(t, w.Advance(t.Context(), when))
	before := try.To(w.Frame(t.Context()))(t)
	for range n {
		require.NoError(t, w.Hit(t.Context()))
	}
	f = try.To(w.Frame(t.Context()))(t)
	for i, r := range f.Racers {
		admitted = append(admitted, r.Admitted-before.Racers[i].Admitted)
	}
	return admitted, f
}

// moves are ten attempts before the boundary, and ten more that come ever later.
func moves(t *testing.T) (c clockFacts) {
	c.First = since(eleven.Add(-25 * time.Minute))
	for minute := -10; minute <= 20; minute++ {
		w := try.To(world.New(counter.MustLimits("10/h")[0], 1))(t)
		at(t, w, eleven.Add(-25*time.Minute), 10)
		second := eleven.Add(time.Duration(minute) * time.Minute)
		admitted, f := at(t, w, second, 10)
		i := slices.IndexFunc(f.Racers, func(r world.Racer) bool { return r.Name == "fixed window" })
		c.Moves = append(c.Moves, moveFact{since(second), admitted[i], f.Racers[i].Peak})
		c.Most = max(c.Most, f.Racers[i].Peak)
	}
	return c
}

// attack is ten attempts a minute before the boundary, and then one every minute.
func attack(t *testing.T) (a attackFacts) {
	w := try.To(world.New(counter.MustLimits("10/h")[0], 1))(t)
	try := func(when time.Time, n int) {
		admitted, f := at(t, w, when, n)
		a.At, a.Tried = append(a.At, since(when)), append(a.Tried, int64(n))
		for i, r := range f.Racers {
			if len(a.Racers) < len(f.Racers) {
				a.Racers = append(a.Racers, attackedFacts{Name: r.Name})
			}
			one := &a.Racers[i]
			one.Admitted, one.Fullest = append(one.Admitted, admitted[i]), append(one.Fullest, r.Peak)
		}
	}
	try(eleven.Add(-time.Minute), 10)
	for minute := range 59 {
		try(eleven.Add(time.Duration(minute)*time.Minute), 1)
	}
	fullest := map[string]int64{}
	for _, r := range a.Racers {
		fullest[r.Name] = r.Fullest[len(r.Fullest)-1]
	}
	a.Repaired = fullest["two counters"]
	require.Equal(t, a.Repaired, fullest["token bucket"], "the sentence names one number")
	require.Equal(t, int64(10), fullest["abacus"])
	return a
}

// stacks are ever more hits of a key in half an hour, under a limit that admits all.
func stacks(t *testing.T) (all []stackFacts) {
	const most = 10_000
	limit := counter.Limit{Max: most, Per: dur.Day}
	begin := eleven.Add(12 * time.Hour)
	random := rand.New(rand.NewPCG(1, 0))
	var hits []time.Time
	for i := range most {
		after := time.Duration(random.Int64N(int64(30 * time.Minute)))
		if i < 3 { // in a minute of their own, to be seen on all rods
			after = 17*time.Minute + time.Duration(7+19*i)*time.Second
		}
		hits = append(hits, begin.Add(after))
	}
	for _, n := range []int{1, 2, 3, 10, 30, 100, 300, 1_000, 3_000, most} {
		var now time.Time
		clock := func() time.Time { return now }
		store := try.To(classic.Memory(classic.Config{Now: clock, Grace: -1}))(t)
		log := try.To(classic.NewSlidingLog(limit, store))(t)
		ours := memory.New(memory.Config{})
		c := try.To(counter.New(ours, counter.Config{Skew: -1, Now: clock}))(t)
		for _, now = range slices.SortedFunc(slices.Values(hits[:n]), time.Time.Compare) {
			require.True(t, try.To(log.Take(t.Context(), world.Key, 1))(t).Allowed)
			require.True(t, try.To(c.Take(t.Context(), world.Key, 1, counter.Limits{limit}))(t).Allowed)
		}
		now = begin.Add(30 * time.Minute)
		s := stackFacts{Hits: int64(n), Abacus: 16 * ours.Stats().Buckets} // bytes a bucket, the unit of the Stats
		s.Log = try.To(log.Bytes(t.Context(), world.Key))(t)
		for _, rod := range []struct {
			from, to time.Duration
			width    time.Duration
		}{{-23 * time.Hour, time.Hour, time.Hour}, {0, 30 * time.Minute, time.Minute}, {17 * time.Minute, 18 * time.Minute, time.Second}} {
			points := try.To(c.Series(t.Context(), world.Key, begin.Add(rod.from), begin.Add(rod.to), rod.width))(t)
			var counts []int64
			for _, p := range points {
				counts = append(counts, p.Count)
			}
			s.Counts = append(s.Counts, counts)
		}
		all = append(all, s)
	}
	return all
}

// lastDay are the covers of the last day, around 23:30:33 and over all seconds of a day.
func lastDay(t *testing.T) (d dayFacts) {
	covers := func(now time.Time) (ours, book tiers.Cover) {
		return try.To(tiers.Default.Cover(now, dur.Day, 0))(t), try.To(classic.TextbookCover(tiers.Default, now, dur.Day))(t)
	}
	runs := func(c tiers.Cover) (all []runFact) {
		for _, r := range c {
			all = append(all, runFact{r.Width.Milliseconds(), since(r.Start()), r.N})
		}
		return all
	}
	middle := eleven.Add(12*time.Hour + 30*time.Minute + 33*time.Second)
	const around = 60
	for i := -around; i <= around; i++ {
		now := middle.Add(time.Duration(i) * 61 * time.Second)
		ours, book := covers(now)
		d.Moments = append(d.Moments, momentFacts{since(now), ours.Reads(), book.Reads(), runs(ours), runs(book)})
	}
	d.Middle = around
	d.Ours, d.Book = d.Moments[around].Ours, d.Moments[around].Book
	sum := int64(0)
	for second := range int64(dur.Day / time.Second) {
		ours, book := covers(world.Boundary.Add(time.Duration(second) * time.Second))
		sum += ours.Reads()
		d.Most, d.BookMost = max(d.Most, ours.Reads()), max(d.BookMost, book.Reads())
	}
	d.Mean = (sum + 43_200) / 86_400

	now := middle.Add(around * 61 * time.Second)
	asked := &reads{Store: memory.New(memory.Config{})}
	c := try.To(counter.New(asked, counter.Config{Patience: -1, Now: func() time.Time { return now }}))(t)
	require.NoError(t, try.Err(c.Take(t.Context(), world.Key, 1, counter.MustLimits("100/d"))))
	d.First, d.FirstRuns = asked.cover.Reads(), runs(asked.cover)
	return d
}

// reads is a store that has nothing but buckets, as memcached, and notes what is read.
type reads struct {
	backend.Store
	cover tiers.Cover
}

func (s *reads) Do(ctx context.Context, r *backend.Request) error {
	for _, span := range r.Read {
		s.cover = append(s.cover, tiers.Run{Width: span.Width, First: span.First, N: int64(len(span.Counts))})
	}
	return s.Store.Do(ctx, r)
}

// widths are three ladders with an ever wider finest bucket: what compare says of them
// for its own traffic, and how late a hit leaves.
func widths(t *testing.T) (e errorFacts) {
	limits := counter.MustLimits("100/d")
	log := try.To(compare.Generate(1, limits))(t)
	store := try.To(stores.Open(stores.Name{}, 0))(t)
	run := try.To(compare.New(compare.Config{Limits: limits, Store: store}))(t)
	reports := try.To(run.Run(t.Context(), log))(t)
	e.Hits, e.Limit = log.Events, limits[0].Max
	named := func(name string) compare.Algorithm {
		i := slices.IndexFunc(reports[0].Algorithms, func(a compare.Algorithm) bool { return a.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		return reports[0].Algorithms[i]
	}
	e.LogMean, e.LogMost = int64(named(reports[0].Reference).BytesPerKey), named(reports[0].Reference).BytesWorstKey
	for _, finest := range []time.Duration{time.Second, time.Minute, 10 * time.Minute} {
		all := []tiers.Tier{{Width: finest, Keep: dur.Day}, {Width: time.Hour, Keep: dur.Day}}
		if finest == time.Second {
			all = slices.Insert(all, 1, tiers.Tier{Width: time.Minute, Keep: dur.Day})
		}
		ladder := try.To(tiers.New(all...))(t)
		a := named("abacus " + ladder.String())
		require.Zero(t, a.WronglyAdmitted, "never early")

		hit := eleven.Add(3*time.Minute + 41*time.Second + 300*time.Millisecond)
		now := hit
		c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Ladder: ladder, Skew: -1, Now: func() time.Time { return now }}))(t)
		one := counter.MustLimits("1/d")
		require.NoError(t, try.Err(c.Take(context.Background(), world.Key, 1, one)))
		now = now.Add(time.Hour)
		v := try.To(c.Take(context.Background(), world.Key, 1, one))(t)
		require.False(t, v.Allowed)
		e.Widths = append(e.Widths, widthFacts{
			Width: finest.Milliseconds(), Hit: since(hit), Late: (time.Hour + v.RetryAfter - dur.Day).Milliseconds(),
			Wrong: a.WronglyDenied, Mean: int64(a.BytesPerKey), Most: a.BytesWorstKey,
		})
	}
	return e
}

// opening is a race whose first burst is over.
func opening(t *testing.T) (f *world.RaceFrame) {
	r := try.To(world.NewRace(world.Limits[0].String(), 1))(t)
	require.NoError(t, r.Do(t.Context(), "speed", "10"))
	require.NoError(t, r.Do(t.Context(), "play", ""))
	var samples []world.Sample
	for f == nil || f.Planned > 0 {
		f = try.To(r.Frame(t.Context(), 2*world.FrameEvery, false))(t)
		for _, s := range f.Samples {
			if s.Tried > 0 {
				samples = append(samples, s)
			}
		}
	}
	f.Samples, f.Playing = samples, false
	return f
}

// allFacts are the numbers of the scenes, and the data of their pictures. Instants are
// milliseconds since 11:00 of the day of the scenes, lengths milliseconds.
type allFacts struct {
	Limit   int64        `json:"limit"`   // hits in an hour
	Seconds int64        `json:"seconds"` // of a day
	Promise []pressFact  `json:"promise"`
	Clock   clockFacts   `json:"clock"`
	Attack  attackFacts  `json:"attack"`
	Rods    []stackFacts `json:"rods"`
	Day     dayFacts     `json:"day"`
	Error   errorFacts   `json:"error"`

	// Race is the sandbox after its first burst, until a module is loaded.
	Race *world.RaceFrame `json:"race"`
}

// pressFact is an attempt under the limit, and the answer of abacus.
type pressFact struct {
	At      int64 `json:"at"`
	Allowed bool  `json:"allowed"`
	Retry   int64 `json:"retry"` // the wait of a denied attempt
}

// clockFacts is Limit attempts at First, and as many at one of the Moves, under a fixed
// window.
type clockFacts struct {
	Most  int64      `json:"most"` // the fullest hour of all moves
	First int64      `json:"first"`
	Moves []moveFact `json:"moves"`
}

// moveFact is the second attempts at an instant.
type moveFact struct {
	At       int64 `json:"at"`
	Admitted int64 `json:"admitted"` // of the second attempts
	Fullest  int64 `json:"fullest"`  // hour
}

// attackFacts is the same attempts on all limiters: Tried[i] attempts at At[i].
type attackFacts struct {
	Repaired int64           `json:"repaired"` // the fullest hour of two counters and of a token bucket
	At       []int64         `json:"at"`
	Tried    []int64         `json:"tried"`
	Racers   []attackedFacts `json:"racers"`
}

// attackedFacts is a limiter under an Attack: what it has admitted of Tried[i], and the
// fullest true hour until At[i].
type attackedFacts struct {
	Name     string  `json:"name"`
	Admitted []int64 `json:"admitted"`
	Fullest  []int64 `json:"fullest"`
}

// stackFacts is the memory of a key with so many hits in half an hour, in bytes, and the
// counts of its hours, of the minutes of the half hour, and of the seconds of a minute.
type stackFacts struct {
	Hits   int64     `json:"hits"`
	Log    int64     `json:"log"`
	Abacus int64     `json:"abacus"`
	Counts [][]int64 `json:"counts"`
}

// dayFacts is the covers of the last 24 hours by abacus and by the textbook.
type dayFacts struct {
	Ours     int64         `json:"ours"` // buckets at Moments[Middle]
	Book     int64         `json:"book"`
	Mean     int64         `json:"mean"` // of abacus, over all seconds of a day
	Most     int64         `json:"most"`
	BookMost int64         `json:"bookMost"`
	Middle   int           `json:"middle"`
	Moments  []momentFacts `json:"moments"`

	// First is the number of buckets that a call on memcached reads first, at the last of
	// the Moments.
	First     int64     `json:"first"`
	FirstRuns []runFact `json:"firstRuns"`
}

// momentFacts is the covers at an instant.
type momentFacts struct {
	Now      int64     `json:"now"`
	Ours     int64     `json:"ours"`
	Book     int64     `json:"book"`
	OurRuns  []runFact `json:"ourRuns"`
	BookRuns []runFact `json:"bookRuns"`
}

// runFact is N adjacent buckets.
type runFact struct {
	Width int64 `json:"width"`
	Start int64 `json:"start"`
	N     int64 `json:"n"`
}

// errorFacts are the price and the gain of a wider finest bucket, for the Hits of compare's own
// traffic under a Limit. Mean and Most are bytes of a key in memory, of all keys and of
// the busiest.
type errorFacts struct {
	Hits    int64        `json:"hits"`
	Limit   int64        `json:"limit"` // hits in a day
	LogMean int64        `json:"logMean"`
	LogMost int64        `json:"logMost"`
	Widths  []widthFacts `json:"widths"`
}

// widthFacts is a width of the finest bucket. A hit leaves the window Late.
type widthFacts struct {
	Width int64 `json:"width"`
	Hit   int64 `json:"hit"`
	Late  int64 `json:"late"`
	Wrong int64 `json:"wrong"` // wrongly denied
	Mean  int64 `json:"mean"`
	Most  int64 `json:"most"`
}
