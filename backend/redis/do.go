package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// maxChanges of a script: each late one may take the server some milliseconds, in
// which it answers nobody else.
const maxChanges = 8

// Do adds and reads by one EVALSHA for each eight buckets of the finest tiers that
// it changes, the last of which reads. Each of them adds all or nothing, unless
// what it finds in one group of tiers was written by somebody else.
//
// Of the tiers that are kept equally long only the finest is stored. So an
// addition must name it, and taking back from a coarser one alone has no effect.
func (s *Store) Do(ctx context.Context, op *backend.Request) error {
	for i := range op.Add {
		op.Add[i].Count = 0
	}
	errands, err := s.errands(op)
	if err != nil || len(errands) == 0 {
		return err
	}
	for i := range errands {
		if err := errands[i].check(op); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	if op.N != 0 && len(op.Add) > 0 {
		for part := split(errands, op); part != nil; part = split(errands, op) {
			if err := s.send(ctx, op, part); err != nil {
				return err
			}
		}
	}
	return s.send(ctx, op, errands)
}

// split takes off errands what one script may change, nil if no more than that is
// left.
func split(errands []errand, op *backend.Request) []errand {
	left := 0
	for i := range errands {
		left += errands[i].changes(op)
	}
	if left <= maxChanges {
		return nil
	}
	var part []errand
	room := maxChanges
	for i := range errands {
		e := &errands[i]
		some := errand{group: e.group, life: e.life, oldest: e.oldest}
		e.add = slices.DeleteFunc(e.add, func(j int) bool {
			if room == 0 || op.Add[j].Width != e.width {
				return false
			}
			room--
			some.add = append(some.add, j)
			return true
		})
		if len(some.add) > 0 {
			part = append(part, some)
		}
	}
	return part
}

// send does what errands say in one script.
func (s *Store) send(ctx context.Context, op *backend.Request, errands []errand) error {
	p := make(program, 0, 64)
	mode := byte(modeCount)
	if op.N < 0 {
		mode = modeBack
	}
	p.begin(mode, op.AnyLabel)
	p.uint(uint64(max(op.N, -op.N)), 7)
	keys := make([]string, len(errands))
	for i := range errands {
		keys[i] = errands[i].rootName(op.Key)
		if err := errands[i].write(&p, op); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	var answer any
	var err error
	if op.N > 0 {
		answer, err = s.count(ctx, op.Deadline, doScript, keys, p, timeOfDo)
	} else {
		answer, err = s.run(ctx, op.Deadline, doScript, keys, p)
	}
	if err != nil {
		return err
	}
	reply, is := answer.([]any)
	if !is {
		return s.odd(answer)
	}
	return s.hand(op, errands, reply)
}

// timeOfDo is as timeOfTake.
func timeOfDo(answer any) (micro int64, late bool) {
	if reply, is := answer.(string); is && len(reply) == 1+timeBytes {
		return int64(number(reply[1:])), true
	}
	if reply, _ := answer.([]any); len(reply) > 0 {
		micro, _ = reply[len(reply)-1].(int64)
	}
	return micro, false
}

// errand is what an Op wants of one group.
type errand struct {
	group
	add    []int // of op.Add
	read   []int // of op.Read
	leaves []uint64
	values []any         // the root and the leaves that were read
	life   time.Duration // of what is added
	oldest int64         // where the buckets of add begin
}

// changes is how many buckets of the finest tier the errand adds to.
func (e *errand) changes(op *backend.Request) (n int) {
	for _, i := range e.add {
		if op.Add[i].Width == e.width {
			n++
		}
	}
	return n
}

// check tells with an error what cannot be done.
func (e *errand) check(op *backend.Request) error {
	var changed []int64
	for n, i := range e.add {
		slot := &op.Add[i]
		if from, _ := e.span(slot.Bucket); n == 0 || from < e.oldest {
			e.oldest = from
		}
		// What is kept for the finer tiers is as old as the coarsest needs it.
		e.life = max(e.life, slot.TTL-slot.Width+e.coarsest)
		if slot.Width == e.width {
			changed = append(changed, slot.Index)
		}
	}
	if len(e.add) > 1<<16-1 {
		return fmt.Errorf("%d buckets to change at once, want at most %d", len(e.add), 1<<16-1)
	}
	if op.N > 0 {
		slices.Sort(changed)
		for _, i := range e.add {
			from, to := e.span(op.Add[i].Bucket)
			if at, _ := slices.BinarySearch(changed, from); at == len(changed) || changed[at] >= to {
				return fmt.Errorf("an addition to %v without one to a bucket of %s in it", op.Add[i].Bucket, e.width)
			}
		}
	}
	return e.fits(e.life)
}

// errands sorts what op wants by group.
func (s *Store) errands(op *backend.Request) ([]errand, error) {
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
func (e *errand) write(p *program, op *backend.Request) error {
	var changed []int64
	for _, i := range e.add {
		if op.Add[i].Width == e.width {
			changed = append(changed, op.Add[i].Index)
		}
	}
	slices.Sort(changed)
	for _, i := range e.read {
		e.want(&op.Read[i])
	}
	slices.Sort(e.leaves)
	e.leaves = slices.Compact(e.leaves)
	if len(e.leaves) > 1<<16-1 {
		return fmt.Errorf("%d stretches of %d buckets to read at once, want at most %d", len(e.leaves), e.leaf, 1<<16-1)
	}
	p.uint(e.leafPositions(), 2)
	p.ms(e.ttl(e.life))
	p.index(e.stale(op.Now.UnixNano(), e.life))
	p.index(e.oldest)
	p.uint(uint64(len(changed)), 2)
	p.uint(uint64(len(e.add)), 2)
	p.flag(len(e.read) > 0)
	p.uint(uint64(len(e.leaves)), 2)
	for _, index := range changed {
		p.index(index)
	}
	for _, i := range e.add {
		from, to := e.span(op.Add[i].Bucket)
		p.index(from)
		p.index(to)
	}
	for _, leaf := range e.leaves {
		p.uint(leaf*e.leafPositions(), 6)
	}
	return nil
}

// needed is the oldest bucket that a read may need at op.Now.
func (e *errand) needed(op *backend.Request) int64 {
	keep := op.Ladder.At(e.first).Keep
	return tiers.Index(op.Now.UnixNano()-int64(keep+e.coarsest+e.late()/2), e.width)
}

// span is b in buckets of the finest tier: from the first to before the last.
func (e *errand) span(b tiers.Bucket) (from, to int64) {
	ratio := int64(b.Width / e.width)
	return b.Index * ratio, (b.Index + 1) * ratio
}

// want notes the leaves without which the buckets of a span cannot be told
// apart: those with an edge inside.
func (e *errand) want(span *backend.Span) {
	ratio := int64(span.Width / e.width)
	for i := range int64(len(span.Counts)) + 1 {
		if edge := position((span.First + i) * ratio); edge%e.leafPositions() != 0 {
			if leaf := edge / e.leafPositions(); len(e.leaves) == 0 || e.leaves[len(e.leaves)-1] != leaf {
				e.leaves = append(e.leaves, leaf)
			}
		}
	}
}

// hand writes what the script has answered into op: first all counts, since hits were
// added also where a value that was read is of no use.
func (s *Store) hand(op *backend.Request, errands []errand, reply []any) error {
	for i := range errands {
		e := &errands[i]
		values := 0
		if len(e.read) > 0 {
			values = 1 + len(e.leaves)
		}
		if len(reply) < len(e.add)+values {
			return fmt.Errorf("%s: an unexpected answer: too short", s)
		}
		for k, j := range e.add {
			n, is := reply[k].(int64)
			if !is {
				return s.odd(reply[k])
			}
			op.Add[j].Count = n
		}
		reply = reply[len(e.add):]
		e.values, reply = reply[:values], reply[values:]
	}
	for i := range errands {
		e := &errands[i]
		if len(e.read) == 0 {
			continue
		}
		r, err := s.root(e)
		if err != nil {
			return err
		}
		for _, j := range e.read {
			span := &op.Read[j]
			ratio := int64(span.Width / e.width)
			if !op.AnyLabel && r.lost(e.needed(op), span.First*ratio) {
				return fmt.Errorf("%s: %w", s, backend.ErrStaleLabel)
			}
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

// root is the root that was read for e, with its leaves.
func (s *Store) root(e *errand) (*root, error) {
	value, is := e.values[0].(string)
	if !is && e.values[0] != nil {
		return nil, s.odd(e.values[0])
	}
	r, err := parseRoot(e.group, value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	for i, number := range e.leaves {
		leaf, is := e.values[1+i].(string)
		if !is && e.values[1+i] != nil {
			return nil, s.odd(e.values[1+i])
		}
		r.leaves[number] = leaf
	}
	return r, nil
}
