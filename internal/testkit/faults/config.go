package main

import (
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/history"
)

// Distance of clocks on a shared store, and longest time of a try by ticket: the
// defaults of counter.Config.
const (
	skew   = 100 * time.Millisecond
	settle = 250 * time.Millisecond
)

// late bounds the time in which a store may execute the requests of a failed call:
// the pauses of servers and links, and some more.
const late = 4 * time.Second

// worldKind is the store of a world: memcached, redis or memory.
func worldKind(world string) string {
	kind, _, _ := strings.Cut(world, " ")
	return kind
}

// newCounter makes a counter of a world on a ladder. Its Config is alike in all callers but
// for the clock and the patience.
func newCounter(store backend.Store, world string, ladder int, patience time.Duration, now func() time.Time) *counter.Counter {
	cfg := counter.Config{Ladder: ladders[ladder], Now: now}
	if worldKind(world) != "memory" {
		cfg.Skew, cfg.Settle, cfg.Patience = skew, settle, patience
	}
	c, err := counter.New(store, cfg)
	if err != nil {
		panic(err) // the same for all callers
	}
	return c
}

// counterKey is a caller's key as a counter knows it.
func counterKey(key string) counter.Key { return counter.Key{Event: "faults", Feature: key} }

// checkConfig returns the checker's knowledge of the counters of a world.
func checkConfig(world string, ladder int) history.Config {
	cfg := history.Config{Ladder: ladders[ladder], Late: late, Lives: dayEvery + 2*time.Second}
	switch worldKind(world) {
	case "memcached":
		cfg.Ticket, cfg.Settle, cfg.Skew, cfg.Remember = true, settle, skew, time.Second
	case "redis":
		cfg.Skew, cfg.Remember = skew, time.Second
		cfg.Apart = strings.HasSuffix(world, "cluster") // keys have slots of their own
	}
	return cfg
}
