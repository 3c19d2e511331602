package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Contents returns everything that a store holds, as text: the names and the
// values, of all keys and whatever they count.
type Contents func() (string, error)

// Erase holds a [backend.Store] to [backend.ForgetRequest.Erase]. open makes a
// store, as for [Run], and the Contents of the server.
func Erase(t *testing.T, open func(t testing.TB) (backend.Store, Contents)) {
	t.Helper()
	for _, c := range erasures {
		t.Run(c.name, func(t *testing.T) {
			store, contents := open(t)
			if err := c.hold(store, thrift(), contents); err != nil {
				t.Error(err)
			}
		})
	}
}

var erasures = []check{
	{"erasing a key", erasesKeys, compares,
		"Erase leaves no text of the key, keeps other keys, and remembers the label"},
	{"erasing after a day", erasesOldBuckets, compares,
		"Erase deletes buckets that no other bucket leads to any more"},
	{"erasing by a Counter", erasesFeatures, compares,
		"after Counter.Erase no text of the feature is left, whatever calls came before"},
}

// erase is a Forget that erases.
func (s *subject) erase(l tiers.Ladder, key string, now time.Time) {
	f := s.forgetting(l, key, now, now.UnixNano(), ttl(coarsest(l), 0))
	f.Erase = true
	mustf(s.Forget(context.Background(), f), "erasing %s at %v", key, now.UTC())
}

// lacks stops the case if the store holds a text that it should not hold, or lacks
// one that it should.
func (s *subject) lacks(text string, there bool) {
	all, err := s.contents()
	mustf(err, "the contents of the store")
	at := strings.Index(all, text)
	switch {
	case at < 0 && there:
		failf("nothing with %q among %d bytes in the store, so the search finds nothing", text, len(all))
	case at >= 0 && !there:
		failf("the store still holds %q", all[max(0, at-40):min(len(all), at+len(text)+40)])
	}
}

// addLate adds n at an instant before noon, as an AddAt at noon: to the tiers that
// are kept for so long.
func (s *subject) addLate(l tiers.Ladder, key string, at time.Time, n int64) {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: at, N: n, Age: max(0, noon.Sub(at)), Add: chain(l, at, 0)}
	op.Add = slices.DeleteFunc(op.Add, func(b backend.Slot) bool { return op.Age > b.TTL-b.Width })
	mustf(s.do(op), "adding %d to %s at %v", n, op.Key, at)
}

// erasesKeys fills keys of every length and of odd bytes, with hits of every
// tier, with buckets that count 0, and with a Forget.
func erasesKeys(s *subject) {
	long := 200 - len(s.key("k0x"))
	for i, l := range some(s, emptied) {
		odds := []string{"", `|!"#$%25&'()*+,-./:;<=>?@[\]^_~`, strings.Repeat("y", long-1), strings.Repeat("z", long)}
		for j, odd := range odds[s.rand.IntN(3):][:max(1, 2/s.thrift)] {
			key := fmt.Sprintf("k%dx%s", i, odd)
			neighbours := []string{key[:len(key)-1], strings.ToUpper(key[:len(key)-1]) + "_"}
			hits := s.spread(l, noon)
			if j > 0 { // the length of the key does not depend on the number of hits
				hits = append(hits[:20:20], noon)
			}
			s.fill(l, key, hits, j%2 == 0)
			during(func() { s.erasesKey(l, key, hits, neighbours) }, "ladder %s", l)
		}
	}
}

// fill adds hits at the instants, takes some back, and may forget half of them.
func (s *subject) fill(l tiers.Ladder, key string, hits []time.Time, forgets bool) {
	for n, at := range hits {
		for _, hit := range [][]int64{{3}, {3, -3}, {3, -1}}[n%3] {
			s.addLate(l, key, at, hit)
		}
		if n == len(hits)/2 && forgets {
			s.forget(l, key, noon)
		}
	}
}

// erasesKey erases a key with hits, and again after a later hit. The neighbours are hit
// just before and read just after, since their buckets expire.
func (s *subject) erasesKey(l tiers.Ladder, key string, hits []time.Time, neighbours []string) {
	for _, other := range neighbours {
		s.add(l, other, noon, 7)
	}
	s.lacks(s.key(key), true)
	for range 2 { // the second finds nothing
		s.erase(l, key, noon)
		s.lacks(s.key(key), false)
	}
	for _, other := range neighbours {
		during(func() { s.expect(l, other, noon, noon, 7) }, "another key was erased")
	}
	s.forgotten(key, noon, noon.UnixNano())
	for _, at := range hits {
		during(func() { s.expect(l, key, at, noon, 0) }, "after an Erase at %v", noon)
	}
	s.add(l, key, noon, 2)
	during(func() { s.expect(l, key, noon, noon, 2) }, "a hit after an Erase")
	s.erase(l, key, noon)
}

// erasesOldBuckets hits a key for 26 hours, often enough for a store that gathers
// buckets: the first hour has left every window, and may live.
func erasesOldBuckets(s *subject) {
	now := noon
	for range 26 {
		for range 30 {
			s.add(dayLadder, "old", now, 1)
			now = now.Add(2 * time.Minute)
		}
	}
	for range 2 {
		s.add(dayLadder, "old", now, 1)
		s.erase(dayLadder, "old", now)
		s.lacks(s.key("old"), false)
	}
}

// erasesFeatures makes every kind of call of a Counter.
func erasesFeatures(s *subject) {
	now, ctx := time.Now(), context.Background()
	c := s.counter("e", counter.Config{Patience: enough, Now: func() time.Time { return now }})
	event := strings.ToUpper(s.prefix) // is found in the stored form of every key of the event
	limits, other := counter.MustLimits("3/m, 5/h, 9/d"), counter.Ask{Key: counter.Key{Event: "signin", Feature: "user:another"}, N: 1, Limits: counter.MustLimits("1000/m")}
	features := []string{"email:ada@example.org", "\x00\xff {%}\u00fc\n:", strings.Repeat("long", 99)}
	for _, i := range s.rand.Perm(len(features))[:max(1, len(features)/s.thrift)] {
		feature := features[i]
		key := counter.Key{Event: event, Feature: feature}
		var verdicts []counter.Verdict
		for range 9 {
			v := value(c.TakeAll(ctx, counter.Ask{Key: key, N: 1, Limits: limits}, counter.Ask{Key: key, N: 1, Limits: limits, Soft: true}, other))
			verdicts = append(verdicts, v)
			now = now.Add(25 * time.Second)
		}
		if verdicts[0].Allowed == verdicts[8].Allowed {
			failf("nine calls in four minutes under 3/m, 5/h were all admitted, or all denied")
		}
		for i, step := range []func(){
			func() { must(c.Refund(ctx, &verdicts[0])) },
			func() { must(c.AddAt(ctx, key, 2, now.Add(-7*time.Hour))) },
			func() { must(c.AddAt(ctx, key, 2, now.Add(-23*time.Hour))) },
			func() { must(c.RefundAt(ctx, key, 2, now.Add(-7*time.Hour))) },
			func() { must(c.Add(ctx, key, 5)) },
			func() { must(c.Forget(ctx, key)) },
			func() { must(c.Refund(ctx, &verdicts[1])) },
			func() { now = now.Add(time.Hour); verdicts[2] = value(c.Take(ctx, key, 1, limits)) },
			func() { must(c.Refund(ctx, &verdicts[2])) },
			func() { now = now.Add(2 * time.Hour); must(c.Add(ctx, key, 5)) },
			func() { verdicts[2] = value(c.Take(ctx, key, 1, counter.MustLimits("9/d"))) },
			func() { s.lacks(event, true) },
			func() { must(c.Erase(ctx, key)) },
			func() { must(c.Erase(ctx, key)) },
			func() { must(c.Refund(ctx, &verdicts[2])) },
		} {
			during(step, "step %d", i)
		}
		if n, err := c.Count(ctx, key, 24*time.Hour); err != nil || n.High != 0 {
			failf("after an Erase %v are counted, error %w", n, err)
		}
		if n, err := c.Count(ctx, other.Key, 24*time.Hour); err != nil || n.High == 0 {
			failf("after an Erase of another key %v are counted, error %w", n, err)
		}
		s.lacks(event, false)
	}
}
