package classic

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/counter"
)

// Redis makes a store on a Redis server, a master behind Sentinel, or a Cluster.
// The client must have ContextTimeoutEnabled: one without ignores deadlines once
// it waits for an answer, and is refused. So is a client that spreads keys by a
// rule of its own, such as a Ring. The client stays its owner's to close. What
// counts is never sent twice, whatever the client does with other commands.
func Redis(client redis.UniversalClient, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	r := &remote{client: client, timeout: cfg.Timeout}
	deadlines := false
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			return nil, errors.New("classic: the client is nil")
		}
		deadlines, r.addr = c.Options().ContextTimeoutEnabled, c.Options().Addr
	case *redis.ClusterClient:
		if c == nil {
			return nil, errors.New("classic: the client is nil")
		}
		deadlines, r.addr = c.Options().ContextTimeoutEnabled, "cluster "+strings.Join(c.Options().Addrs, ",")
		r.cluster = c
	case nil:
		return nil, errors.New("classic: the client is nil")
	default:
		return nil, fmt.Errorf("classic: a client of type %T, want *redis.Client or *redis.ClusterClient", client)
	}
	if !deadlines {
		return nil, errors.New("classic: the client ignores deadlines, set ContextTimeoutEnabled in its options")
	}
	return &Store{cfg: cfg, remote: r}, nil
}

// remote is a Redis.
type remote struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil: one server
	addr    string               // without a password
	timeout time.Duration
}

func (r *remote) String() string { return "redis: " + r.addr }

//go:embed classic.lua
var preludeLua string

// script is what the server runs, and its name there. Lua's arguments are the
// numbers that [remote.run] is given, in order.
type script struct{ text, sha string }

func newScript(body string) *script {
	text := preludeLua + body
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// once is a command that must not be sent again: after an answer that got lost
// it would count twice.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// run runs a script on the state of name and fills c in.
func (r *remote) run(ctx context.Context, sc *script, name string, c *call, args ...int64) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	c.trips++
	answer, err := r.eval(ctx, "evalsha", sc.sha, name, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		// A fresh server. Nothing was run; with its text the script is there.
		c.trips++
		answer, err = r.eval(ctx, "eval", sc.text, name, args)
	}
	if err != nil {
		return r.explain(ctx, err)
	}
	values, is := answer.([]any)
	if !is || len(values) != 3+len(c.facts) {
		return fmt.Errorf("%s: an unexpected answer of type %T", r, answer)
	}
	var numbers [7]int64
	for i, v := range values {
		if numbers[i], is = v.(int64); !is {
			return fmt.Errorf("%s: an unexpected answer of type %T", r, v)
		}
	}
	c.allowed = numbers[0] == 1
	c.reads += numbers[1]
	c.writes += numbers[2]
	copy(c.facts[:], numbers[3:])
	return nil
}

func (r *remote) eval(ctx context.Context, verb, text, name string, args []int64) (any, error) {
	all := make([]any, 0, 4+len(args))
	all = append(all, verb, text, 1, name)
	for _, arg := range args {
		all = append(all, arg)
	}
	cmd := redis.NewCmd(ctx, all...)
	if err := r.client.Process(ctx, once{cmd}); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// usage is the memory of the values under these names.
func (r *remote) usage(ctx context.Context, names []string) (sum int64, err error) {
	for len(names) > 0 {
		some := names[:min(1000, len(names))]
		names = names[len(some):]
		n, err := r.usageOf(ctx, some)
		if err != nil {
			return 0, r.explain(ctx, err)
		}
		sum += n
	}
	return sum, nil
}

func (r *remote) usageOf(ctx context.Context, names []string) (sum int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	pipe := r.client.Pipeline()
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

// explain makes of an error one that names the server and says what is wrong.
func (r *remote) explain(ctx context.Context, err error) error {
	var answered redis.Error
	if r.cluster != nil && !errors.As(err, &answered) {
		// A client looks for the master that took over when it tries again, which
		// it must not do with these commands.
		r.cluster.ReloadState(context.WithoutCancel(ctx))
	}
	var timeout net.Error
	switch {
	case strings.Contains(err.Error(), "CLASSIC foreign"), strings.Contains(err.Error(), "WRONGTYPE"):
		return fmt.Errorf("%s: what is stored for this key was not written by this limiter: %w", r, err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s: no answer in time: %w", r, err)
	}
	return fmt.Errorf("%s: %w", r, err)
}

// storeError is an error of the store. It names the event and not the feature,
// which may be somebody's address: a server may repeat its arguments in an error.
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
