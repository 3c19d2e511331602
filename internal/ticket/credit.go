package ticket

import (
	"context"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// Credit gives back the newest n hits of a key in the window w, or as many as there are,
// from all buckets that hold them. It finds them from the coarsest tier down, a trip for
// each tier; hits whose finer buckets are gone are taken from the coarser alone.
// r has the key, the label and the deadline.
//
// Whatever other calls do at the same time, no bucket loses more than its part of n, and
// none goes below zero: so no window loses more than n.
func (p *Protocol) Credit(ctx context.Context, r backend.Request, plan *Plan, w *backend.Window, n int64) error {
	fine := w.Finest
	type part struct {
		tiers.Bucket
		tier int
		n    int64 // hits of the bucket to take back
	}
	defer p.Lowered(r.Key)
	r.AnyLabel = true
	top := len(plan.tiers) - 1
	above := []part{{n: n}}
	now := r.Now.UnixNano()
	from := now - int64(w.Reach)
	runs := plan.Cover(nil, from, now+plan.skew, top, top)
	var found []part
	for tier := top; tier >= 0 && len(runs) > 0; tier-- {
		counts, err := Read(ctx, p.store, r, runs)
		if err != nil {
			return err
		}
		var parts []part
		for i, run := range runs { // the buckets of above[i]
			want := above[i].n
			for j := run.N - 1; j >= 0 && want > 0; j-- {
				if m := min(want, counts.At(run.Width, run.First+j)); m > 0 {
					parts = append(parts, part{tiers.Bucket{Width: run.Width, Index: run.First + j}, tier, m})
					want -= m
				}
			}
			// Of a bucket that begins before the window the rest may be older hits.
			if want > 0 && tier < top && (tier < fine || above[i].Start().UnixNano() >= from) {
				found = append(found, part{above[i].Bucket, tier + 1, want})
			}
		}
		above, runs = parts, nil
		for i := 0; tier > 0 && i < len(parts); i++ {
			run := childrenOf(parts[i].Bucket, plan.tiers[tier-1].Width)
			if before := tiers.Index(from, run.Width) - run.First; before > 0 && tier > fine {
				run.First, run.N = run.First+before, run.N-before
			}
			runs = append(runs, run)
		}
	}
	for _, part := range append(found, above...) {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.Confirmed(r.Key, plan, part.Start(), -part.n)
		if _, err := p.TakeBack(ctx, r, r.Deadline, part.n, plan.Slots(part.Start().UnixNano(), 1)[part.tier:], nil); err != nil {
			return err
		}
	}
	return nil
}
