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
	ahead   time.Duration // of the server's clock, at the last measurement
	err     time.Duration // half the round trip of it: how wrong it may be
	due     time.Time
	running bool
}

// remeasure is how long a measurement serves: a bad quartz, off by one in ten
// thousand, drifts a millisecond in that time.
const remeasure = 10 * time.Second

// Clock asks the server for its time and returns a clock that follows it. The
// time is asked for again every ten seconds, beside the calls that need it, not
// in their way; in between the process's own clock runs on.
//
// A Cluster has as many clocks as it has nodes, and this is that of any of them:
// there, and behind a failover, Skew is still needed. Everywhere it must allow
// for half a round trip, which [ServerClock.Error] tells.
func Clock(ctx context.Context, client redis.UniversalClient) (*ServerClock, error) {
	c := &ServerClock{client: client}
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Now is the server's time.
func (c *ServerClock) Now() time.Time {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.After(c.due) && !c.running {
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
	return now.Add(c.ahead)
}

// Error is how wrong Now may be besides drift: half the round trip of the last
// measurement.
func (c *ServerClock) Error() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// ask measures how far the server's clock is ahead of this process's: of a few
// tries the quickest is the best.
func (c *ServerClock) ask(ctx context.Context) error {
	var best, ahead time.Duration = -1, 0
	for range 3 {
		before := time.Now()
		server, err := c.client.Time(ctx).Result()
		if err != nil {
			return fmt.Errorf("redis: the server's clock: %w", err)
		}
		if trip := time.Since(before); best < 0 || trip < best {
			best, ahead = trip, server.Sub(before.Add(trip/2))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead, c.err, c.due = ahead, best/2, time.Now().Add(remeasure)
	return nil
}
