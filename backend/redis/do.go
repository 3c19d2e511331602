package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// maxChanges is the most buckets of the finest tiers that a script changes: a late
// change may take the server several milliseconds, and no other client gets an answer
// meanwhile.
const maxChanges = 8

// maxListed is the longest list in a request: two bytes hold the length of a list.
const maxListed = 1<<16 - 1

// doPart is the part of a Request for a group of tiers.
type doPart struct {
	group
	add    []int         // indexes of Request.Add
	read   []int         // indexes of Request.Read
	leaves []uint64      // numbers of the leaves to be read, in order
	values []any         // read: the root and the leaves
	life   time.Duration // of the buckets of add
	oldest int64         // bucket of the finest tier in which the buckets of add begin
}

// Do adds and reads by an FCALL for each eight buckets of the finest tiers to be
// changed; the last FCALL reads. Each adds all or nothing, unless a value of another
// shape is found in a group of tiers.
//
// Of tiers with the same Keep only the finest is stored. So an addition must name the
// finest, and taking back from coarser tiers alone has no effect.
func (s *sums) Do(ctx context.Context, req *backend.Request) error {
	req.Ordered = false // the groups of tiers have scripts of their own
	for i := range req.Add {
		req.Add[i].Count = 0
	}
	parts, err := partsOf(req)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	if len(parts) == 0 {
		return nil
	}
	if req.N != 0 {
		for first := split(parts, req); first != nil; first = split(parts, req) {
			if err := s.part(ctx, req, first); err != nil {
				return err
			}
		}
	}
	return s.part(ctx, req, parts)
}

// partsOf returns the parts of a Request with buckets to add to or to read.
func partsOf(req *backend.Request) ([]doPart, error) {
	var buffer [tiers.MaxTiers]group
	groups := groupsOf(buffer[:0], req.Ladder)
	parts := make([]doPart, len(groups))
	for i, g := range groups {
		parts[i].group = g
	}
	find := func(width time.Duration) (*doPart, error) {
		for i := range parts {
			for tier := parts[i].first; tier <= parts[i].last; tier++ {
				if req.Ladder.At(tier).Width == width {
					return &parts[i], nil
				}
			}
		}
		return nil, fmt.Errorf("a bucket of %s, the ladder is %q", width, req.Ladder)
	}
	for i := range req.Add {
		p, err := find(req.Add[i].Width)
		if err != nil {
			return nil, err
		}
		p.add = append(p.add, i)
	}
	for i := range req.Read {
		p, err := find(req.Read[i].Width)
		if err != nil {
			return nil, err
		}
		p.read = append(p.read, i)
		p.addLeaves(&req.Read[i])
	}
	wanted := slices.DeleteFunc(parts, func(p doPart) bool { return len(p.add)+len(p.read) == 0 })
	for i := range wanted {
		if err := wanted[i].prepare(req); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// addLeaves adds the leaves without which the buckets of a span cannot be told apart:
// leaves with a bucket that begins or ends in the middle.
func (p *doPart) addLeaves(span *backend.Span) {
	ratio := int64(span.Width / p.width)
	for i := range int64(len(span.Counts)) + 1 {
		if edge := position((span.First + i) * ratio); edge%p.leafPositions() != 0 {
			if leaf := edge / p.leafPositions(); len(p.leaves) == 0 || p.leaves[len(p.leaves)-1] != leaf {
				p.leaves = append(p.leaves, leaf)
			}
		}
	}
}

// prepare completes p, and returns an error for an impossible part.
func (p *doPart) prepare(req *backend.Request) error {
	slices.Sort(p.leaves)
	p.leaves = slices.Compact(p.leaves)
	if len(p.leaves) > maxListed {
		return fmt.Errorf("%d stretches of %d buckets to read at once, want at most %d", len(p.leaves), p.leaf, maxListed)
	}
	if len(p.add) > maxListed {
		return fmt.Errorf("%d buckets to change at once, want at most %d", len(p.add), maxListed)
	}
	for n, i := range p.add {
		slot := &req.Add[i]
		if from, _ := p.span(slot.Bucket); n == 0 || from < p.oldest {
			p.oldest = from
		}
		// The buckets of finer tiers are kept until the coarsest bucket has left.
		p.life = max(p.life, slot.TTL-slot.Width+p.coarsest)
	}
	if req.N > 0 {
		changed := p.changed(req)
		for _, i := range p.add {
			from, to := p.span(req.Add[i].Bucket)
			if at, _ := slices.BinarySearch(changed, from); at == len(changed) || changed[at] >= to {
				return fmt.Errorf("an addition to %v without one to a bucket of %s in it", req.Add[i].Bucket, p.width)
			}
		}
	}
	return p.fits(p.life)
}

// changed returns the buckets of the finest tier to be changed, in order.
func (p *doPart) changed(req *backend.Request) (indexes []int64) {
	for _, i := range p.add {
		if req.Add[i].Width == p.width {
			indexes = append(indexes, req.Add[i].Index)
		}
	}
	slices.Sort(indexes)
	return indexes
}

// span returns b in buckets of the finest tier: from the first to before to.
func (p *doPart) span(b tiers.Bucket) (from, to int64) {
	ratio := int64(b.Width / p.width)
	return b.Index * ratio, (b.Index + 1) * ratio
}

// needed returns the oldest bucket of use to a read at req.Now.
func (p *doPart) needed(req *backend.Request) int64 {
	keep := req.Ladder.At(p.first).Keep
	return tiers.Index(req.Now.UnixNano()-int64(keep+p.coarsest+p.late()/2), p.width)
}

// split takes from parts the additions of a script, and returns nil if a single script
// can do all the rest.
func split(parts []doPart, req *backend.Request) (first []doPart) {
	if len(req.Add) <= maxChanges {
		return nil
	}
	left := 0
	for i := range parts {
		left += len(parts[i].changed(req))
	}
	if left <= maxChanges {
		return nil
	}
	free := maxChanges
	for i := range parts {
		p := &parts[i]
		taken := doPart{group: p.group, life: p.life, oldest: p.oldest}
		p.add = slices.DeleteFunc(p.add, func(j int) bool {
			if free == 0 || req.Add[j].Width != p.width {
				return false
			}
			free--
			taken.add = append(taken.add, j)
			return true
		})
		if len(taken.add) > 0 {
			first = append(first, taken)
		}
	}
	return first
}

// part does parts in a single script.
func (s *sums) part(ctx context.Context, req *backend.Request, parts []doPart) error {
	keys := make([]string, len(parts))
	r := encodeDo(req, parts, keys)
	var got any
	var err error
	if req.N > 0 {
		got, err = s.count(ctx, req.Deadline, time.Time{}, doScript, keys, r, timeOfDo)
	} else if req.N == 0 {
		got, err = s.look(ctx, req.Deadline, readScript, keys, r)
	} else {
		got, err = s.look(ctx, req.Deadline, doScript.freeing(), keys, r)
	}
	if err != nil {
		return err
	}
	reply, is := got.([]any)
	if !is {
		return s.unexpected(got)
	}
	return s.decodeDo(req, parts, reply)
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
		changed := p.changed(req)
		r.uint(p.leafPositions(), 2)
		r.ms(p.ttl(p.life))
		r.index(p.stale(req.Now.UnixNano(), p.life))
		r.index(p.oldest)
		r.uint(uint64(len(changed)), 2)
		r.uint(uint64(len(p.add)), 2)
		r.flag(len(p.read) > 0)
		r.uint(uint64(len(p.leaves)), 2)
		for _, index := range changed {
			r.index(index)
		}
		for _, j := range p.add {
			from, to := p.span(req.Add[j].Bucket)
			r.index(from)
			r.index(to)
		}
		for _, leaf := range p.leaves {
			r.uint(leaf*p.leafPositions(), 6)
		}
	}
	return r
}

// timeOfDo is timeOfTake for an answer of do.lua.
func timeOfDo(answer any) (micro int64, late bool) {
	if reply, is := answer.(string); is && len(reply) == 1+timeBytes {
		return int64(number(reply[1:])), true
	}
	if reply, _ := answer.([]any); len(reply) > 0 {
		micro, _ = reply[len(reply)-1].(int64)
	}
	return micro, false
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
		for k, j := range p.add {
			n, is := reply[k].(int64)
			if !is {
				return s.unexpected(reply[k])
			}
			req.Add[j].Count = n
		}
		reply = reply[len(p.add):]
		p.values, reply = reply[:values], reply[values:]
	}
	for i := range parts {
		if err := s.decodeSpans(req, &parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// decodeSpans fills in the spans of p.
func (s *sums) decodeSpans(req *backend.Request, p *doPart) error {
	if len(p.read) == 0 {
		return nil
	}
	values := make([]string, len(p.values))
	for i, v := range p.values {
		is := v == nil
		if !is {
			values[i], is = v.(string)
		}
		if !is {
			return s.unexpected(v)
		}
	}
	root, err := parseRoot(p.group, values[0])
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	for i, leaf := range p.leaves {
		root.leaves[leaf] = values[1+i]
	}
	for _, j := range p.read {
		span := &req.Read[j]
		ratio := int64(span.Width / p.width)
		if !req.AnyLabel && root.lost(p.needed(req), span.First*ratio) {
			return fmt.Errorf("%s: %w", s, backend.ErrStaleLabel)
		}
		sum, err := root.before(span.First * ratio)
		for k := 0; k < len(span.Counts) && err == nil; k++ {
			var next uint64
			next, err = root.before((span.First + int64(k) + 1) * ratio)
			span.Counts[k] = int64(next - sum)
			sum = next
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}
