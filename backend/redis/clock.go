package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ServerClock is the clock of a Redis server, for [counter.Config].Now: callers
// that all use it have one clock, whatever their own are. [Clock] makes one. It
// is used by many goroutines at once.
type ServerClock struct {
	client redis.UniversalClient

	mu      sync.Mutex
	server  time.Time     // the server's clock
	at      time.Time     // this process's, with the monotonic one, when that was measured
	err     time.Duration // half the round trip of it: how wrong it may be
	last    time.Time     // that Now has returned
	due     time.Time
	running bool
}

const (
	// remeasure is how long a measurement serves.
	remeasure = 10 * time.Second

	// drift is that of a bad quartz, one in so many: a millisecond in remeasure.
	drift = 10_000
)

// Clock asks the server for its time and returns a clock that follows it. The
// time is asked for again every ten seconds, beside the calls that need it, not
// in their way; in between the process's own monotonic clock runs on, so that a
// step of its wall clock does not matter.
//
// Two processes' clocks differ by at most the sum of their [ServerClock.Error]s. So
// with counter.Config.Skew at twice the largest Error, and a margin for rounds
// that are slower than those at the start, the promise holds whatever the
// processes' own clocks are: a millisecond or two where a round trip takes less
// than one.
//
// A Cluster has as many clocks as it has nodes, and this is that of any of them:
// there, and behind a failover, Skew must allow for their differences too.
func Clock(ctx context.Context, client redis.UniversalClient) (*ServerClock, error) {
	c := &ServerClock{client: client}
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Now is the server's time. It goes back only where the server's clock did: what a
// new measurement corrects within the errors of both, it waits for.
func (c *ServerClock) Now() time.Time {
	own := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if own.After(c.due) && !c.running {
		c.running = true
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = c.ask(ctx) // the last measurement serves on
			c.mu.Lock()
			defer c.mu.Unlock()
			c.running, c.due = false, time.Now().Add(remeasure)
		}()
	}
	now := c.server.Add(own.Sub(c.at))
	if now.Before(c.last) {
		return c.last
	}
	c.last = now
	return now
}

// Error is how far Now may be from the server's clock: half the round trip of the
// last measurement, and what a bad quartz drifts in the time since. It grows while
// the server cannot be reached.
func (c *ServerClock) Error() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err + time.Since(c.at)/drift
}

// ask measures the server's clock: of a few tries the quickest is the best.
func (c *ServerClock) ask(ctx context.Context) error {
	var best time.Duration = -1
	var server, at time.Time
	for range 3 {
		before := time.Now()
		answer, err := c.client.Time(ctx).Result()
		if err != nil {
			return fmt.Errorf("redis: the server's clock: %w", err)
		}
		if trip := time.Since(before); best < 0 || trip < best {
			best, server, at = trip, answer, before.Add(trip/2)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() {
		// How far back the clock goes now. Within the errors that is no step of the
		// server's.
		was := c.server.Add(at.Sub(c.at))
		if was.Sub(server) > c.err+best/2+at.Sub(c.at)/drift {
			c.last = time.Time{}
		}
	}
	c.server, c.at, c.err, c.due = server, at, best/2, time.Now().Add(remeasure)
	return nil
}
