// Package serverclock is a clock for callers on many machines: the clock of their Redis
// server. It is an example, to be copied.
package serverclock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Clock is the clock of a Redis server, for Now of a counter.Config: callers on many
// machines then share a clock, however wrong the machines' own are. [New] makes a Clock. A
// Clock is used by many goroutines at once.
type Clock struct {
	client redis.UniversalClient

	mu      sync.Mutex
	server  time.Time     // the server's clock at the measurement
	at      time.Time     // the process's clock then, with the monotonic reading
	err     time.Duration // bound of the error of server: half the round trip
	last    time.Time     // the last result of Now
	due     time.Time     // of the next measurement
	running bool          // a measurement is
}

const (
	// remeasure is the time between two measurements.
	remeasure = 10 * time.Second

	// drift is the number of time units in which a bad quartz is wrong by a
	// unit: by a millisecond in remeasure.
	drift = 10_000
)

// New asks the server for the time and returns a clock that follows the server's. The clock
// asks again every ten seconds, next to the calls of Now, and Now does not wait for the
// answer; in between the process's own monotonic clock runs on, so that a step of the
// wall clock does not matter.
//
// Two processes' clocks differ by at most the sum of their [Clock.Error]s. So
// with a Skew in counter.Config at twice the largest Error, and a margin for rounds
// slower than the rounds at the start, the promise holds whatever the processes' own
// clocks are. Such a Skew is a millisecond or two where a round trip takes less than a
// millisecond.
//
// A Cluster has as many clocks as nodes, and a Clock follows any of them:
// there, and behind a failover, Skew must allow for the differences of the nodes' clocks too.
func New(ctx context.Context, client redis.UniversalClient) (*Clock, error) {
	c := &Clock{client: client}
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Now returns the server's time. Now goes back only where the server's clock did: if a
// new measurement is behind the last within the errors of both, Now stands still
// until the time has come.
func (c *Clock) Now() time.Time {
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

// Error returns a bound of the difference between Now and the server's clock: half the
// round trip of the last measurement, and the drift of a bad quartz since. The bound
// grows while the server cannot be reached.
func (c *Clock) Error() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err + time.Since(c.at)/drift
}

// ask measures the server's clock: of three tries the quickest is the best.
func (c *Clock) ask(ctx context.Context) error {
	var best time.Duration = -1
	var server, at time.Time
	for range 3 {
		before := time.Now()
		answer, err := c.client.Time(ctx).Result()
		if err != nil {
			return fmt.Errorf("serverclock: %w", err)
		}
		if trip := time.Since(before); best < 0 || trip < best {
			best, server, at = trip, answer, before.Add(trip/2)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() {
		// If the clock goes back by more than the errors of both measurements, the
		// server's clock was stepped.
		was := c.server.Add(at.Sub(c.at))
		if was.Sub(server) > c.err+best/2+at.Sub(c.at)/drift {
			c.last = time.Time{}
		}
	}
	c.server, c.at, c.err, c.due = server, at, best/2, time.Now().Add(remeasure)
	return nil
}
