package ticket

import (
	"context"
	"time"

	"github.com/abacus-go/abacus/backend"
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
	for i := range c {
		if span := &c[i]; span.Width == width && index >= span.First && index-span.First < int64(len(span.Counts)) {
			return span.Counts[index-span.First]
		}
	}
	return 0
}

// cut reports whether the first bucket of run was read, and for how many buckets
// from there on the answer is the same.
func (c Counts) cut(run tiers.Run) (n int64, read bool) {
	n = run.N
	for i := range c {
		span := &c[i]
		end := span.First + int64(len(span.Counts))
		switch {
		case span.Width != run.Width || end <= run.First:
		case span.First <= run.First:
			return min(n, end-run.First), true
		default:
			n = min(n, span.First-run.First)
		}
	}
	return n, false
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
		for n, read := int64(0), false; run.N > 0; run.First, run.N = run.First+n, run.N-n {
			if n, read = c.cut(run); !read {
				missing = append(missing, tiers.Run{Width: run.Width, First: run.First, N: n})
			}
		}
	}
	return missing
}

// spansOf returns the buckets of runs, each once, with space for their counts.
func spansOf(runs tiers.Cover) Counts {
	counts, spans := make([]int64, runs.Reads()), make(Counts, 0, len(runs))
	for i := range runs {
		for _, run := range spans.lacks(runs[i : i+1]) {
			spans = append(spans, backend.Span{Width: run.Width, First: run.First, Counts: counts[:run.N:run.N]})
			counts = counts[run.N:]
		}
	}
	return spans
}
