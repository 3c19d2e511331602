package backendtest

import (
	"context"
	"errors"
	"fmt"
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
func (s *subject) add(l tiers.Ladder, key string, at time.Time, n int64) ([]int64, error) {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: at, N: n, Add: chain(l, at, 0)}
	if err := s.do(op); err != nil {
		return nil, fmt.Errorf("adding %d to %s at %v: %w", n, op.Key, at, err)
	}
	return countsOf(op.Add), nil
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
func (s *subject) get(l tiers.Ladder, key string, at, now time.Time) ([]int64, error) {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: now}
	for _, b := range l.Buckets(at) {
		op.Read = append(op.Read, span(b.Width, b.Index, 1))
	}
	if err := s.do(op); err != nil {
		return nil, fmt.Errorf("reading %s at %v: %w", op.Key, at, err)
	}
	counts := make([]int64, len(op.Read))
	for i := range op.Read {
		counts[i] = op.Read[i].Counts[0]
	}
	return counts, nil
}

// row returns the counts of n buckets of a key.
func (s *subject) row(l tiers.Ladder, key string, now time.Time, width time.Duration, first int64, n int) ([]int64, error) {
	op := &backend.Request{Key: s.key(key), Ladder: l, Now: now, Read: []backend.Span{span(width, first, n)}}
	if err := s.do(op); err != nil {
		return nil, fmt.Errorf("reading %d buckets of %s of %s from %d on: %w", n, width, op.Key, first, err)
	}
	return op.Read[0].Counts, nil
}

// expect is an error unless every tier at the instant at counts want.
func (s *subject) expect(l tiers.Ladder, key string, at, now time.Time, want ...int64) error {
	got, err := s.get(l, key, at, now)
	if err != nil {
		return err
	}
	return same("reading "+key+" at "+at.UTC().Format(time.RFC3339Nano), got, want)
}

// same is an error unless got is want; a single want stands for all.
func same(what string, got, want []int64) error {
	if len(got) != len(want) && len(want) != 1 {
		return fmt.Errorf("%s: %d counts, want %d", what, len(got), len(want))
	}
	for i := range got {
		if w := want[min(i, len(want)-1)]; got[i] != w {
			if len(got) > 20 {
				return fmt.Errorf("%s: number %d is %d, want %d", what, i, got[i], w)
			}
			return fmt.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	return nil
}

// within returns an error if f is slower than any prompt machine.
func within(limit time.Duration, what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("%s did not return within %s", what, limit)
	}
}

// together runs f n times at once, and returns the first error.
func together(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
