package classic

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// Redis makes a store on a Redis server, a master behind Sentinel, or a
// Cluster. The client must have ContextTimeoutEnabled: without the option a
// client ignores deadlines while waiting for an answer, and is refused. A
// client that spreads keys by a rule of its own, such as a Ring, is refused
// too. The client's owner closes the client. Commands that count are never sent
// twice, whatever the client does with other commands.
func Redis(client redis.UniversalClient, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	server, err := redisscript.On(client)
	if err != nil {
		return nil, fmt.Errorf("classic: %w", err)
	}
	r := &remote{server, cfg.Timeout}
	return &Store{cfg: cfg, server: r, remote: r}, nil
}

// remote is a Redis.
type remote struct {
	server  *redisscript.Server
	timeout time.Duration
}

var _ server = (*remote)(nil)

func (r *remote) String() string { return r.server.String() }

//go:embed classic.lua
var preludeLua string

// newScript makes a script. Lua's arguments are the numbers of [remote.run], in
// order.
func newScript(body string) redisscript.Script { return redisscript.New(preludeLua + body) }

// run runs a script on the state of name and fills c in.
func (r *remote) run(ctx context.Context, sc redisscript.Script, name string, c *call, numbers ...int64) error {
	ctx, cancel := loan.WithTimeout(ctx, r.timeout)
	defer cancel()
	args := make([]any, len(numbers))
	for i, n := range numbers {
		args[i] = n
	}
	answer, trips, err := r.server.Run(ctx, sc, []string{name}, args...)
	c.trips += trips
	if err != nil {
		return r.server.Failed(ctx, err)
	}
	values, is := answer.([]any)
	if !is || len(values) != 3+len(c.facts) {
		return fmt.Errorf("%s: the script's answer is a %T, want %d numbers", r.server, answer, 3+len(c.facts))
	}
	var answers [7]int64
	for i, v := range values {
		if answers[i], is = v.(int64); !is {
			return fmt.Errorf("%s: the script's answer has a %T, want numbers", r.server, v)
		}
	}
	c.allowed = answers[0] == 1
	c.reads += answers[1]
	c.writes += answers[2]
	copy(c.facts[:], answers[3:])
	return nil
}

// counts is an MGET.
func (r *remote) counts(ctx context.Context, names []string, c *call) ([]int64, error) {
	c.trips++
	c.reads += int64(len(names))
	values, err := r.server.Client().MGet(ctx, names...).Result()
	if err != nil {
		return nil, r.server.Failed(ctx, err)
	}
	counts := make([]int64, len(names))
	for i, v := range values {
		if v == nil {
			continue
		}
		text, _ := v.(string)
		if counts[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, r.server.Failed(ctx, redisscript.ErrForeign)
		}
	}
	return counts, nil
}

// add is a pipeline of INCRBY and PEXPIRE.
func (r *remote) add(ctx context.Context, n int64, to []counted, c *call) error {
	pipe := r.server.Client().Pipeline()
	for _, b := range to {
		_ = pipe.Process(ctx, redisscript.Once{Cmd: redis.NewCmd(ctx, "incrby", b.name, n)})
		_ = pipe.Process(ctx, redisscript.Once{Cmd: redis.NewCmd(ctx, "pexpire", b.name, ceilDiv(b.life, 1000))})
		c.writes += 2
	}
	c.trips++
	if _, err := pipe.Exec(ctx); err != nil {
		return r.server.Failed(ctx, err)
	}
	return nil
}

// usage is the memory of the values under names.
func (r *remote) usage(ctx context.Context, names []string) (sum int64, err error) {
	for len(names) > 0 {
		some := names[:min(1000, len(names))]
		names = names[len(some):]
		n, err := r.usageOf(ctx, some)
		if err != nil {
			return 0, r.server.Failed(ctx, err)
		}
		sum += n
	}
	return sum, nil
}

func (r *remote) usageOf(ctx context.Context, names []string) (sum int64, err error) {
	ctx, cancel := loan.WithTimeout(ctx, r.timeout)
	defer cancel()
	pipe := r.server.Client().Pipeline()
	for _, name := range names {
		pipe.MemoryUsage(ctx, name, 0) // all elements, not a sample
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	for _, cmd := range cmds {
		n, err := cmd.(*redis.IntCmd).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, err
		}
		sum += n // 0 where there is nothing
	}
	return sum, nil
}

// storeError is an error of the store. Its text names the event and not the
// feature, which may be someone's address: a server may repeat its arguments
// in an error.
type storeError struct {
	kind string
	key  counter.Key
	err  error
}

func (e *storeError) Error() string {
	text, _, cut := strings.Cut(e.err.Error(), ", with args")
	if cut {
		text += "..."
	}
	text = strings.ReplaceAll(text, tag(e.key), "{...}")
	return fmt.Sprintf("classic: %s: event %q: %s", e.kind, e.key.Event, text)
}

func (e *storeError) Unwrap() error { return e.err }

// Is makes every storeError a [counter.ErrStore].
func (e *storeError) Is(target error) bool { return target == counter.ErrStore }
