package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

const (
	// maxChanges is the most buckets of a group that a script changes: a late change may
	// take the server several milliseconds, and no other client gets an answer meanwhile.
	maxChanges = 250

	// maxLeaves is the most leaves that a script reads: two bytes hold their number.
	maxLeaves = 1<<16 - 1
)

// doPart is the part of a Request for a group of tiers.
type doPart struct {
	group
	add     []*backend.Slot
	read    []*backend.Span
	changed []int64       // buckets of the finest tier to be changed, in order
	leaves  []uint64      // numbers of the leaves to be read, in order
	values  []any         // read: the root and the leaves
	life    time.Duration // of the buckets of add
	oldest  int64         // bucket of the finest tier in which the buckets of add begin
}

// Do adds and reads by an FCALL, which adds all or nothing, unless a value of another
// shape is found in a group of tiers.
//
// Of tiers with the same Keep only the finest is stored. So an addition must name the
// finest, and taking back from coarser tiers alone has no effect.
func (s *sums) Do(ctx context.Context, req *backend.Request) error {
	req.Ordered = false // the groups of tiers have scripts of their own
	parts, err := partsOf(req)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	if len(parts) == 0 {
		return nil
	}
	keys := make([]string, len(parts))
	r := encodeDo(req, parts, keys)
	program := scripts().do
	switch {
	case req.N == 0:
		program = scripts().read
	case req.N < 0:
		program = scripts().do.freeing()
	}
	got, err := s.ask(ctx, req.Deadline, time.Time{}, program, keys, r)
	if err != nil {
		return err
	}
	reply, is := got.([]any)
	if !is {
		return s.unexpected(got)
	}
	return s.decodeDo(req, parts, reply)
}

// partsOf returns the parts of a Request with buckets to add to or to read.
func partsOf(req *backend.Request) (parts []doPart, err error) {
	var buffer [tiers.MaxTiers]group
	for _, g := range groupsOf(buffer[:0], req.Ladder) {
		parts = append(parts, doPart{group: g})
	}
	find := func(width time.Duration, add func(*doPart)) error {
		for i := range parts {
			for tier := parts[i].first; tier <= parts[i].last; tier++ {
				if req.Ladder.At(tier).Width == width {
					add(&parts[i])
					return nil
				}
			}
		}
		return fmt.Errorf("a bucket of %s, the ladder is %q", width, req.Ladder)
	}
	for i := range req.Add {
		slot := &req.Add[i]
		slot.Count = 0
		err = cmp.Or(err, find(slot.Width, func(p *doPart) { p.addSlot(slot) }))
	}
	for i := range req.Read {
		span := &req.Read[i]
		err = cmp.Or(err, find(span.Width, func(p *doPart) { p.addSpan(span) }))
	}
	parts = slices.DeleteFunc(parts, func(p doPart) bool { return len(p.add)+len(p.read) == 0 })
	for i := range parts {
		err = cmp.Or(err, parts[i].prepare(req.N))
	}
	return parts, err
}

// addSlot adds a bucket to add to.
func (p *doPart) addSlot(slot *backend.Slot) {
	from, _ := p.span(slot.Bucket)
	if len(p.add) == 0 || from < p.oldest {
		p.oldest = from
	}
	if slot.Width == p.width {
		p.changed = append(p.changed, slot.Index)
	}
	// The buckets of finer tiers are kept until the coarsest bucket has left.
	p.life = max(p.life, slot.TTL-slot.Width+p.coarsest)
	p.add = append(p.add, slot)
}

// addSpan adds a span to read, with the leaves without which its buckets cannot be told
// apart: leaves with a bucket that begins or ends in the middle.
func (p *doPart) addSpan(span *backend.Span) {
	p.read = append(p.read, span)
	ratio := int64(span.Width / p.width)
	for i := range int64(len(span.Counts)) + 1 {
		edge := position((span.First + i) * ratio)
		leaf, inside := edge/p.leafPositions(), edge%p.leafPositions()
		if n := len(p.leaves); inside != 0 && (n == 0 || p.leaves[n-1] != leaf) {
			p.leaves = append(p.leaves, leaf)
		}
	}
}

// prepare completes p, and returns an error for an impossible part.
func (p *doPart) prepare(n int64) error {
	slices.Sort(p.changed)
	slices.Sort(p.leaves)
	p.leaves = slices.Compact(p.leaves)
	switch {
	case len(p.leaves) > maxLeaves:
		return fmt.Errorf("%d stretches of %d buckets to read at once, want at most %d", len(p.leaves), p.leaf, maxLeaves)
	case len(p.add) > maxChanges:
		return fmt.Errorf("%d buckets to change at once, want at most %d", len(p.add), maxChanges)
	}
	for _, slot := range p.add {
		from, to := p.span(slot.Bucket)
		if at, _ := slices.BinarySearch(p.changed, from); n > 0 && (at == len(p.changed) || p.changed[at] >= to) {
			return fmt.Errorf("an addition to %v without one to a bucket of %s in it", slot.Bucket, p.width)
		}
	}
	return p.fits(p.life)
}

// span returns b in buckets of the finest tier: from the first to before to.
func (g group) span(b tiers.Bucket) (from, to int64) {
	ratio := int64(b.Width / g.width)
	return b.Index * ratio, (b.Index + 1) * ratio
}

// encodeDo returns the request, and fills in the stored keys of parts.
func encodeDo(req *backend.Request, parts []doPart, keys []string) request {
	r := make(request, 0, 64)
	mode := byte(modeCount)
	if req.N < 0 {
		mode = modeBack
	}
	r.begin(mode, req.AnyLabel, false)
	r.uint(uint64(max(req.N, -req.N)), 7)
	for i := range parts {
		p := &parts[i]
		keys[i] = p.rootName(req.Key)
		r.uint(p.leafPositions(), 2)
		r.ms(p.ttl(p.life))
		r.index(p.stale(req.Now.UnixNano(), p.life))
		r.index(p.oldest)
		r.uint(uint64(len(p.changed)), 2)
		r.uint(uint64(len(p.add)), 2)
		r.uint(uint64(min(len(p.read), 1)), 1)
		r.uint(uint64(len(p.leaves)), 2)
		for _, index := range p.changed {
			r.index(index)
		}
		for _, slot := range p.add {
			from, to := p.span(slot.Bucket)
			r.index(from)
			r.index(to)
		}
		for _, leaf := range p.leaves {
			r.uint(leaf*p.leafPositions(), 6)
		}
	}
	return r
}

// decodeDo fills req in from the answer of the script: first all counts, since hits
// were added also where a value is damaged.
func (s *sums) decodeDo(req *backend.Request, parts []doPart, reply []any) error {
	for i := range parts {
		p, values := &parts[i], 0
		if len(p.read) > 0 {
			values = 1 + len(p.leaves)
		}
		if len(reply) < len(p.add)+values {
			return fmt.Errorf("%s: an unexpected answer: too short", s)
		}
		for k, slot := range p.add {
			n, is := reply[k].(int64)
			if !is {
				return s.unexpected(reply[k])
			}
			slot.Count = n
		}
		reply = reply[len(p.add):]
		p.values, reply = reply[:values], reply[values:]
	}
	for i := range parts {
		if p := &parts[i]; len(p.read) > 0 {
			if err := p.decodeSpans(req); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
	}
	return nil
}

// decodeSpans fills in the spans of p.
func (p *doPart) decodeSpans(req *backend.Request) error {
	values := make([]string, len(p.values))
	for i, v := range p.values {
		if text, is := v.(string); is || v == nil {
			values[i] = text
		} else {
			return fmt.Errorf("an unexpected answer of type %T", v)
		}
	}
	root, err := parseRoot(p.group, values[0])
	if err != nil {
		return err
	}
	for i, leaf := range p.leaves {
		root.leaves[leaf] = values[1+i]
	}
	// The oldest bucket of use to a read at req.Now.
	needed := tiers.Index(req.Now.UnixNano()-int64(req.Ladder.At(p.first).Keep+p.coarsest+p.late()/2), p.width)
	for _, span := range p.read {
		ratio := int64(span.Width / p.width)
		if !req.AnyLabel && root.lost(needed, span.First*ratio) {
			return backend.ErrStaleLabel
		}
		sum, err := root.before(span.First * ratio)
		for k := 0; k < len(span.Counts) && err == nil; k++ {
			var next uint64
			next, err = root.before((span.First + int64(k) + 1) * ratio)
			span.Counts[k] = int64(next - sum)
			sum = next
		}
		if err != nil {
			return err
		}
	}
	return nil
}
