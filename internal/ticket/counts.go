package ticket

import (
	"context"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// Counts are buckets of a key that were read. Of buckets that are there twice, the
// first counts.
type Counts []backend.Span

// Read reads the runs, by requests like r. A bucket in two runs is read once.
func Read(ctx context.Context, store backend.Store, r backend.Request, runs tiers.Cover) (Counts, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	r.Read = spansOf(runs)
	if err := store.Do(ctx, &r); err != nil {
		return nil, err
	}
	return r.Read, nil
}

// At returns the count of a bucket, zero if the bucket was not read.
func (c Counts) At(width time.Duration, index int64) int64 {
	n, _ := c.find(width, index)
	return n
}

func (c Counts) find(width time.Duration, index int64) (n int64, read bool) {
	for i := range c {
		if span := &c[i]; span.Width == width && index >= span.First && index-span.First < int64(len(span.Counts)) {
			return span.Counts[index-span.First], true
		}
	}
	return 0, false
}

// Sum returns the sum of the buckets of runs.
func (c Counts) Sum(runs tiers.Cover) (sum int64) {
	for _, run := range runs {
		for i := range run.N {
			sum = Plus(sum, c.At(run.Width, run.First+i))
		}
	}
	return sum
}

// lacks returns the buckets of runs that were not read.
func (c Counts) lacks(runs tiers.Cover) (missing tiers.Cover) {
	for _, run := range runs {
		start := len(missing)
		for i := run.First; i < run.First+run.N; i++ {
			if _, read := c.find(run.Width, i); read {
				continue
			}
			if n := len(missing); n > start && missing[n-1].First+missing[n-1].N == i {
				missing[n-1].N++
			} else {
				missing = append(missing, tiers.Run{Width: run.Width, First: i, N: 1})
			}
		}
	}
	return missing
}

// spansOf is the union of runs, with space for their counts.
func spansOf(runs tiers.Cover) Counts {
	merged := cover.Merge(slices.Clone(runs))
	counts, spans := make([]int64, merged.Reads()), make(Counts, len(merged))
	for i, r := range merged {
		spans[i] = backend.Span{Width: r.Width, First: r.First, Counts: counts[:r.N:r.N]}
		counts = counts[r.N:]
	}
	return spans
}
