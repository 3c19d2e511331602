package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
)

// runner is a contestant at work, with what it must have counted.
type runner struct {
	*contestant
	bench  *bench
	name   string
	limits counter.Limits
	began  time.Time                // by the clock on the wall
	now    time.Time                // by its own
	aged   time.Time                // and how far the server has followed
	lives  map[string]time.Duration // what was left of its stored keys then
	rand   *rand.Rand
	hits   map[string][]time.Time

	wall, server, cpu measure.Series // of the rounds, us for a call

	mishaps measure.Mishaps // of a peer
}

// ours reports whether the runner is this library: what goes wrong with it ends the
// benchmark.
func (r *runner) ours() bool { return strings.HasPrefix(r.name, "abacus") }

// call notes the failure of a call, and reports whether the call was made.
func (r *runner) call(err error, key string) bool {
	if err != nil && r.ours() {
		require.NoError(r.bench, err, "%s, key %s", r.name, key)
	}
	if err != nil {
		r.mishaps.Call(err)
	}
	return err == nil
}

// wantRefused notes a call that was not refused.
func (r *runner) wantRefused(err error) {
	if errors.Is(err, errRefused) {
		return
	}
	if r.ours() {
		require.ErrorIs(r.bench, err, errRefused, r.name)
	}
	if err == nil {
		err = errors.New("it was admitted")
	}
	r.mishaps.Call(err)
}

// miscount notes a count that is not as expected.
func (r *runner) miscount(format string, args ...any) {
	if r.ours() {
		require.Fail(r.bench, r.name+" "+fmt.Sprintf(format, args...))
	}
	r.mishaps.Miscount(format, args...)
}

// roomy are limits in the shape of 10/m, 50/h, 100/d, or of 100/d alone, with
// room for so many hits of a key in a minute.
func roomy(n int, hits int) counter.Limits {
	max := int64(hits)
	all := counter.Limits{{Max: 10 * max, Per: time.Minute}, {Max: 50 * max, Per: time.Hour}, {Max: 100 * max, Per: day}}
	return all[len(all)-n:]
}

// runners are contestants of these kinds with these numbers of limits.
func (b *bench) runners(kinds []kind, hits int, limits ...int) (all []*runner) {
	for _, n := range limits {
		for _, kind := range kinds {
			set := b.setting(roomy(n, hits))
			all = append(all, &runner{
				contestant: kind.make(b.T, set), bench: b, name: kind.name, limits: set.limits,
				began: time.Now(), now: b.now, aged: b.now, rand: rand.New(rand.NewPCG(1, 2)), hits: map[string][]time.Time{},
			})
		}
	}
	return all
}

// pass lets the runner's clock move on, by so much in the mean.
func (r *runner) pass(mean time.Duration) {
	if mean > 0 {
		r.now = r.now.Add(time.Duration(r.rand.Int64N(int64(2 * mean))))
	}
}

// live gives each key so many hits, so far apart in the mean, and then one more.
func (r *runner) live(keys []string, hits int, mean time.Duration) {
	r.bench.Helper()
	r.be(keys, hits, mean)
	for _, key := range keys {
		if r.fill == nil {
			r.hits[key] = nil
		}
		r.take(key)
	}
}

// be gives each key so many hits, and lets the server grow old meanwhile.
func (r *runner) be(keys []string, hits int, mean time.Duration) {
	filled := map[string]int{}
	for _, key := range keys {
		filled[key] = len(r.hits[key])
	}
	for i := range hits {
		for _, key := range keys {
			r.hits[key] = append(r.hits[key], r.now)
		}
		r.pass(mean)
		if r.fill == nil || i < hits-1 && r.now.Sub(r.aged) < r.limits[len(r.limits)-1].Per/48 {
			continue
		}
		for _, key := range keys {
			require.NoError(r.bench, r.fill(key, r.hits[key][filled[key]:]), r.name)
			filled[key] = len(r.hits[key])
		}
		r.age()
	}
}

// age takes the time that has passed on the runner's clock from the times to live
// of the stored keys. The server does not see the runner's clock and would keep for
// a day what should be gone. A key written meanwhile stays as is, and so lives on
// for a little too long.
func (r *runner) age() {
	passed := r.now.Sub(r.aged)
	r.aged = r.now
	if r.lasting {
		return
	}
	before := r.lives
	r.lives = map[string]time.Duration{}
	iter := r.bench.client.Scan(ctx, 0, r.stored, 10_000).Iterator()
	for iter.Next(ctx) {
		name := iter.Val()
		left, err := r.bench.client.PTTL(ctx, name).Result()
		require.NoError(r.bench, err)
		if last, known := before[name]; known && 0 <= left && left <= last { // below zero: it lives for ever
			left -= passed
			require.NoError(r.bench, r.bench.client.PExpire(ctx, name, left).Err()) // removes it, below zero
		}
		r.lives[name] = left
	}
	require.NoError(r.bench, iter.Err())
}

// take is one admitted hit.
func (r *runner) take(key string) {
	r.bench.now = r.now
	if r.call(r.hit(key), key) {
		r.hits[key] = append(r.hits[key], r.now)
	}
}

// turn measures so many calls.
func (r *runner) turn(calls int, call func(i int)) {
	cpu, before := r.bench.cpu(), r.bench.stats()
	start := time.Now()
	for i := range calls {
		call(i)
	}
	wall := time.Since(start)
	after, n := r.bench.stats(), float64(calls)
	r.wall = append(r.wall, float64(wall.Nanoseconds())/1e3/n)
	r.server = append(r.server, r.spent(before, after).us/n)
	r.cpu = append(r.cpu, (r.bench.cpu()-cpu)/n)
}

// check holds what the contestant has counted against what it was sent.
func (r *runner) check(keys []string) {
	r.bench.Helper()
	r.bench.now = r.now
	longest := r.limits[len(r.limits)-1]
	for _, key := range keys {
		used, err := r.used(key)
		if !r.call(err, key) {
			continue
		}
		if least, most := r.expect(key, longest); used < least || used > most {
			r.miscount("has %d hits of key %s, want %d to %d", used, key, least, most)
		}
	}
}

func (r *runner) expect(key string, longest counter.Limit) (least, most int64) {
	after := func(t time.Time) int64 {
		i, _ := slices.BinarySearchFunc(r.hits[key], t, time.Time.Compare)
		return int64(len(r.hits[key]) - i)
	}
	all := int64(len(r.hits[key]))
	switch r.rule {
	case sliding:
		// The oldest bucket counts whole, and a window is longer by the skew; the
		// log's stamps are milliseconds.
		return after(r.now.Add(time.Millisecond - longest.Per)), after(r.now.Add(-longest.Per - time.Second - 2*counter.DefaultSkew))
	case calendar:
		n := after(r.now.Truncate(longest.Per))
		return n, n
	case leaking:
		leaked := time.Since(r.began).Seconds()*float64(longest.Max)/longest.Per.Seconds() + 1
		return max(0, all-int64(leaked)-1), all
	}
	return all, all
}

func of(rs []*runner, name string, limits int) *runner {
	for _, r := range rs {
		if r.name == name && len(r.limits) == limits {
			return r
		}
	}
	panic(fmt.Sprintf("no runner %s with %d limits", name, limits))
}
