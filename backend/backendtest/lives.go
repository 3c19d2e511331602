package backendtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/tiers"
)

// goneBy is the time by which a bucket with a life of at most three seconds must be
// gone: stores round, and may keep all buckets of a key a little longer.
const goneBy = 12 * time.Second

// errUnwatched tells that the machine stood still in the last quarter of a life, or in an
// addition: whether the life was as long as asked is not known.
var errUnwatched = errors.New("nobody looked in the last quarter of a life")

// watched runs a watch of lives again, on other keys, while it is errUnwatched.
func watched(watch func(s *subject, try int)) func(*subject) {
	return func(s *subject) {
		var err error
		for try := range 10 {
			if err = caught(func() { watch(s, try) }); !errors.Is(err, errUnwatched) {
				break
			}
		}
		must(err)
	}
}

// lived is knowledge that a store must keep for a time.
type lived struct {
	name  string
	lasts time.Duration
	look  func() // stops the case if it is not as it was
}

// watch looks, in the time of the world, at what must live from an instant on, until more
// is false.
func watch(began time.Time, lives []lived, more func(age time.Duration) bool) {
	seen := make([]bool, len(lives)) // in the last quarter
	for more(time.Since(began)) {
		for i, l := range lives {
			err := caught(l.look)
			age := time.Since(began)
			if err != nil && age < l.lasts {
				failf("%s, %s after the beginning of %s: %w", l.name, age, l.lasts, err)
			}
			seen[i] = seen[i] || age > l.lasts*3/4 && age < l.lasts
		}
		time.Sleep(50 * time.Millisecond) // no more than a pause
	}
	for i, l := range lives {
		if !seen[i] && l.lasts < time.Since(began) {
			must(errUnwatched)
		}
	}
}

// livesAndGoes watches, in the time of the world, buckets that expire: of a key
// with a single hit, and of a key with hits all the time.
func (s *subject) livesAndGoes(try int) {
	once, fed := fmt.Sprint("once", try), fmt.Sprint("fed", try)
	l, began := shortLife, time.Now()
	for _, key := range []string{once, fed} {
		s.add(l, key, began, 5)
	}
	// A later hit shortens nothing.
	again := &backend.Request{Key: s.key(once), Ladder: l, Now: time.Now(), N: 2, Add: chain(l, began, 0)}
	must(s.do(again))
	// A late addition meets a bucket that has gone, and creates another.
	late := ttl(l.At(0), 0) / 4
	if time.Since(began) > late {
		must(errUnwatched)
	}
	var lives []lived
	held := map[string]int64{once: 7, fed: 5}
	for key, n := range held {
		for i, tier := range l.Tiers() {
			lives = append(lives, lived{fmt.Sprintf("%s, bucket of %s", key, tier.Width), ttl(tier, 0), func() {
				// Hits fill up a coarse bucket all the time: its count may be greater.
				if got := s.get(l, key, began, time.Now())[i]; got < n || got > n && key == once {
					failf("is %d, want %d", got, n)
				}
			}})
		}
	}
	watch(began, lives, func(age time.Duration) bool {
		at := time.Now()
		s.add(l, fed, at, 1)
		if time.Since(at) > late {
			must(errUnwatched)
		}
		got := s.get(l, fed, at, time.Now())
		if min(got[0], got[1]) < 1 && time.Since(at) < ttl(l.At(0), 0) {
			failf("what was hit %s ago counts %v", time.Since(at), got)
		}
		there := false
		for key, n := range held {
			for i, got := range s.get(l, key, began, time.Now()) {
				if got != 0 && got < n {
					failf("%s, bucket of %s, is %d after %s, which it never was", key, l.At(i).Width, got, age)
				}
				there = there || got != 0
			}
		}
		if there && age > goneBy {
			failf("a bucket is still there after %s, its TTL was %s", age, ttl(l.At(1), 0))
		}
		return there
	})
	// A bucket that is gone cannot be taken from, and a taking back does not revive
	// the bucket.
	back := &backend.Request{Key: s.key(once), Ladder: l, Now: time.Now(), N: -1, Add: chain(l, began, 0)}
	must(s.do(back))
	same("taken back from what has expired", countsOf(back.Add), []int64{0})
	s.expect(l, once, began, time.Now(), 0)
}

func longLives(s *subject) {
	began := time.Now()
	var lives []lived
	ladders := []tiers.Ladder{
		parse.Ladder("1h:29d23h"), // 30 days, to the second
		parse.Ladder("1s:30d"),    // and one more
		parse.Ladder("1s:1m, 1h:60d"),
		parse.Ladder("1s:1d, 1m:7d, 1h:30d, 1d:60d"),
		parse.Ladder("1s:24d20h31m23s"), // 2^31 ms
		parse.Ladder("1s:49d17h2m47s"),  // 2^32 ms
		parse.Ladder("1m:366d"),
		parse.Ladder("1s:1m, 1m:1h, 1h:31d, 1d:366d"),
	}
	for i, l := range ladders {
		key := fmt.Sprint("l", i)
		during(func() { same("the first addition", s.add(l, key, began, 3), []int64{3}) }, "ladder %s", l)
		lives = append(lives, lived{"ladder " + l.String(), ttl(l.At(0), 0), func() { s.expect(l, key, began, time.Now(), 3) }})
	}
	watch(began, lives, func(age time.Duration) bool { return age < 4*time.Second })
	for i, l := range ladders {
		op := &backend.Request{Key: s.key(fmt.Sprint("l", i)), Ladder: l, Now: time.Now(), N: 2, Add: chain(l, began, 0)}
		must(s.do(op))
		same(fmt.Sprintf("ladder %s, hit once more", l), countsOf(op.Add), []int64{5})
	}
}
