package ticket

import (
	"context"
	"errors"
	"slices"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// MaxLabels bounds the labels of a call. With the last label the call is judged
// by the buckets that the store still has: a clock that was set back may never
// read late enough.
const MaxLabels = 4

// OneStep reports whether the store can check and add all keys of c in one step.
func (p *Protocol) OneStep(c *Call) bool {
	if c.Times > 1 && slices.ContainsFunc(c.Keys, func(k backend.TakeKey) bool { return k.Soft }) {
		return false // soft keys are judged for as many hits as the others take
	}
	return p.atomic != nil && (len(c.Keys) == 1 || p.atomic.Together(c.Keys))
}

// Stepped completes the step of the store for all keys of c, for which
// [Protocol.OneStep] holds and which has ended with err.
func (p *Protocol) Stepped(ctx context.Context, c *Call, err error) error {
	if err = p.stepped(ctx, c, &c.TakeRequest, err); err != nil {
		return err
	}
	clear(c.Unknown)
	if !c.Peek {
		p.memory.Record(c, c.Allowed, true, false)
	}
	if c.Times > 1 && c.Allowed && !c.Peek {
		c.Took(max(1, c.Taken))
	}
	return nil
}

// step takes the key by an atomic step. A soft key gets the label of the hits that are
// admitted already, and no other; a step is allowed whether a soft key fits or not.
func (s *survey) step(ctx context.Context) (Finding, error) {
	r := s.call.TakeRequest
	r.Keys, r.AnyLabel, r.Allowed, r.Times, r.Taken = s.keys, s.key.Soft, false, s.times, 0
	if err := s.p.stepped(ctx, s.call, &r, s.p.atomic.Take(ctx, &r)); err != nil {
		return Finding{}, err
	}
	if !r.Allowed || s.key.Soft && !s.key.Fits {
		return s.find(false, false), nil
	}
	if s.times = max(1, r.Taken); s.key.N > 0 {
		s.added = s.plan.Slots(r.Now.UnixNano(), 1)
	}
	return Finding{Allowed: true}, nil
}

// stepped completes an atomic step that has ended with err. It makes the step again,
// with a new label, each time that the store has dropped buckets of the label's window.
// A count that would grow beyond MaxCount makes a denial. r is the request of the call,
// or a part of the request.
func (p *Protocol) stepped(ctx context.Context, c *Call, r *backend.TakeRequest, err error) error {
	for labels := 1; errors.Is(err, backend.ErrStaleLabel) && !r.AnyLabel; labels++ {
		if err := p.staleLabel(c, labels); err != nil {
			return err
		}
		r.Now, r.Labelled, r.AnyLabel = c.Now, c.Labelled, c.AnyLabel
		err = p.atomic.Take(ctx, r)
	}
	if err == nil {
		p.seeNewest(c, r.Keys)
		return nil
	}
	if !errors.Is(err, backend.ErrMaxCount) || c.Charge {
		return err
	}
	peek := *r
	peek.Peek = true
	if err := p.atomic.Take(ctx, &peek); err != nil {
		return err
	}
	for i := range r.Keys {
		for j := range r.Keys[i].Windows {
			// The windows may have room, and the buckets that the store keeps beyond the
			// windows leave none below MaxCount.
			if w := &r.Keys[i].Windows[j]; peek.Allowed {
				width := r.Keys[i].Ladder.At(w.Finest).Width
				w.Count, w.FreedBy = w.Max, tiers.Bucket{Width: width, Index: tiers.Index(c.Label(), width)}
			}
		}
	}
	r.Allowed = false
	p.seeNewest(c, r.Keys)
	return nil
}

// seeNewest looks for buckets beyond Skew in the answer to an atomic step. In
// this process there is one clock.
func (p *Protocol) seeNewest(c *Call, keys []backend.TakeKey) {
	if p.local {
		return
	}
	for i := range keys {
		for j := range keys[i].Windows {
			if p.seeAhead(c, c.Plans[0], keys[i].Windows[j].Newest) {
				return
			}
		}
	}
}
