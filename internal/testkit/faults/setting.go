package main

import (
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// setting is a store under trial, and the number of its callers.
type setting struct {
	name  string  // the first word is the kind of the store
	crew  int     // processes at a time
	share float64 // of all calls
	setUp func(w *world)

	durable  bool // a server that is killed keeps its data
	losing   bool // the store loses its buckets now and then
	evicting bool // and buckets of its choice, when it is full
}

// theWorlds are the stores: stores without a loss, with every window within the
// promise, and stores with a loss of buckets now and then.
var theWorlds = []setting{
	{name: "memcached", crew: 3, share: 0.16, setUp: memcached},
	{name: "memcached that loses", crew: 2, share: 0.08, setUp: memcached, losing: true},
	{name: "memcached that evicts", crew: 2, share: 0.07, setUp: evictingMemcached, evicting: true},
	{name: "memcached nodes", crew: 3, share: 0.1, setUp: nodes, losing: true},
	{name: "redis", crew: 3, share: 0.16, durable: true, setUp: func(w *world) {
		// Every answer is on disk first: a killed server loses no answered hit.
		w.serve(servertest.StartRedis(w.campaign.stage, "--appendonly", "yes", "--appendfsync", "always"))
	}},
	{name: "redis that loses", crew: 2, share: 0.08, losing: true, setUp: func(w *world) {
		w.serve(servertest.StartRedis(w.campaign.stage))
	}},
	{name: "redis that evicts", crew: 2, share: 0.07, setUp: evictingRedis, evicting: true},
	{name: "redis sentinel", crew: 2, share: 0.08, setUp: sentinel},
	{name: "redis cluster", crew: 2, share: 0.08, setUp: cluster},
	{name: "memory", crew: 2, share: 0.12},
}

func memcached(w *world) { w.serve(servertest.StartMemcached(w.campaign.stage)) }
