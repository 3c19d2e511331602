package backendtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// server is a naive store, with a clock of its own and a network that is slow for
// callers in a hurry. A server can be told to make a known mistake; without a
// mistake a server keeps the contract.
type server struct {
	fault string

	mu    sync.Mutex
	items map[place]item
	keys  map[string][]place // the items of a key
	last  *backend.Request   // answered

	forgotten map[string]forgotten
	dropped   map[string][]item // of a key, in a store that drops by its callers' labels
	ever      map[string]int64  // what was added to a key
	reaches   map[backend.Window]time.Duration
}

// place is the name of a bucket of a key in the server.
type place struct {
	key string
	tiers.Bucket
}

type item struct {
	key    string
	bucket tiers.Bucket
	count  int64
	dies   time.Time
	ttl    time.Duration
}

var _ backend.Atomic = (*server)(nil)

func newServer(fault string) *server {
	return &server{fault: fault, items: map[place]item{}, keys: map[string][]place{},
		forgotten: map[string]forgotten{}, dropped: map[string][]item{}, ever: map[string]int64{}, reaches: map[backend.Window]time.Duration{}}
}

func (s *server) CheckServers(context.Context, *backend.CheckRequest) error { return nil }

func (s *server) Report() backend.Report { return backend.Report{} }

// has reports whether the server makes the mistake. bite_test.go lists all mistakes.
func (s *server) has(fault string) bool { return s.fault == fault }

var errLate = fmt.Errorf("server: no answer: %w", os.ErrDeadlineExceeded)

// begun returns an error for a caller too late to begin, and the time left for
// others.
func (s *server) begun(ctx context.Context, deadline time.Time) (<-chan time.Time, error) {
	if err := ctx.Err(); err != nil && !s.has("sends under a cancelled context") {
		if s.has("no error under a cancelled context") {
			return nil, nil
		}
		return nil, err
	}
	if deadline.IsZero() {
		return nil, nil
	}
	if !time.Now().Before(deadline) && !s.has("sends after the deadline") {
		return nil, errLate
	}
	return time.After(time.Until(deadline)), nil
}

// hurried tells of a call that may be cut short; for such calls the network is
// slow.
func hurried(ctx context.Context, deadline time.Time) bool {
	return ctx.Done() != nil || !deadline.IsZero() && time.Until(deadline) < time.Second
}

func slowly() { time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond)))) }

func (s *server) Do(ctx context.Context, op *backend.Request) error {
	if !s.has("counts are not zeroed first") {
		for i := range op.Add {
			op.Add[i].Count = 0
		}
	}
	if !s.has("reads first, and leaves Ordered as it stood") {
		op.Ordered = false
	}
	if err := mistake(op); err != nil {
		return err
	}
	timeout, err := s.begun(ctx, op.Deadline)
	if err != nil {
		return err
	}
	if ctx.Err() != nil && s.has("no error under a cancelled context") {
		return nil
	}
	mine := op
	if !s.has("writes to the op later") {
		mine = clone(op)
	}
	if late := mine == op || s.has("reads the op later"); !late && !hurried(ctx, op.Deadline) {
		err := s.work(mine)
		s.copyBack(op, mine)
		if s.has("taking back goes below zero") {
			slowly() // all callers look before one takes back
		}
		return err
	}
	answered := make(chan error, 1)
	go func() {
		slowly()
		if s.has("reads the op later") {
			*mine = *clone(op)
		}
		if ctx.Err() != nil && (strings.HasPrefix(s.fault, "what is cut short is dropped") || s.has("takes back what had no answer")) {
			return
		}
		err := s.work(mine)
		slowly()
		answered <- err
	}()
	select {
	case err := <-answered:
		if mine != op {
			s.copyBack(op, mine)
		}
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout:
		err = errLate
	}
	switch {
	case s.has("sends again what had no answer"):
		go s.work(mine)
	case s.has("takes back what had no answer"):
		back := clone(op)
		back.N = -back.N
		_ = s.work(back)
	case s.has("no error when cut short"), s.has("what is cut short is dropped without an error"):
		return nil
	case s.has("what is cut short is dropped, and its slots say it was added"):
		for i := range op.Add {
			op.Add[i].Count = 1
		}
	}
	return err
}

func clone(op *backend.Request) *backend.Request {
	c := *op
	c.Add = slices.Clone(op.Add)
	c.Read = slices.Clone(op.Read)
	for i := range c.Read {
		c.Read[i].Counts = slices.Clone(op.Read[i].Counts)
	}
	return &c
}

func (s *server) copyBack(op, mine *backend.Request) {
	if s.has("answers one what another has asked") {
		s.mu.Lock()
		if s.last != nil && len(s.last.Add) == len(mine.Add) && rand.IntN(50) == 0 {
			mine, s.last = s.last, mine
		} else {
			s.last = mine
		}
		s.mu.Unlock()
	}
	if s.has("slots are answered finest first") {
		slices.SortFunc(mine.Add, func(a, b backend.Slot) int { return cmp.Compare(a.Width, b.Width) })
	}
	op.Ordered = mine.Ordered
	for i := range op.Add {
		op.Add[i].Count = mine.Add[i].Count
	}
	op.Ordered = mine.Ordered
	if s.has("spans are answered oldest first") {
		slices.SortFunc(mine.Read, func(a, b backend.Span) int { return cmp.Compare(a.First*int64(a.Width), b.First*int64(b.Width)) })
	}
	for i := range op.Read {
		if i < len(mine.Read) {
			copy(op.Read[i].Counts, mine.Read[i].Counts)
		}
	}
}

// work executes a request.
func (s *server) work(op *backend.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has("takes back all tiers or none") && op.N < 0 && len(op.Add) < op.Ladder.Len() {
		return nil
	}
	s.relabel(op)
	if err := s.staleDo(op); err != nil || s.before(op) {
		return err
	}
	readsFirst := strings.HasPrefix(s.fault, "reads first")
	if readsFirst {
		s.read(op)
		s.mu.Unlock()
		slowly()
		s.mu.Lock()
	}
	for i := range op.Add {
		if s.has("drops the coarsest addition") && i > 0 && i == op.Ladder.Len()-1 {
			op.Add[i].Count = op.N
			continue
		}
		if err := s.add(op, &op.Add[i]); err != nil {
			return err
		}
	}
	if !readsFirst {
		s.read(op)
	}
	if !s.has("reads first, and leaves Ordered as it stood") {
		op.Ordered = true
	}
	return nil
}

// read reads the spans of a request.
func (s *server) read(op *backend.Request) {
	seen := map[place]bool{}
	for i := range op.Read {
		r := &op.Read[i]
		for j := range r.Counts {
			if s.has("reads a thousand buckets at most") && j >= 1000 {
				r.Counts[j] = 0
				continue
			}
			b := tiers.Bucket{Width: r.Width, Index: r.First + int64(j)}
			it, there := s.item(op.Key, b)
			if !there && s.has("missing is left as it stood") {
				continue
			}
			if r.Counts[j] = it.count; s.has("a bucket is answered once") {
				name := s.name(op.Key, b)
				if seen[name] {
					r.Counts[j] = 0
				}
				seen[name] = true
			}
		}
	}
}

func (s *server) name(key string, b tiers.Bucket) place {
	switch {
	case s.has("long keys are cut"):
		key = key[:min(len(key), 100)]
	case s.has("keys in lower case"):
		key = strings.ToLower(key)
	case s.has("no separator in names"):
		return place{key: fmt.Sprint(key, b.Index, b.Width)}
	case s.has("a colon in names"):
		return place{key: fmt.Sprint(key, ":", b.Index)}
	case s.has("no bucket below zero"):
		b.Index = max(0, b.Index)
	case s.has("bucket numbers of 32 bits"):
		b.Index = int64(int32(b.Index))
	}
	return place{key, b}
}

func (s *server) item(key string, b tiers.Bucket) (item, bool) {
	it, there := s.items[s.name(key, b)]
	if there && !time.Now().Before(it.dies) {
		return item{}, false
	}
	return it, there
}

func (s *server) add(op *backend.Request, slot *backend.Slot) error {
	name := s.name(op.Key, slot.Bucket)
	it, there := s.item(op.Key, slot.Bucket)
	if !there && op.N < 0 && !s.has("taking back goes below zero") {
		if s.has("taking back from nothing is an error") {
			return errors.New("server: not found")
		}
		if !s.has("taking back creates") {
			return nil
		}
		it.count = 1 - op.N
	}
	if !there {
		it.key, it.bucket, it.dies, it.ttl = op.Key, slot.Bucket, s.dies(op, slot), slot.TTL
		s.keys[op.Key] = append(s.keys[op.Key], name)
	}
	before := it.count
	if s.ever[op.Key] += op.N; s.ever[op.Key] > backend.MaxCount && s.has("what has left counts against MaxCount") {
		return fmt.Errorf("server: %w", backend.ErrMaxCount)
	}
	switch {
	case op.N > backend.MaxCount-it.count && s.has("wraps at the end"):
		it.count = it.count + op.N - backend.MaxCount - 1
	case op.N > backend.MaxCount-it.count && s.has("stays at the end"):
		it.count = backend.MaxCount
	case op.N > backend.MaxCount-it.count && s.has("starts again at the end"):
		delete(s.items, name)
		return fmt.Errorf("server: %w", backend.ErrMaxCount)
	case op.N > backend.MaxCount-it.count && s.has("MaxCount without a name"):
		return errors.New("server: too many")
	case op.N > backend.MaxCount-it.count:
		return fmt.Errorf("server: %w", backend.ErrMaxCount)
	case s.has("taking back goes below zero"):
		it.count += op.N
	case it.count+op.N < 0 && s.has("taking back too much is ignored"):
	default:
		it.count = max(0, it.count+op.N)
	}
	if s.has("counts in 32 bits") {
		it.count = int64(uint32(it.count))
	}
	if s.has("counts in floats of 32 bits") {
		it.count = int64(float32(it.count))
	}
	if op.N > 0 && s.has("adds without a lock") || op.N < 0 && s.has("takes back without a lock") {
		s.mu.Unlock()
		time.Sleep(time.Duration(rand.IntN(20)) * time.Microsecond)
		s.mu.Lock()
	}
	s.items[name] = it
	slot.Count = it.count
	if s.has("a large key loses its oldest") {
		if names := s.keys[op.Key]; len(names) > 8000/thrift() {
			delete(s.items, names[0])
			s.keys[op.Key] = names[1:]
		}
	}
	if s.has("answers the count before") {
		slot.Count = before
	}
	if s.has("answers no counts") {
		slot.Count = 0
	}
	return nil
}

func (s *server) dies(op *backend.Request, slot *backend.Slot) time.Time {
	now, ttl := time.Now(), op.Life(slot)
	switch {
	case s.has("a late bucket lives as long as is left of its width"):
		ttl = slot.TTL
		if op.Age > 0 {
			ttl = slot.Width - op.Age
		}
	case s.has("lives for ever"):
		ttl = math.MaxInt64
	case s.has("lives half as long"):
		ttl /= 2
	case s.has("lives a tenth as long"):
		ttl /= 10
	case s.has("lives as long as its width"):
		ttl = slot.Width
	case s.has("a TTL above 30 days is a date") && ttl > 30*24*time.Hour:
		return time.Unix(int64(ttl/time.Second), 0)
	case s.has("a TTL in milliseconds of 32 bits"):
		ttl = time.Duration(int32(ttl.Milliseconds())) * time.Millisecond
	case s.has("a TTL is a date by the caller's clock"):
		now = op.Now
	case s.has("a TTL begins with the bucket"):
		now = slot.End()
	}
	return now.Add(ttl)
}
