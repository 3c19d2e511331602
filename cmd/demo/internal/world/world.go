// Package world sends the same attempts of one key through abacus and the
// limiters of the textbooks, by a clock of its own, and tells how many each has
// admitted in the window that ends now.
package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/internal/rods"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

// Key is the key of all attempts.
var Key = counter.Key{Event: "signup", Feature: "ip:192.0.2.1"}

// Limits are the limits of a World, each of which a page may offer.
var Limits = counter.MustLimits("10/m, 20/h, 100/d")

// Boundary is the end of a minute, an hour and a day: of an aligned window of each
// of the Limits. A World begins shortly before.
var Boundary = time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)

// World is a clock, attempts, and limiters. A World is for one goroutine at a time.
type World struct {
	limit   counter.Limit
	now     time.Time
	count   *counter.Counter
	fetch   *counter.Counter // given the same attempts, on fetched
	fetched *buckets
	racers  []*Racer
	random  *rand.Rand
	planned []attempt // in order of time; there is no crowd meanwhile
	crowd   bool
	next    time.Time // of the crowd
	tried   int64
	grid    time.Duration // from a sample to the next
	sample  Sample        // of the present
	samples []Sample      // since the last Frame
	said    []string      // since the last Frame
}

// buckets is a store that has nothing but buckets, as memcached, with the number of
// buckets that a Counter has fetched.
type buckets struct {
	backend.Store
	all, last int64 // last: by the last attempt
}

// Do is described in [backend.Store].
func (b *buckets) Do(ctx context.Context, r *backend.Request) error {
	for _, span := range r.Read {
		b.all += int64(len(span.Counts))
		b.last += int64(len(span.Counts))
	}
	return b.Store.Do(ctx, r)
}

type attempt struct {
	at   time.Time
	ends string // if not empty: the name of the burst or pattern that ends here
}

// Racer is a limiter and what it has admitted.
type Racer struct {
	Name     string `json:"name"`
	In       int64  `json:"in"`       // admitted in the window that ends now
	Peak     int64  `json:"peak"`     // the most in any window
	Admitted int64  `json:"admitted"` // of all attempts

	take   func(ctx context.Context, key counter.Key, n int64) (counter.Verdict, error)
	window []time.Time // of the hits in the window that ends now, oldest first
	last   bool        // the last attempt was admitted
	over   bool        // more than the limit: has been told
}

// New makes a World whose clock stands a third of a window before Boundary. The seed
// is that of the crowd.
func New(limit counter.Limit, seed uint64) (*World, error) {
	w := &World{limit: limit, now: Boundary.Add(-time.Duration(prelude * float64(limit.Per))), random: rand.New(rand.NewPCG(seed, 0)),
		samples: []Sample{}, said: []string{}}
	clock := func() time.Time { return w.now }
	var err error
	if w.count, err = counter.New(memory.New(memory.Config{}), counter.Config{Ladder: tiers.Default, Skew: -1, Now: clock}); err != nil {
		return nil, err
	}
	w.fetched = &buckets{Store: memory.New(memory.Config{})}
	if w.fetch, err = counter.New(w.fetched, counter.Config{Ladder: tiers.Default, Patience: -1, Now: clock}); err != nil {
		return nil, err
	}
	store, err := classic.Memory(classic.Config{Now: clock, Grace: -1})
	if err != nil {
		return nil, err
	}
	w.racers = []*Racer{{Name: "abacus", take: func(ctx context.Context, key counter.Key, n int64) (counter.Verdict, error) {
		return w.count.Take(ctx, key, n, counter.Limits{limit})
	}}}
	for _, other := range []struct {
		name  string
		build func() (classic.Limiter, error)
	}{
		{"fixed window", func() (classic.Limiter, error) { return classic.NewFixedWindow(limit, store) }},
		{"two counters", func() (classic.Limiter, error) { return classic.NewSlidingCounter(limit, store) }},
		{"token bucket", func() (classic.Limiter, error) { return classic.NewTokenBucket(limit, 0, store) }},
		{"log of every hit", func() (classic.Limiter, error) { return classic.NewSlidingLog(limit, store) }},
	} {
		l, err := other.build()
		if err != nil {
			return nil, err
		}
		w.racers = append(w.racers, &Racer{Name: other.name, take: l.Take})
	}
	w.Pace(0)
	return w, nil
}

// fixedWindow is the index of the racer.
const fixedWindow = 1

// Now is the clock.
func (w *World) Now() time.Time { return w.now }

// prelude is the part of a window that passes before a boundary with a burst.
const prelude = 0.35

// Burst plans as many attempts as the limit allows on each side of an end of an
// aligned window, at which a fixed window begins again. The window is the next one in
// which the fixed window has admitted nothing yet. The time until shortly before is
// skipped. A crowd ends.
func (w *World) Burst() {
	w.cancel()
	begin := w.now.Truncate(w.limit.Per)
	edge := begin.Add(w.limit.Per)
	before := w.limit.Per / 60
	if used := w.racers[fixedWindow].window; edge.Sub(w.now) < 2*before || len(used) > 0 && !used[len(used)-1].Before(begin) {
		edge = edge.Add(w.limit.Per)
	}
	w.say("A burst at %s is on its way.", w.clock(edge))
	if start := edge.Add(-time.Duration(prelude * float64(w.limit.Per))); start.After(w.now) {
		w.moveTo(start)
	}
	n := w.limit.Max
	w.plan(n, edge.Add(-before), before)
	// So soon after the edge that no hit of the old window has left the true window.
	w.plan(n, edge, w.limit.Per/6000)
	w.planned[len(w.planned)-1].ends = fmt.Sprintf("%s attempts before %s, and %s after", words.Commas(n), w.clock(edge), words.Commas(n))
}

// Pattern plans counts[i] attempts in the i-th of len(counts) equal parts of two
// windows. The pattern begins at the next end of an aligned window, so that another
// end is in the middle. A crowd ends.
func (w *World) Pattern(counts []int64) {
	w.cancel()
	from := w.now.Truncate(w.limit.Per).Add(w.limit.Per)
	part := 2 * w.limit.Per / time.Duration(len(counts))
	for i, n := range counts {
		w.plan(n, from.Add(part*time.Duration(i)), part)
	}
	if len(w.planned) == 0 {
		w.say("The pattern has no attempts.")
		return
	}
	w.say("The pattern begins at %s.", w.clock(from))
	w.planned[len(w.planned)-1].ends = fmt.Sprintf("the pattern of %s attempts around %s", words.Commas(int64(len(w.planned))), w.clock(from.Add(w.limit.Per)))
}

// plan plans n attempts at equal distances, the first at from.
func (w *World) plan(n int64, from time.Time, span time.Duration) {
	for i := range n {
		w.planned = append(w.planned, attempt{at: from.Add(span * time.Duration(i) / time.Duration(n))})
	}
}

// Crowd begins attempts at random, five times the limit, in place of all others.
func (w *World) Crowd() {
	w.cancel()
	w.crowd, w.next = true, w.now.Add(w.gap())
}

// cancel ends all attempts.
func (w *World) cancel() {
	if len(w.planned) > 0 {
		w.say("The attempts that were planned are cancelled.")
	}
	w.planned, w.crowd = nil, false
}

// Hit is one attempt now.
func (w *World) Hit(ctx context.Context) error {
	if err := w.try(ctx, attempt{at: w.now}); err != nil {
		return err
	}
	w.tell()
	return nil
}

// gap is the time to the next attempt of the crowd.
func (w *World) gap() time.Duration {
	return time.Duration(float64(w.limit.Per)/float64(5*w.limit.Max)*w.random.ExpFloat64()) + 1
}

// due is the next attempt, if one comes by a given time.
func (w *World) due(by time.Time) (a attempt, is bool) {
	switch {
	case len(w.planned) > 0:
		a = w.planned[0]
	case w.crowd:
		a.at = w.next
	default:
		return a, false
	}
	return a, !a.at.After(by)
}

// play makes the attempt that is due.
func (w *World) play(ctx context.Context, a attempt) error {
	if len(w.planned) > 0 {
		w.planned = w.planned[1:]
	} else {
		w.next = w.next.Add(w.gap())
	}
	return w.try(ctx, a)
}

// Advance moves the clock to a later time, and makes all attempts until then.
func (w *World) Advance(ctx context.Context, to time.Time) error {
	for {
		a, is := w.due(to)
		if !is {
			w.moveTo(to)
			return nil
		}
		if err := w.play(ctx, a); err != nil {
			return err
		}
	}
}

// Step moves the clock to the next attempt, or by a sixtieth of the window, and
// tells what happened.
func (w *World) Step(ctx context.Context) error {
	to := w.now.Add(w.limit.Per / 60)
	a, is := w.due(to)
	if !is {
		w.moveTo(to)
		w.say("%s: no attempt. In the last %s: %s.", w.clock(to), rods.Singular(w.limit.Per), w.standing())
		return nil
	}
	if err := w.play(ctx, a); err != nil {
		return err
	}
	w.tell()
	return nil
}

// tell tells who admitted the last attempt.
func (w *World) tell() {
	names, by := map[bool][]string{}, map[bool]string{true: "admitted by ", false: "denied by "}
	for _, r := range w.racers {
		names[r.last] = append(names[r.last], r.Name)
	}
	var parts []string
	for _, last := range []bool{true, false} {
		if len(names[last]) > 0 {
			parts = append(parts, by[last]+words.List(names[last]))
		}
	}
	w.say("%s: an attempt, %s.", w.clock(w.now), strings.Join(parts, "; "))
}

// try makes an attempt at its time.
func (w *World) try(ctx context.Context, a attempt) error {
	w.moveTo(a.at)
	w.tried++
	w.sample.Tried++
	w.fetched.last = 0
	if _, err := w.fetch.Take(ctx, Key, 1, counter.Limits{w.limit}); err != nil {
		return err
	}
	for i, r := range w.racers {
		v, err := r.take(ctx, Key, 1)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		if r.last = v.Allowed; !v.Allowed {
			continue
		}
		r.window = append(r.window, a.at)
		r.In++
		r.Admitted++
		r.Peak = max(r.Peak, r.In)
		w.sample.Admitted[i]++
		if !r.over && r.In > w.limit.Max {
			r.over = true
			w.say("%s: over the limit: %s, with %s admitted in the last %s in place of %s.",
				w.clock(w.now), r.Name, words.Commas(r.In), rods.Singular(w.limit.Per), words.Commas(w.limit.Max))
		}
	}
	if a.ends != "" {
		w.say("%s: %s. In the last %s: %s.", w.clock(w.now), a.ends, rods.Singular(w.limit.Per), w.standing())
	}
	return nil
}

// standing is the number that each limiter has admitted in the window.
func (w *World) standing() string {
	var all []string
	for _, r := range w.racers {
		all = append(all, fmt.Sprintf("%s %s", r.Name, words.Commas(r.In)))
	}
	return words.List(all)
}

// moveTo moves the clock, and completes the samples until then. After a leap of
// many samples only the last are kept.
func (w *World) moveTo(t time.Time) {
	complete := func(end time.Time) {
		w.samples = append(w.samples, w.sample)
		w.leave(end)
		w.now = end
		w.sample = w.newSample()
	}
	if leap := t.Add(-2 * samplesPerWindow * w.grid); leap.After(w.now) {
		complete(leap)
	}
	for end := w.now.Truncate(w.grid).Add(w.grid); !end.After(t); end = end.Add(w.grid) {
		complete(end)
	}
	w.leave(t)
	w.now = t
}

// leave drops the hits that are not in the window that ends at t.
func (w *World) leave(t time.Time) {
	for _, r := range w.racers {
		r.window = slices.DeleteFunc(r.window, func(hit time.Time) bool { return t.Sub(hit) >= w.limit.Per })
		r.In = int64(len(r.window))
	}
}

const saidAtMost = 20 // between two frames

func (w *World) say(format string, args ...any) {
	if len(w.said) < saidAtMost {
		w.said = append(w.said, fmt.Sprintf(format, args...))
	}
}

// clock formats an instant as precisely as the window needs.
func (w *World) clock(t time.Time) string {
	switch {
	case w.limit.Per <= time.Minute && t.Nanosecond() > 0:
		return t.Format("15:04:05.000")
	case w.limit.Per > time.Hour:
		return t.Format("Mon 15:04:05")
	}
	return t.Format("15:04:05")
}
