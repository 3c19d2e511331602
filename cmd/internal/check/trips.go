package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/promise"
	"github.com/abacus-go/abacus/tiers"
)

const (
	tripSamples  = 300
	fewSamples   = 20
	longestTrips = 2 * time.Second
	localSamples = 20_000
	farAway      = time.Millisecond // a plain command beyond this time waits for the network
)

// trips measures a Take next to the cheapest command of the server.
func (r *run) trips(ctx context.Context) (Result, error) {
	result := Result{Name: "speed", Promise: "one round trip", Status: OK}
	c, err := r.counter(tiers.Default, r.cfg.Timeout, "")
	if err != nil {
		return result, err
	}
	limits := counter.Limits{{Max: counter.MaxCount, Per: 24 * time.Hour}}
	once := func() error {
		began := time.Now()
		_, err := c.Take(ctx, counter.Key{Event: "speed", Feature: "one"}, 1, limits)
		return orSlow(began, err)
	}
	plain, name := r.plain(ctx)
	if plain == nil {
		began := time.Now()
		for i := 0; i < localSamples && err == nil; i++ {
			err = once()
		}
		each := time.Since(began) / localSamples
		result.Promise, result.Seen = "no round trip", fmt.Sprintf("a Take is %d ns", each.Nanoseconds())
		result.Numbers = map[string]float64{"take_us": micros(each)}
		return result, err
	}
	var takes, plains []time.Duration
	var f promise.Failures
	for start := time.Now(); len(takes) < tripSamples && (len(takes) < fewSamples || time.Since(start) < longestTrips); {
		// In turns, so that other work of this machine slows both alike.
		began := time.Now()
		if err := plain(); err != nil {
			return result, err
		}
		between := time.Now()
		err := once()
		f.Add(late(err), err)
		plains, takes = append(plains, between.Sub(began)), append(takes, time.Since(between))
	}
	if f.All() {
		return result, f.Last
	}
	slices.Sort(takes)
	slices.Sort(plains)
	middle, worst, least := takes[len(takes)/2], takes[len(takes)*99/100], plains[len(plains)/2]
	ratio := float64(middle) / float64(least)
	if least < farAway {
		result.Promise = "speed" // too near to count trips by their time
	}
	result.Seen = fmt.Sprintf("a Take is %s, %s %s: %.1f x", middle.Round(time.Microsecond), name, least.Round(time.Microsecond), ratio)
	result.Numbers = map[string]float64{"take_us": micros(middle), "take_p99_us": micros(worst), "plain_us": micros(least), "ratio": ratio}
	switch {
	case f.Failed > 0:
		r.warn(&result, f)
	case worst > r.cfg.Timeout/2:
		result.Status = Warning
		result.Means = fmt.Sprintf("One in a hundred takes %s, and --timeout is %s.\n%s", worst.Round(time.Microsecond), dur.Format(r.cfg.Timeout), tooSlow)
	case least > farAway && ratio > 1.9:
		result.Status, result.Means = Warning, "More than one round trip: something between here and the server asks twice."
	}
	return result, nil
}

// plain is the cheapest command of the server, and its name; nil without a server.
func (r *run) plain(ctx context.Context) (ask func() error, name string) {
	switch {
	case r.store.Redis != nil:
		return func() error { return r.store.Redis.Client.Ping(ctx).Err() }, "a PING"
	case r.store.Memcached != nil:
		return func() error {
			// The item does not exist: nothing is written.
			_, err := r.store.Memcached.Client.Increment(r.cfg.Prefix+"|none", 1)
			if err == gomemcache.ErrCacheMiss {
				err = nil
			}
			return err
		}, "an incr"
	}
	return nil, ""
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
