// Package plain counts on memcached by the calls of a gomemcache client alone. Begin
// reading here.
//
// Each second, minute and hour of a key with a hit is an item. The value is the number
// of hits; the item expires after the last window that can hold a hit of that time:
//
//	ab:13hnD:signup:ip:203.0.113.9|1s1772407833    3    the second 23:30:33
//	ab:13hnD:signup:ip:203.0.113.9|1m29540130      4    the minute 23:30
//	ab:13hnD:signup:ip:203.0.113.9|1h492335        4    the hour 23
//
// A hit is an incr of three items, and an add of the missing ones. The count of a
// window is the sum of the items of a multi-get: hours in the middle, minutes and
// seconds at the edges.
//
// memcache.New makes a faster store on the same items, with more promises: one round
// trip also for a new item, proof that an answer belongs to its command, an Erase, a
// Check of clocks and evictions, and a minute in which late hits are undone. The
// bounds of the plain store are with [New].
package plain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/tiers"
)

const (
	maxCalls = 256  // in flight
	maxTries = 12   // to add to an item that comes and goes
	atOnce   = 16   // items that a call adds to side by side
	atATime  = 1000 // items of a multi-get: memcached answers no other client meanwhile
)

// Store keeps buckets on memcached, by a client of the caller: a [backend.Store]
// without an atomic step. All methods may be called by many goroutines at once.
type Store struct {
	backend.Store // Forget and Check, by Do

	client       *memcache.Client
	calls, undos chan struct{} // a token for each in flight
	late, left   atomic.Int64
}

// New returns a Store on a client, which stays the caller's. At most 256 calls are in
// flight; further calls wait until their deadline, but undos do not. The fields of
// the client bound what the store can do:
//
//   - Timeout: gomemcache takes no context, so a request lasts for up to Timeout (of
//     500 ms by default), and a call without a deadline for a few of them. Do returns
//     by its deadline nevertheless; its requests go on, and an addition that is
//     answered by then is undone. An addition that is answered later, or whose
//     connection is lost, stays until it ages out, and is a HitsLeft of the Report.
//   - MaxIdleConns: a Take on three tiers is four requests at once. With gomemcache's
//     default of 2 nearly every Take makes new connections.
//   - The selector: memcache.NewSelector has all items of a key on one server. With
//     gomemcache's own ServerList every call needs all servers, a server that is down
//     fails every call, and a change of the number of servers loses nearly all counts.
//
// An idle connection that the server has closed fails the next request. Answers
// that a proxy repeats or leaves out are not noticed. A server that is full and must
// not evict (-M) may refuse an undo, whose hits then stay.
func New(client *memcache.Client) (*Store, error) {
	if client == nil {
		return nil, errors.New("memcache: NewFromClient: client is nil, want a gomemcache client")
	}
	s := &Store{client: client, calls: make(chan struct{}, maxCalls), undos: make(chan struct{}, 1<<14)}
	s.Store = backend.FromDo(s.do)
	return s, nil
}

// Report is described in [backend.Store].
func (s *Store) Report() backend.Report {
	return backend.Report{LateAnswers: s.late.Load(), HitsLeft: s.left.Load()}
}

// do is the Do of the store. gomemcache takes no context, so a goroutine makes the
// requests, on a copy of r.
func (s *Store) do(ctx context.Context, r *backend.Request) error {
	if err := item.Begin(r); err != nil {
		return err
	}
	ctx, cancel := loan.WithDeadline(ctx, cmp.Or(r.Deadline, time.Now().Add(time.Minute)))
	defer cancel()
	c := &call{Request: *r, s: s, tokens: s.calls, done: make(chan error), gone: make(chan struct{})}
	c.Add, c.Read = slices.Clone(r.Add), slices.Clone(r.Read)
	for i := range c.Read {
		c.Read[i].Counts = make([]int64, len(r.Read[i].Counts))
	}
	if r.N < 0 {
		c.tokens = s.undos
	}
	defer close(c.gone)
	begun := false
	if ctx.Err() == nil {
		select {
		case c.tokens <- struct{}{}:
			go c.run()
			begun = true
		case <-ctx.Done():
		}
	}
	select {
	case err := <-c.done:
		copy(r.Add, c.Add)
		for i := range c.Read {
			copy(r.Read[i].Counts, c.Read[i].Counts)
		}
		return err
	case <-ctx.Done():
		if !begun && r.N < 0 {
			s.left.Add(int64(len(r.Add)))
		}
		return fmt.Errorf("memcache: %w, without an answer", ctx.Err())
	}
}

// call is a request in progress, with slots and spans of its own.
type call struct {
	backend.Request
	s      *Store
	tokens chan struct{} // one is the call's
	done   chan error    // to a caller that waits
	gone   chan struct{} // closed when the caller returns
}

// run makes the requests, and undoes the additions if the caller has returned.
func (c *call) run() {
	defer func() { <-c.tokens }()
	var all sync.WaitGroup
	errs := make([]error, len(c.Add)+1)
	all.Go(func() { errs[len(c.Add)] = c.read() })
	for i := range c.Add {
		if all.Go(func() { errs[i] = c.add(&c.Add[i]) }); i%atOnce == atOnce-1 {
			all.Wait()
		}
	}
	all.Wait()
	select {
	case c.done <- cmp.Or(errs...):
		return
	case <-c.gone:
	}
	for _, slot := range c.Add {
		if slot.Count > 0 && c.N > 0 {
			c.s.late.Add(1)
			c.undo(item.Name(c.Key, slot.Bucket), uint64(c.N))
		}
	}
}

// understand turns a panic into an error: gomemcache panics on some answers that no
// memcached gives.
func understand(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("memcache: answer: not understood: %v", r)
	}
}

// add increments the item of a bucket, or adds the item if there is none.
func (c *call) add(slot *backend.Slot) (err error) {
	defer understand(&err)
	name := item.Name(c.Key, slot.Bucket)
	if c.N < 0 {
		slot.Count, err = c.undo(name, uint64(-c.N))
		return err
	}
	expiry, err := item.Expiry(c.Life(slot), time.Now())
	if err != nil {
		return err
	}
	for range maxTries {
		sum, err := c.s.client.Increment(name, uint64(c.N))
		if err == nil {
			var made bool
			if slot.Count, made, err = item.Sum(c.N, sum); made && err != nil {
				c.undo(name, uint64(c.N))
			}
			return failed("incr", name, err)
		}
		if err == memcache.ErrCacheMiss {
			err = c.s.client.Add(&memcache.Item{Key: name, Value: strconv.AppendInt(nil, c.N, 10), Expiration: expiry})
		}
		var op *net.OpError
		switch {
		case err == nil:
			slot.Count = c.N
			return nil
		case err == memcache.ErrNotStored:
			continue // another caller was faster
		case errors.Is(err, io.EOF), errors.As(err, &op) && op.Op != "dial":
			c.s.left.Add(1) // perhaps the addition was made
		}
		return failed("incr", name, err)
	}
	return failed("add", name, fmt.Errorf("the item came and went %d times", maxTries))
}

// undo takes n from an item, if there is one, and returns the count after it.
func (c *call) undo(name string, n uint64) (count int64, err error) {
	defer understand(&err)
	rest, err := c.s.client.Decrement(name, n)
	switch err {
	case nil:
		count, err = item.Rest(rest)
	case memcache.ErrCacheMiss:
		err = nil
	default:
		c.s.left.Add(1)
	}
	return count, failed("decr", name, err)
}

// read reads the items of all spans.
func (c *call) read() (err error) {
	defer understand(&err)
	counts := map[string]int64{}
	each := func(f func(name string, count *int64)) {
		for _, span := range c.Read {
			for i := range span.Counts {
				f(item.Name(c.Key, tiers.Bucket{Width: span.Width, Index: span.First + int64(i)}), &span.Counts[i])
			}
		}
	}
	each(func(name string, _ *int64) { counts[name] = 0 })
	for names := range slices.Chunk(slices.Collect(maps.Keys(counts)), atATime) {
		items, err := c.s.client.GetMulti(names)
		if err != nil {
			return fmt.Errorf("memcache: get: %w", err)
		}
		for name, it := range items {
			if _, asked := counts[name]; !asked {
				return errors.New("memcache: get: answered with an item that was not asked for")
			}
			if counts[name], err = item.Count(it.Value); err != nil {
				return failed("get", name, err)
			}
		}
	}
	each(func(name string, count *int64) { *count = counts[name] })
	return nil
}

// failed returns err with the bucket, nil without err. The key may hold a personal
// address.
func failed(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("memcache: %s bucket %s: %w", verb, item.Bucket(name), err)
}
