// Package servers makes stores for the limiters of package classic that processes share.
package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/classic/internal/server"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// Redis makes a store on a Redis server, a master behind Sentinel, or a
// Cluster. The client must have ContextTimeoutEnabled: without the option a
// client ignores deadlines while waiting for an answer, and is refused. A
// client that spreads keys by a rule of its own, such as a Ring, is refused
// too. The client's owner closes the client. Commands that count are never sent
// twice, whatever the client does with other commands.
func Redis(client redis.UniversalClient, cfg classic.Config) (*classic.Store, error) {
	on, err := redisscript.On(client)
	if err != nil {
		return nil, fmt.Errorf("classic: %w", err)
	}
	return classic.On(&scripted{Server: on}, cfg)
}

// scripted is a Redis.
type scripted struct {
	*redisscript.Server
	known sync.Map // of server.Script to redisscript.Script
}

var _ server.Scripted = (*scripted)(nil)

// Run is described in [server.Scripted].
func (r *scripted) Run(ctx context.Context, script server.Script, name string, numbers []int64, cost *server.Cost) ([]int64, error) {
	known, is := r.known.Load(script)
	if !is {
		known, _ = r.known.LoadOrStore(script, redisscript.New(string(script)))
	}
	args := make([]any, len(numbers))
	for i, n := range numbers {
		args[i] = n
	}
	answer, trips, err := r.Server.Run(ctx, known.(redisscript.Script), []string{name}, args...)
	cost.Trips += trips
	if err != nil {
		return nil, r.Failed(ctx, err)
	}
	values, is := answer.([]any)
	if !is {
		return nil, fmt.Errorf("%s: the script's answer is a %T, want numbers", r, answer)
	}
	answers := make([]int64, len(values))
	for i, v := range values {
		if answers[i], is = v.(int64); !is {
			return nil, fmt.Errorf("%s: the script's answer has a %T, want numbers", r, v)
		}
	}
	return answers, nil
}

// Counts is an MGET.
func (r *scripted) Counts(ctx context.Context, names []string, cost *server.Cost) ([]int64, error) {
	cost.Trips++
	cost.Reads += int64(len(names))
	values, err := r.Client().MGet(ctx, names...).Result()
	if err != nil {
		return nil, r.Failed(ctx, err)
	}
	counts := make([]int64, len(names))
	for i, v := range values {
		if v == nil {
			continue
		}
		text, _ := v.(string)
		if counts[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, r.Failed(ctx, redisscript.ErrForeign)
		}
	}
	return counts, nil
}

// Add is a pipeline of INCRBY and PEXPIRE.
func (r *scripted) Add(ctx context.Context, n int64, to []server.Counter, cost *server.Cost) error {
	pipe := r.Client().Pipeline()
	for _, b := range to {
		_ = pipe.Process(ctx, redisscript.Once{Cmd: redis.NewCmd(ctx, "incrby", b.Name, n)})
		_ = pipe.Process(ctx, redisscript.Once{Cmd: redis.NewCmd(ctx, "pexpire", b.Name, whole(b.Life, time.Millisecond))})
		cost.Writes += 2
	}
	cost.Trips++
	if _, err := pipe.Exec(ctx); err != nil {
		return r.Failed(ctx, err)
	}
	return nil
}

// whole is d in units, rounded up. d is not below zero.
func whole(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

// Usage is the sum of MEMORY USAGE.
func (r *scripted) Usage(ctx context.Context, names []string) (sum int64, err error) {
	pipe := r.Client().Pipeline()
	for _, name := range names {
		pipe.MemoryUsage(ctx, name, 0) // all elements, not a sample
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, r.Failed(ctx, err)
	}
	for _, cmd := range cmds {
		n, err := cmd.(*redis.IntCmd).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, r.Failed(ctx, err)
		}
		sum += n // 0 where there is nothing
	}
	return sum, nil
}
