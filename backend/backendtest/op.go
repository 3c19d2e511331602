package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

// noon is an instant in the middle of its minute, hour and day: the clock of
// cases that need no other.
var noon = time.Date(2026, 3, 2, 12, 30, 30, 500e6, time.UTC)

var (
	dayLadder  = parse.Ladder("1s:1d, 1m:1d, 1h:1d")
	manyKeeps  = parse.Ladder("1s:10s, 10s:10m, 10m:1d")
	fineLadder = parse.Ladder("100ms:2h, 1s:2h, 1m:1d, 1h:1d")
	shortLife  = parse.Ladder("100ms:1s, 1s:1s")
)

// garbage stands wherever the store has to write.
const garbage = 7777

// ttl returns the TTL of a counter with the given slack.
func ttl(t tiers.Tier, slack time.Duration) time.Duration { return t.Width + t.Keep + 2*slack }

// chain is a slot of every tier, all of which hold the same instant.
func chain(l tiers.Ladder, at time.Time, slack time.Duration) []backend.Slot {
	slots := make([]backend.Slot, l.Len())
	for i, b := range l.Buckets(at) {
		slots[i] = backend.Slot{Bucket: b, TTL: ttl(l.At(i), slack), Count: garbage}
	}
	return slots
}

// span is a row of n buckets from first on.
func span(width time.Duration, first int64, n int) backend.Span {
	counts := make([]int64, n)
	for i := range counts {
		counts[i] = -garbage
	}
	return backend.Span{Width: width, First: first, Counts: counts}
}

// request is the addition of n to every tier at the instant at, by a caller whose clock
// is there.
func (s *subject) request(l tiers.Ladder, key string, at time.Time, n int64) *backend.Request {
	return &backend.Request{Key: s.key(key), Ladder: l, Now: at, N: n, Add: chain(l, at, 0)}
}

// call makes a call by a caller whose clock is at now, and again by AnyLabel if the label
// is stale, unless s.stale is against it.
func (s *subject) call(now time.Time, anyLabel *bool, call func() error) error {
	err := call()
	if !errors.Is(err, backend.ErrStaleLabel) || s.stale != nil && !s.stale(now, err) {
		return err
	}
	*anyLabel = true
	if err = call(); errors.Is(err, backend.ErrStaleLabel) {
		failf("by AnyLabel: %w", err)
	}
	*anyLabel = false
	return err
}

// answered reports whether the error of a call is not that of a stale label, and stops
// the case at any other error.
func answered(err error) bool {
	if errors.Is(err, backend.ErrStaleLabel) {
		return false
	}
	must(err)
	return true
}

// do is Do, with all the time in the world, by a caller whose clock stands
// still: a label that is stale is asked with again, and AnyLabel. An answer that the
// model has not, or a request that is another than it was, stops the case.
func (s *subject) do(op *backend.Request) error {
	op.Deadline = time.Now().Add(enough)
	slots, spans := slices.Clone(op.Add), slices.Clone(op.Read)
	err := s.call(op.Now, &op.AnyLabel, func() error {
		err := s.Do(context.Background(), op)
		if errors.Is(err, backend.ErrStaleLabel) {
			same("slots of an addition that was stale", countsOf(op.Add), []int64{0})
		}
		return err
	})
	for i, slot := range op.Add {
		if slot.Bucket != slots[i].Bucket || slot.TTL != slots[i].TTL {
			failf("slot %d was %v, and is %v", i, slots[i].Bucket, slot.Bucket)
		}
	}
	for i, r := range op.Read {
		if r.Width != spans[i].Width || r.First != spans[i].First || len(r.Counts) != len(spans[i].Counts) {
			failf("span %d of %d is another than it was", i, len(op.Read))
		}
	}
	if err == nil && s.model != nil {
		mustf(s.model.Do(op), "a request of %d", op.N)
	}
	return err
}

// add adds n to every tier at the instant at, and returns the new counts, finest
// first. With n below zero add takes back.
func (s *subject) add(l tiers.Ladder, key string, at time.Time, n int64) []int64 {
	op := s.request(l, key, at, n)
	mustf(s.do(op), "adding %d to %s at %v", n, op.Key, at)
	return countsOf(op.Add)
}

func countsOf(slots []backend.Slot) []int64 {
	counts := make([]int64, len(slots))
	for i := range slots {
		counts[i] = slots[i].Count
	}
	return counts
}

// read reads spans of a key, for a caller whose clock is at now.
func (s *subject) read(l tiers.Ladder, key string, now time.Time, spans ...backend.Span) {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: now, Read: spans}
	mustf(s.do(op), "reading %s at %v", op.Key, now)
}

// get returns the count of every tier's bucket that holds at, for a caller whose
// clock is at now.
func (s *subject) get(l tiers.Ladder, key string, at, now time.Time) []int64 {
	var spans []backend.Span
	for _, b := range l.Buckets(at) {
		spans = append(spans, span(b.Width, b.Index, 1))
	}
	s.read(l, key, now, spans...)
	var counts []int64
	for _, r := range spans {
		counts = append(counts, r.Counts[0])
	}
	return counts
}

// expect stops the case unless every tier at the instant at counts want.
func (s *subject) expect(l tiers.Ladder, key string, at, now time.Time, want ...int64) {
	same("reading "+key+" at "+at.UTC().Format(time.RFC3339Nano), s.get(l, key, at, now), want)
}

// same stops the case unless got is want; a single want stands for all.
func same(what string, got, want []int64) {
	if len(got) != len(want) && len(want) != 1 {
		failf("%s: %d counts, want %d", what, len(got), len(want))
	}
	for i := range got {
		if w := want[min(i, len(want)-1)]; got[i] != w {
			if len(got) > 20 {
				failf("%s: number %d is %d, want %d", what, i, got[i], w)
			}
			failf("%s: got %v, want %v", what, got, want)
		}
	}
}

// failure is the finding at which a case stops, as a test does
// at FailNow.
type failure struct{ error }

// failf stops the case.
func failf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// must stops the case if err is not nil.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// mustf is must with words before the error.
func mustf(err error, format string, args ...any) {
	if err != nil {
		failf("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// value returns v, or stops the case if err is not nil.
func value[T any](v T, err error) T {
	must(err)
	return v
}

// caught runs f, and returns the failure at which f stopped.
func caught(f func()) (err error) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case failure:
			err = found.error
		default:
			panic(found)
		}
	}()
	f()
	return nil
}

// during runs f, and puts words before its failure.
func during(f func(), format string, args ...any) { mustf(caught(f), format, args...) }

// after runs f, and puts what was said until then behind its failure.
func after(said *[]string, f func()) {
	if err := caught(f); err != nil {
		failf("%w\nafter\n%s", err, strings.Join(*said, "\n"))
	}
}

// within runs f, which must return sooner than any prompt machine needs.
func within(limit time.Duration, what string, f func()) {
	done := make(chan error, 1)
	go func() { done <- caught(f) }()
	select {
	case err := <-done:
		must(err)
	case <-time.After(limit):
		failf("%s did not return within %s", what, limit)
	}
}

// together runs f n times at once, and then stops the case if one of them has failed.
func together(n int, f func(i int)) {
	errs := make([]error, n)
	ticket.SideBySide(n, func(i int) { errs[i] = caught(func() { f(i) }) })
	for _, err := range errs {
		must(err)
	}
}
