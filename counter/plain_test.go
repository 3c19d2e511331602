package counter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// plainStore is a network store without the network. Like a network store it can
// only add and read, every bucket by itself, in any order, and lets other calls in
// between. The time is the caller's.
type plainStore struct {
	backend.Store // of Do alone

	mu      sync.Mutex
	buckets map[bucketKey]item
	trips   int
	writes  int
	reads   int

	ordered bool // additions come before reads, and the store says so

	// fault, if set, is asked before each trip. What it returns is the trip's
	// error; the first so many additions are made, of those so many are answered.
	fault func(op *backend.Request) (made, answered int, err error)
	// pause, if set, is called between the operations of a trip.
	pause func()
}

type bucketKey struct {
	key string
	tiers.Bucket
}

type item struct {
	count int64
	dies  time.Time
}

var _ backend.Store = (*plainStore)(nil)

func newPlainStore() *plainStore {
	s := &plainStore{buckets: map[bucketKey]item{}}
	s.Store = backend.FromDo(s.Do)
	return s
}

func (s *plainStore) Do(ctx context.Context, op *backend.Request) error {
	for i := range op.Add {
		op.Add[i].Count = 0
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	made, answered := len(op.Add), len(op.Add)
	var fail error
	s.mu.Lock()
	s.trips++
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if m, a, err := fault(op); err != nil {
			made, answered, fail = min(m, made), min(a, answered), err
		}
	}
	steps := made
	if fail == nil {
		for i := range op.Read {
			steps += len(op.Read[i].Counts)
		}
	}
	// Reads beside additions come in no order; for speed the order only begins
	// anywhere.
	first := rand.IntN(steps + 1)
	if s.ordered {
		first, op.Ordered = 0, true
	}
	for k := range steps {
		i := (first + k) % steps
		switch {
		case i < made:
			count, err := s.add(op, &op.Add[i])
			if i < answered {
				op.Add[i].Count = count
			}
			if err != nil {
				return err
			}
		default:
			i -= made
			span := op.Read
			for ; i >= len(span[0].Counts); span = span[1:] {
				i -= len(span[0].Counts)
			}
			span[0].Counts[i] = s.get(bucketKey{op.Key, tiers.Bucket{Width: span[0].Width, Index: span[0].First + int64(i)}}, op.Now)
		}
		if k < 8 && s.pause != nil {
			s.pause()
		}
	}
	return fail
}

func (s *plainStore) add(op *backend.Request, slot *backend.Slot) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := bucketKey{op.Key, slot.Bucket}
	it, there := s.buckets[c]
	if there && !op.Now.Before(it.dies) {
		it, there = item{}, false
	}
	if op.N < 0 && !there {
		return 0, nil
	}
	if !there {
		it.dies = op.Now.Add(slot.TTL)
	}
	if op.N > counter.MaxCount-it.count {
		return 0, fmt.Errorf("plain: %w", backend.ErrMaxCount)
	}
	it.count = max(0, it.count+op.N)
	s.buckets[c] = it
	s.writes++
	return it.count, nil
}

func (s *plainStore) get(c bucketKey, now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if it, there := s.buckets[c]; there && now.Before(it.dies) {
		return it.count
	}
	return 0
}

// held is the sum of all buckets of one width, and how many items there are.
func (s *plainStore) held(width time.Duration) (sum int64, items int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, it := range s.buckets {
		if c.Width == width {
			sum += it.count
		}
	}
	return sum, len(s.buckets)
}

func yieldSometimes() {
	if rand.IntN(3) == 0 {
		runtime.Gosched()
	}
}
