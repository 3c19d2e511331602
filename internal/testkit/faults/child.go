package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/internal/testkit/program"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// plants are breaks for the store of a process, and none. With a plant a test proves the
// campaign.
var plants = map[string]func(backend.Store) backend.Store{"": func(s backend.Store) backend.Store { return s }}

// serve does a job by the orders in its input.
func serve(j job, orders *json.Decoder, out *os.File) error {
	logging.Disable() // of go-redis: faults are meant
	t := &teller{out: out}
	before := goleak.IgnoreCurrent()
	store, closeStore, err := open(j)
	if err != nil {
		return err
	}
	plant := plants[j.Plant]
	store = plant(store)
	days := store
	if worldKind(j.World) == "memory" { // which expires by the clocks of its callers
		days = plant(memory.New(memory.Config{}))
	}
	var ids atomic.Uint64
	ids.Store(uint64(j.Process) << 40)
	var callers []*caller
	for i := range j.Callers {
		callers = append(callers, newCaller(&j, i, store, days, t, &ids))
	}
	if err := work(callers, &j, t, orders); err != nil {
		return err
	}
	d := &leftovers{}
	for _, c := range callers {
		d.Pauses += c.clock.paused.Load()
	}
	if err := closeStore(); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	d.Stacks = program.Left(before)
	d.Stacks = d.Stacks[:min(len(d.Stacks), 3000)] // a line must fit into a pipe at once
	t.tell(&line{Done: d})
	return nil
}

// work lets the callers call until the order to stop.
func work(callers []*caller, j *job, t *teller, orders *json.Decoder) error {
	stop := make(chan struct{})
	var running sync.WaitGroup
	for _, c := range callers {
		for i := range j.Each {
			running.Go(func() { c.run(i, stop) })
		}
	}
	// A regular line bounds the time of later lines: see line.At.
	running.Go(func() { every(25*time.Millisecond, stop, func() { t.tell(&line{}) }) })
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			return err // the campaign has gone
		}
		if o.Stop {
			break
		}
		callers[o.Caller].obey(o)
	}
	close(stop)
	running.Wait()
	return nil
}

// endTime bounds the end of calls under way.
const endTime = 10 * time.Second

// within waits until something is true, and reports whether it is within a time.
func within(limit time.Duration, is func() bool) bool {
	for began := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > limit {
			return false
		}
	}
	return true
}

// open opens the store of a world.
func open(j job) (backend.Store, func() error, error) {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if link := j.Links[addr]; link != "" {
			addr = link
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	switch worldKind(j.World) {
	case "memcached":
		s, err := memcache.New(memcache.Config{DialContext: dial}, j.Servers...)
		return s, s.Close, err
	case "redis":
		// The options of redis.Open, with another dial.
		dialer := redis.NewDialer(dial)
		client := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: j.Servers, MasterName: j.Master, IsClusterMode: j.Cluster,
			Dialer: dialer.DialContext, DialerRetries: 1, ContextTimeoutEnabled: true})
		s, err := redis.New(client, redis.Config{Dialer: dialer})
		return s, func() error { return errors.Join(client.Close(), dialer.Close()) }, err
	}
	return memory.New(memory.Config{}), func() error { return nil }, nil
}

// random is a source of random numbers of its own for each part of a campaign.
func random(seed uint64, parts ...int) *rand.Rand {
	stream := uint64(0)
	for _, p := range parts {
		stream = stream*1_000_003 + uint64(p) + 1
	}
	return rand.New(rand.NewPCG(seed, stream))
}
