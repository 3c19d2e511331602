package compare

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
)

// usage is the MEMORY USAGE of all these names together, where there is something.
func usage(ctx context.Context, redis *stores.Redis, names []string) (sum int64, err error) {
	for len(names) > 0 {
		some := names[:min(1000, len(names))]
		names = names[len(some):]
		answers, err := redis.Client.Pipelined(ctx, func(p goredis.Pipeliner) error {
			for _, name := range some {
				p.MemoryUsage(ctx, name, 0) // all elements, not a sample
			}
			return nil
		})
		if err != nil && !errors.Is(err, goredis.Nil) {
			return 0, err
		}
		for _, answer := range answers {
			n, err := answer.(*goredis.IntCmd).Result()
			if err != nil && !errors.Is(err, goredis.Nil) {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}

// refused tells whether a server has answered, but not what it was asked.
func refused(err error) bool {
	var answer goredis.Error
	return errors.As(err, &answer)
}

// commands is how often a server has done what it was told, those inside of
// scripts included.
type commands struct{ scripts, reads, writes int64 }

// kinds of commands that the scripts of backend/redis send, and other clients.
var kinds = map[string]func(*commands) *int64{
	"evalsha": func(c *commands) *int64 { return &c.scripts }, "eval": func(c *commands) *int64 { return &c.scripts },
	"get": func(c *commands) *int64 { return &c.reads }, "getrange": func(c *commands) *int64 { return &c.reads },
	"mget": func(c *commands) *int64 { return &c.reads }, "strlen": func(c *commands) *int64 { return &c.reads },
	"set": func(c *commands) *int64 { return &c.writes }, "setrange": func(c *commands) *int64 { return &c.writes },
	"append": func(c *commands) *int64 { return &c.writes }, "pexpire": func(c *commands) *int64 { return &c.writes },
	"del": func(c *commands) *int64 { return &c.writes }, "unlink": func(c *commands) *int64 { return &c.writes },
}

func commandsOf(ctx context.Context, redis *stores.Redis) (sum commands, err error) {
	err = redis.Masters(ctx, func(ctx context.Context, master *goredis.Client) error {
		text, err := master.Info(ctx, "commandstats").Result()
		for line := range strings.SplitSeq(text, "\r\n") {
			name, stats, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			calls, _, _ := strings.Cut(stats, ",")
			if field := kinds[name]; field != nil {
				n, wrong := strconv.ParseInt(calls, 10, 64)
				if wrong != nil {
					return wrong
				}
				*field(&sum) += n
			}
		}
		return err
	})
	return sum, err
}

// isQuiet tells whether for a while nobody has used the servers, so that their
// own counts can be taken for ours.
func isQuiet(ctx context.Context, redis *stores.Redis) (bool, error) {
	before, err := commandsOf(ctx, redis)
	if refused(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(100 * time.Millisecond):
	}
	after, err := commandsOf(ctx, redis)
	return before == after, err
}

// sweeping is how long the removal of one algorithm's keys may take.
const sweeping = 2 * time.Minute

// sweep removes all keys that have prefix in their names, also after an interrupt.
func sweep(ctx context.Context, redis *stores.Redis, prefix string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweeping)
	defer cancel()
	return redis.Masters(ctx, func(ctx context.Context, master *goredis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := master.Scan(ctx, cursor, "*"+prefix+"*", 1000).Result()
			if err != nil {
				return err
			}
			// One command a key: those of a Cluster are in many slots.
			if _, err := master.Pipelined(ctx, func(p goredis.Pipeliner) error {
				for _, key := range keys {
					p.Unlink(ctx, key)
				}
				return nil
			}); err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
}
