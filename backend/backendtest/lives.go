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
func watched(watch func(try int)) {
	var err error
	for try := range 10 {
		if err = caught(func() { watch(try) }); !errors.Is(err, errUnwatched) {
			break
		}
	}
	must(err)
}

// livesAndGoes watches, in the time of the world, buckets that expire: of a key
// with a single hit, and of a key with hits all the time.
func livesAndGoes(s *subject) {
	watched(func(try int) { s.livesAndGoes(fmt.Sprint("once", try), fmt.Sprint("fed", try)) })
}

func (s *subject) livesAndGoes(once, fed string) {
	l := shortLife
	w := watch{subject: s, began: time.Now(), once: once, held: map[string]int64{once: 7, fed: 5}, seen: map[life]bool{}}
	for _, key := range []string{once, fed} {
		s.add(l, key, w.began, 5)
	}
	// A later hit shortens nothing.
	again := &backend.Request{Key: s.key(once), Ladder: l, Now: time.Now(), N: 2, Add: chain(l, w.began, 0)}
	must(s.do(again))
	// A late addition meets a bucket that has gone, and creates another.
	late := ttl(l.At(0), 0) / 4
	if time.Since(w.began) > late {
		must(errUnwatched)
	}
	for {
		gone := w.look()
		if gone {
			break
		}
		if age := time.Since(w.began); age > goneBy {
			failf("a bucket is still there after %s, its TTL was %s", age, ttl(l.At(1), 0))
		}
		at := time.Now()
		s.add(l, fed, at, 1)
		if time.Since(at) > late {
			must(errUnwatched)
		}
		got := s.get(l, fed, at, time.Now())
		if min(got[0], got[1]) < 1 && time.Since(at) < ttl(l.At(0), 0) {
			failf("what was hit %s ago counts %v", time.Since(at), got)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(w.seen) < len(w.held)*l.Len() {
		must(errUnwatched)
	}
	// A bucket that is gone cannot be taken from, and a taking back does not revive
	// the bucket.
	back := &backend.Request{Key: s.key(once), Ladder: l, Now: time.Now(), N: -1, Add: chain(l, w.began, 0)}
	must(s.do(back))
	same("taken back from what has expired", countsOf(back.Add), []int64{0})
	s.expect(l, once, w.began, time.Now(), 0)
}

// watch looks at the buckets of shortLife that keys had when the watch began.
type watch struct {
	*subject
	began time.Time
	once  string           // the key without later hits
	held  map[string]int64 // the counts, by key
	seen  map[life]bool    // in the last quarter
}

// life names a bucket by its key and its tier.
type life struct {
	key  string
	tier int
}

// look holds the buckets to their lives, and reports whether all are gone. Hits fill
// up a coarse bucket all the time: its count may be greater.
func (w *watch) look() (gone bool) {
	l := shortLife
	gone = true
	for key, n := range w.held {
		now := time.Now()
		got := w.get(l, key, w.began, now)
		age := time.Since(w.began)
		for i := range got {
			lived := ttl(l.At(i), 0)
			switch {
			case age < lived && (got[i] < n || got[i] > n && key == w.once):
				failf("%s, bucket of %s, is %d after %s, want %d for %s", key, l.At(i).Width, got[i], age, n, lived)
			case got[i] != 0 && got[i] < n:
				failf("%s, bucket of %s, is %d after %s, which it never was", key, l.At(i).Width, got[i], age)
			}
			if age > lived*3/4 && age < lived {
				w.seen[life{key, i}] = true
			}
			gone = gone && got[i] == 0
		}
	}
	return gone
}

func longLives(s *subject) {
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
	began := time.Now()
	for i, l := range ladders {
		during(func() { same("the first addition", s.add(l, fmt.Sprint("l", i), began, 3), []int64{3}) }, "ladder %s", l)
	}
	for time.Since(began) < 4*time.Second {
		for i, l := range ladders {
			during(func() { s.expect(l, fmt.Sprint("l", i), began, time.Now(), 3) }, "ladder %s, %s after it was hit", l, time.Since(began))
		}
		time.Sleep(200 * time.Millisecond)
	}
	for i, l := range ladders {
		op := &backend.Request{Key: s.key(fmt.Sprint("l", i)), Ladder: l, Now: time.Now(), N: 2, Add: chain(l, began, 0)}
		must(s.do(op))
		same(fmt.Sprintf("ladder %s, hit once more", l), countsOf(op.Add), []int64{5})
	}
}
