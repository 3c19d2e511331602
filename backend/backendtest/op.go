package backendtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// noon is an instant in the middle of its minute, hour and day: the clock of
// cases that need no other.
var noon = time.Date(2026, 3, 2, 12, 30, 30, 500e6, time.UTC)

func mustLadder(s string) tiers.Ladder {
	l, err := tiers.Parse(s)
	if err != nil {
		panic(err)
	}
	return l
}

var (
	dayLadder  = mustLadder("1s:1d, 1m:1d, 1h:1d")
	manyKeeps  = mustLadder("1s:10s, 10s:10m, 10m:1d")
	fineLadder = mustLadder("100ms:2h, 1s:2h, 1m:1d, 1h:1d")
	shortLife  = mustLadder("100ms:1s, 1s:1s")
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

// do is Do, with all the time in the world, by a caller whose clock stands
// still: a label that is stale is asked with again, and AnyLabel.
func (s *subject) do(op *backend.Request) error {
	op.Deadline = time.Now().Add(enough)
	err := s.Do(context.Background(), op)
	if errors.Is(err, backend.ErrStaleLabel) && !op.AnyLabel {
		again := *op
		again.AnyLabel = true
		err = s.Do(context.Background(), &again)
	}
	return err
}

// add adds n to every tier at the instant at, and returns the new counts, finest
// first. With n below zero add takes back.
func (s *subject) add(l tiers.Ladder, key string, at time.Time, n int64) []int64 {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: at, N: n, Add: chain(l, at, 0)}
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

// get returns the count of every tier's bucket that holds at, for a caller whose
// clock is at now.
func (s *subject) get(l tiers.Ladder, key string, at, now time.Time) []int64 {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: now, Read: holding(l, at)}
	mustf(s.do(op), "reading %s at %v", op.Key, at)
	counts := make([]int64, len(op.Read))
	for i := range op.Read {
		counts[i] = op.Read[i].Counts[0]
	}
	return counts
}

// row returns the counts of n buckets of a key.
func (s *subject) row(l tiers.Ladder, key string, now time.Time, width time.Duration, first int64, n int) []int64 {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: now, Read: []backend.Span{span(width, first, n)}}
	mustf(s.do(op), "reading %d buckets of %s of %s from %d on", n, width, op.Key, first)
	return op.Read[0].Counts
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

// tally is the hits of a key, by the buckets of all tiers that hold them.
type tally map[tiers.Bucket]int64

// add adds n hits at an instant. With n below zero add takes back what is there.
func (t tally) add(l tiers.Ladder, at time.Time, n int64) {
	for _, b := range l.Buckets(at) {
		t[b] = max(0, t[b]+n)
	}
}

// slots stops the case unless the slots of an addition count as t does.
func (t tally) slots(what string, slots []backend.Slot) {
	for _, slot := range slots {
		if want := t[slot.Bucket]; slot.Count != want {
			failf("%s: bucket %s counts %d, want %d", what, slot.Bucket, slot.Count, want)
		}
	}
}

// spans stops the case unless the spans of a reading count as t does.
func (t tally) spans(what string, spans []backend.Span) {
	for i, r := range spans {
		for j, n := range r.Counts {
			if b := (tiers.Bucket{Width: r.Width, Index: r.First + int64(j)}); n != t[b] {
				failf("%s, span %d of %d: bucket %s is read as %d, want %d", what, i, len(spans), b, n, t[b])
			}
		}
	}
}

// addTo is add to a key and to its tally, which must agree.
func (s *subject) addTo(t tally, l tiers.Ladder, key string, at time.Time, n int64) {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: at, N: n, Add: chain(l, at, 0)}
	what := fmt.Sprintf("adding %d to %s at %v", n, op.Key, at)
	mustf(s.do(op), "%s", what)
	t.add(l, at, n)
	t.slots(what, op.Add)
}

// readsAs stops the case unless the spans of a key read as its tally does.
func (s *subject) readsAs(t tally, l tiers.Ladder, key string, now time.Time, spans ...backend.Span) {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: now, Read: spans}
	mustf(s.do(op), "reading %s", op.Key)
	t.spans("reading "+op.Key, spans)
}

// holding returns a span for the bucket of each tier that holds at.
func holding(l tiers.Ladder, at time.Time) (spans []backend.Span) {
	for _, b := range l.Buckets(at) {
		spans = append(spans, span(b.Width, b.Index, 1))
	}
	return spans
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
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- caught(func() { f(i) }) }()
	}
	var first error
	for range n {
		if err := <-errs; first == nil {
			first = err
		}
	}
	must(first)
}
