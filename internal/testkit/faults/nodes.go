package main

import (
	"context"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// nodes sets up several memcached, of which callers know all but one.
func nodes(w *world) {
	var all []*servertest.Server
	for range 4 {
		all = append(all, servertest.StartMemcached(w.campaign.stage))
	}
	w.serve(all...)
	w.members = w.addrs[:3]
	w.placed = newPlacement(w.name)
}

// placement finds the server of a key.
type placement struct {
	key      string // the stored key of the last call
	counters [len(ladders)]*counter.Counter
}

func newPlacement(world string) *placement {
	p := &placement{}
	keys := backend.FromDo(func(_ context.Context, r *backend.Request) error {
		p.key = r.Key
		return nil
	})
	for i := range p.counters {
		p.counters[i] = newCounter(keys, world, i, time.Second, time.Now)
	}
	return p
}

// on returns the address of the server of a key, for callers with the list members.
func (p *placement) on(members []string, ladder int, key string) string {
	if err := p.counters[ladder].Add(context.Background(), counterKey(key), 1); err != nil {
		panic(err) // the reader cannot fail
	}
	selector, err := memcache.NewSelector(members...)
	if err != nil {
		panic(err)
	}
	addr, err := selector.PickServer(p.key + "|1s1")
	if err != nil {
		panic(err)
	}
	return addr.String()
}

// keysOn returns the keys on one of several memcached, and otherwise all keys.
func (w *world) keysOn(node *servertest.Server) keySet {
	if w.placed == nil {
		return nil
	}
	members := w.members
	return func(ladder int, key string) bool { return w.placed.on(members, ladder, key) == node.Addr }
}

// moving draws another list of servers, and returns the keys with another server by
// the new list.
func (s *strike) moving() keySet {
	old := s.members
	next := s.addrs
	if len(old) == len(s.addrs) {
		i := s.rng.IntN(len(old))
		next = slices.Concat(old[:i], old[i+1:])
	}
	s.next = next
	return func(ladder int, key string) bool {
		return s.placed.on(old, ladder, key) != s.placed.on(next, ladder, key)
	}
}

// relist replaces the processes one by one by processes with the list of moving.
func (s *strike) relist() {
	s.mu.Lock()
	s.members = s.next
	processes := slices.Clone(s.processes)
	s.mu.Unlock()
	for _, p := range processes {
		s.report(p.end())
		s.start(p.links)
	}
}
