package backendtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/tiers"
)

// forgetting is the request of a Counter at now. An Erase looks for every bucket that the
// ladder may have kept: on a busy machine one has taken longer than enough.
func (s *subject) forgetting(l tiers.Ladder, key string, now time.Time, label int64, remember time.Duration) *backend.ForgetRequest {
	f := &backend.ForgetRequest{Key: s.key(key), Ladder: l, Now: now, Deadline: time.Now().Add(4 * enough), Label: label, Remember: remember}
	for _, t := range l.Tiers() {
		f.TTLs = append(f.TTLs, ttl(t, 0))
	}
	return f
}

// forget is Forget, with all the time in the world, and a label of now.
func (s *subject) forget(l tiers.Ladder, key string, now time.Time) {
	f := s.forgetting(l, key, now, now.UnixNano(), ttl(coarsest(l), 0))
	mustf(s.Forget(context.Background(), f), "forgetting %s at %v", key, now.UTC())
	if s.model != nil {
		delete(s.model.Keys, f.Key)
	}
}

// forgotten stops the case unless what is remembered of key is want.
func (s *subject) forgotten(key string, now time.Time, want int64) {
	got, err := s.Forgotten(context.Background(), s.forgetting(dayLadder, key, now, 0, ttl(coarsest(dayLadder), 0)))
	mustf(err, "what is remembered of %s", key)
	if got != want {
		failf("of %s the label %d is remembered, want %d", key, got, want)
	}
}

// spread returns instants for hits of a key of l, in order: as long ago as each
// tier is kept, close together until now, and some ahead of now by the skew of
// another caller's clock.
func (s *subject) spread(l tiers.Ladder, now time.Time) (all []time.Time) {
	for _, t := range l.Tiers() {
		for i := range time.Duration(24) {
			all = append(all, now.Add(-t.Keep+i*t.Keep/24))
		}
	}
	for i := range time.Duration(1200 / s.thrift) {
		all = append(all, now.Add(-i*l.At(0).Width))
	}
	for i := range time.Duration(5) {
		all = append(all, now.Add(i*500*time.Millisecond))
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// emptied are the ladders of keys that are forgotten and erased.
var emptied = []tiers.Ladder{dayLadder, manyKeeps, fineLadder, parse.Ladder("1s:1m, 1h:7d"), parse.Ladder("10s:1d")}

func forgetsAll(s *subject) {
	ladders := some(s, emptied)
	together(len(ladders), func(i int) {
		s, l := s.with(oracle.NewStore()), ladders[i]
		key := fmt.Sprintf("k%dk", i)
		neighbours := []string{key + "1", key + ":", key + "!", "x" + key, strings.ToUpper(key), key[:2]}
		hits := s.spread(l, noon)
		for j, at := range hits {
			s.add(l, key, at, int64(1+j%3))
		}
		for _, other := range neighbours {
			s.add(l, other, noon, 7)
		}
		for range 2 { // the second finds nothing
			s.forget(l, key, noon)
		}
		for _, other := range neighbours { // before their buckets expire
			during(func() { s.get(l, other, noon, noon) }, "another key was forgotten")
			s.forgotten(other, noon, 0)
		}
		for _, at := range hits {
			during(func() { s.get(l, key, at, noon) }, "ladder %s, after a Forget at %v", l, noon)
		}
		if s.taker != nil {
			take := s.taking(l, noon, 3, 0, demand{key: key, limits: counter.Limits{{Max: 3, Per: coarsest(l).Keep}, {Max: 3, Per: l.At(0).Keep}}})
			must(s.take(take))
			s.get(l, key, noon, noon)
		}
		during(func() { s.forget(l, fmt.Sprint("never", i), noon) }, "a key that was never hit")
	})
}

// countsOn adds, takes back and forgets in the same few seconds, before and
// after the label of the last Forget.
func countsOn(s *subject) {
	for _, l := range []tiers.Ladder{dayLadder, manyKeeps} {
		for round := range min(4, 16/s.thrift) {
			key := fmt.Sprintf("k%s-%d", l.At(0).Keep, round)
			for range 80 {
				at := noon.Add(time.Duration(s.rand.IntN(9)-4) * time.Second)
				switch r := s.rand.IntN(8); {
				case r == 0:
					s.forget(l, key, noon)
				case r == 1 && s.model.Keys[s.key(key)][l.Buckets(at)[0]] != nil:
					s.add(l, key, at, -1)
				default:
					s.add(l, key, at, 2)
				}
				s.get(l, key, at, noon)
			}
		}
	}
}

// remembers forgets under labels of every kind: exact to the nanosecond, before
// 1970, out of order. A key is hit before, since of one without counts nothing
// need be remembered.
func remembers(s *subject) {
	hit := func(key string) { s.add(dayLadder, key, noon, 1) }
	const remember = 26 * time.Hour
	now := noon.UnixNano()
	s.forgotten("never", noon, 0)
	for i, label := range []int64{now, now + 1, now - 1, now | 1, 1, 1<<53 + 1, 1<<62 + 1, -1, -1 << 60, 1<<31 - 1, 1 << 31, time.Date(1701, 1, 1, 0, 0, 0, 1, time.UTC).UnixNano()} {
		key := fmt.Sprint("k", i)
		hit(key)
		during(func() { s.forgotten(key, noon, 0) }, "a key that was hit, and not forgotten")
		at := time.Unix(0, label)
		must(s.Forget(context.Background(), s.forgetting(dayLadder, key, at, label, remember)))
		s.forgotten(key, at, label)
		// A hit, or taking a hit back, changes nothing of the memory of a Forget.
		for _, n := range []int64{3, -3, 1} {
			s.add(dayLadder, key, at, n)
			during(func() { s.forgotten(key, at, label) }, "after a hit")
		}
		for _, other := range []string{key + "1", "x" + key, "never", key + "!"} {
			during(func() { s.forgotten(other, at, 0) }, "another key")
		}
	}
	newest := int64(0)
	for _, ahead := range []int64{0, 5, 3, 5, 1e9, -1e9, 1e9 + 1, 1e9} {
		hit("order")
		label := now + ahead
		newest = max(newest, label)
		must(s.Forget(context.Background(), s.forgetting(dayLadder, "order", noon, label, remember)))
		during(func() { s.forgotten("order", noon, newest) }, "forgotten at %d and then at %d", newest, label)
	}
}

// remembersFor watches what is remembered in the time of the world: for two
// seconds and a half, for longer than memcached's 30 days and the 2^31 ms of an
// int32, and where another Forget comes that asks for less.
func (s *subject) remembersFor(try int) {
	const short, day = 2500 * time.Millisecond, 24 * time.Hour
	began := time.Now()
	var lives []lived
	for i, m := range []struct {
		key      string
		remember time.Duration
		less     bool // an older label comes, to be remembered for a moment
	}{
		{"short", short, false},
		{"less", short, true},
		{"month", 31 * day, false},
		{"int32", 25 * day, false},
		{"year", 368 * day, true},
	} {
		key, label := fmt.Sprint(m.key, try), began.UnixNano()+int64(i)
		s.add(dayLadder, key, began, 1)
		must(s.Forget(context.Background(), s.forgetting(dayLadder, key, time.Now(), label, m.remember)))
		if m.less {
			s.add(dayLadder, key, began, 1)
			must(s.Forget(context.Background(), s.forgetting(dayLadder, key, time.Now(), label-1, time.Millisecond)))
		}
		lives = append(lives, lived{"a Forget of " + key, m.remember, func() { s.forgotten(key, time.Now(), label) }})
	}
	watch(began, lives, func(age time.Duration) bool { return age < 3500*time.Millisecond })
}

// forgetsInACrowd has every goroutine hit a key of its own, which must stay exact,
// and a shared key. Half of the goroutines forget as well; the other half hit until
// the forgetting ends.
func forgetsInACrowd(s *subject) {
	callers, calls := 8, min(60, 240/s.thrift)
	var forgetters atomic.Int64
	forgetters.Store(int64(callers / 2))
	together(callers, func(i int) {
		forgets := i%2 == 0
		if forgets {
			defer forgetters.Add(-1)
		}
		r := rand.New(rand.NewPCG(s.seed, uint64(i)))
		own, sum := fmt.Sprint("own", i), int64(0)
		for j := 0; j < calls || !forgets && forgetters.Load() > 0; j++ {
			at := noon.Add(time.Duration(r.IntN(3)) * time.Second)
			sum++
			got := s.add(dayLadder, own, at, 1)
			if got[2] != sum {
				failf("the hour of a key beside one that is forgotten counts %d, want %d", got[2], sum)
			}
			s.add(dayLadder, "shared", at, 1)
			if !forgets {
				continue
			}
			if r.IntN(4) == 0 {
				s.forget(dayLadder, "shared", at)
			}
			if r.IntN(16) == 0 {
				s.forget(dayLadder, own, at)
				sum = 0
			}
		}
	})
	s.forget(dayLadder, "shared", noon)
	for i := range time.Duration(3) {
		at := noon.Add(i * time.Second)
		during(func() { s.expect(dayLadder, "shared", at, noon, 0) }, "after the last of many Forgets")
	}
}
