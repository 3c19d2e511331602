package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/cmd/internal/stores"
)

// usage is the sum of MEMORY USAGE over names; a missing key counts zero.
func usage(ctx context.Context, redis *stores.Redis, names []string) (sum int64, err error) {
	for some := range slices.Chunk(names, 1000) {
		answers, _ := redis.Client.Pipelined(ctx, func(p goredis.Pipeliner) error { // each answer has its error
			for _, name := range some {
				p.MemoryUsage(ctx, name, 0) // all elements, not a sample
			}
			return nil
		})
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

// sizes is the sum of the sizes of items, as a memcached counts them: header, cas,
// name, value, and the ends of both texts. What a slab rounds up is left out.
func sizes(memcached *stores.Memcached, names []string) (sum int64, err error) {
	for some := range slices.Chunk(names, 1000) {
		items, err := memcached.Client.GetMulti(some)
		if err != nil {
			return 0, err
		}
		for name, item := range items {
			sum += 48 + 8 + int64(len(name)) + 1 + int64(len(item.Value)) + 2
		}
	}
	return sum, nil
}

// refused reports whether err is a server's answer, such as a refusal.
func refused(err error) bool {
	var answer goredis.Error
	return errors.As(err, &answer)
}

// commands counts the commands of a server, by the kinds sent by the scripts of
// backend/redis and by other clients. Commands inside of scripts are included.
type commands struct{ scripts, reads, writes int64 }

func (c *commands) of(name string) *int64 {
	switch name {
	case "fcall", "evalsha", "eval":
		return &c.scripts
	case "get", "getrange", "mget", "strlen":
		return &c.reads
	case "set", "setrange", "append", "pexpire", "del", "unlink":
		return &c.writes
	}
	return nil
}

func commandsOf(ctx context.Context, redis *stores.Redis) (sum commands, err error) {
	err = redis.Masters(ctx, func(ctx context.Context, master *goredis.Client) error {
		text, err := master.Info(ctx, "commandstats").Result()
		for line := range strings.SplitSeq(text, "\r\n") {
			name, stats, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			calls, _, _ := strings.Cut(stats, ",")
			if field := sum.of(name); field != nil {
				n, wrong := strconv.ParseInt(calls, 10, 64)
				if wrong != nil {
					return fmt.Errorf("INFO commandstats: calls of %s: %w", name, wrong)
				}
				*field += n
			}
		}
		return err
	})
	return sum, err
}

// isQuiet reports whether the servers had no other client for a while, so that the
// servers' own counts measure the comparison alone.
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
