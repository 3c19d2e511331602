package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Do adds and reads by one EVALSHA. It adds all or nothing, unless what it finds
// in one group of tiers was written by somebody else.
//
// Of the tiers that are kept equally long only the finest is stored. So an
// addition must name it, and taking back from a coarser one alone has no effect.
func (s *Store) Do(ctx context.Context, op *counter.Op) error {
	for i := range op.Add {
		op.Add[i].Count = 0
	}
	errands, err := s.errands(op)
	if err != nil || len(errands) == 0 {
		return err
	}
	p := make(program, 0, 64)
	p.uint(uint64(max(op.N, -op.N)), 7)
	p.flag(op.N < 0)
	keys := make([]string, len(errands))
	for i := range errands {
		keys[i] = errands[i].rootName(op.Key)
		if err := errands[i].write(&p, op); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	answer, err := s.run(ctx, op.Deadline, doScript, keys, p)
	if err != nil {
		return err
	}
	reply, is := answer.([]any)
	if !is {
		return s.odd(answer)
	}
	return s.hand(op, errands, reply)
}

// errand is what an Op wants of one group.
type errand struct {
	group
	add    []int // of op.Add
	read   []int // of op.Read
	leaves []uint64
}

// errands sorts what op wants by group.
func (s *Store) errands(op *counter.Op) ([]errand, error) {
	var buffer [tiers.MaxTiers]group
	groups := groupsOf(buffer[:0], op.Ladder)
	all := make([]errand, len(groups))
	for i, g := range groups {
		all[i].group = g
	}
	find := func(width time.Duration) (*errand, error) {
		for i := range all {
			for tier := all[i].first; tier <= all[i].last; tier++ {
				if op.Ladder.At(tier).Width == width {
					return &all[i], nil
				}
			}
		}
		return nil, fmt.Errorf("%s: a bucket of %s, the ladder is %q", s, width, op.Ladder)
	}
	for i := range op.Add {
		e, err := find(op.Add[i].Width)
		if err != nil {
			return nil, err
		}
		e.add = append(e.add, i)
	}
	for i := range op.Read {
		e, err := find(op.Read[i].Width)
		if err != nil {
			return nil, err
		}
		e.read = append(e.read, i)
	}
	return slices.DeleteFunc(all, func(e errand) bool { return len(e.add)+len(e.read) == 0 }), nil
}

// write tells the script what e wants.
func (e *errand) write(p *program, op *counter.Op) error {
	now := op.Now.UnixNano()
	var life time.Duration
	var changed []int64
	for _, i := range e.add {
		slot := &op.Add[i]
		life = max(life, slot.TTL)
		if slot.Width == e.width {
			changed = append(changed, slot.Index)
		}
	}
	if op.N > 0 {
		for _, i := range e.add {
			from, to := e.span(op.Add[i].Bucket)
			if !slices.ContainsFunc(changed, func(index int64) bool { return from <= index && index < to }) {
				return fmt.Errorf("an addition to %v without one to a bucket of %s in it", op.Add[i].Bucket, e.width)
			}
		}
	}
	if err := e.fits(life); err != nil {
		return err
	}
	if len(changed) > 1<<16-1 || len(e.add) > 1<<16-1 {
		return fmt.Errorf("%d buckets to change at once, want at most %d", len(e.add), 1<<16-1)
	}
	slices.Sort(changed)
	p.uint(uint64(e.leaf*perBucket), 2)
	p.ms(e.ttl(life))
	p.index(e.stale(now, life))
	p.uint(uint64(len(changed)), 2)
	for _, index := range changed {
		p.index(index)
	}
	p.uint(uint64(len(e.add)), 2)
	for _, i := range e.add {
		from, to := e.span(op.Add[i].Bucket)
		p.index(from)
		p.index(to)
	}
	for _, i := range e.read {
		e.want(&op.Read[i])
	}
	slices.Sort(e.leaves)
	e.leaves = slices.Compact(e.leaves)
	if len(e.leaves) > 1<<16-1 {
		return fmt.Errorf("%d stretches of %d buckets to read at once, want at most %d", len(e.leaves), e.leaf, 1<<16-1)
	}
	p.flag(len(e.read) > 0)
	p.uint(uint64(len(e.leaves)), 2)
	for _, leaf := range e.leaves {
		p.uint(leaf*e.leafPositions(), 6)
	}
	return nil
}

// span is b in buckets of the finest tier: from the first to before the last.
func (e *errand) span(b tiers.Bucket) (from, to int64) {
	ratio := int64(b.Width / e.width)
	return b.Index * ratio, (b.Index + 1) * ratio
}

// want notes the leaves without which the buckets of a span cannot be told
// apart: those with an edge inside.
func (e *errand) want(span *counter.Span) {
	ratio := int64(span.Width / e.width)
	for i := range int64(len(span.Counts)) + 1 {
		if edge := position((span.First + i) * ratio); edge%e.leafPositions() != 0 {
			if leaf := edge / e.leafPositions(); len(e.leaves) == 0 || e.leaves[len(e.leaves)-1] != leaf {
				e.leaves = append(e.leaves, leaf)
			}
		}
	}
}

// hand writes what the script has answered into op.
func (s *Store) hand(op *counter.Op, errands []errand, reply []any) error {
	for i := range errands {
		for _, j := range errands[i].add {
			if len(reply) == 0 {
				return s.odd(nil)
			}
			n, is := reply[0].(int64)
			if !is {
				return s.odd(reply[0])
			}
			op.Add[j].Count, reply = n, reply[1:]
		}
	}
	for i := range errands {
		e := &errands[i]
		if len(e.read) == 0 {
			continue
		}
		r, rest, err := s.root(e, reply)
		if err != nil {
			return err
		}
		reply = rest
		for _, j := range e.read {
			span := &op.Read[j]
			ratio := int64(span.Width / e.width)
			sum, err := r.before(span.First * ratio)
			for k := range span.Counts {
				if err != nil {
					break
				}
				var next uint64
				next, err = r.before((span.First + int64(k) + 1) * ratio)
				span.Counts[k] = int64(next - sum)
				sum = next
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
	}
	return nil
}

// root takes a root and its leaves off the answer.
func (s *Store) root(e *errand, reply []any) (*root, []any, error) {
	if len(reply) < 1+len(e.leaves) {
		return nil, nil, fmt.Errorf("%s: an unexpected answer: too short", s)
	}
	value, is := reply[0].(string)
	if !is && reply[0] != nil {
		return nil, nil, s.odd(reply[0])
	}
	r, err := parseRoot(e.group, value)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s, err)
	}
	for i, number := range e.leaves {
		if reply[1+i] == nil {
			continue
		}
		leaf, is := reply[1+i].(string)
		if !is {
			return nil, nil, s.odd(reply[1+i])
		}
		r.leaves[number] = leaf
	}
	return r, reply[1+len(e.leaves):], nil
}
