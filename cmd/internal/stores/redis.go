package stores

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/tiers"
)

// Redis is the servers of a store on Redis, seen by a client next to the store's.
type Redis struct {
	Client goredis.UniversalClient
	store  redis.Store
	layout redis.Layout
	url    *url.URL
}

// quiet ends the lines of go-redis on standard error, once for the program.
var quiet = sync.OnceFunc(logging.Disable)

func (o *Opened) openRedis(timeout time.Duration) error {
	quiet() // an error is told once, by this package
	store, err := redis.Open(o.Name.url, redis.Config{Layout: o.Name.layout, IOTimeout: timeout})
	if err != nil {
		return err
	}
	r := &Redis{store: store, layout: o.Name.layout}
	if r.url, err = url.Parse(o.Name.url); err == nil {
		r.Client, err = connect(o.Name.url, r.url.Query())
	}
	if err != nil {
		return errors.Join(err, store.Close())
	}
	o.Store, o.Redis, o.servers = store, r, r
	return nil
}

// connect makes a client for questions, of the same URL as the store's, that
// gives up at once.
func connect(rawURL string, q url.Values) (goredis.UniversalClient, error) {
	switch {
	case q.Has("master_name"):
		o, err := goredis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled, o.DialerRetries, o.MaxRetries = true, 1, -1
		return goredis.NewFailoverClient(o), nil
	case q.Has("addr"):
		o, err := goredis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled, o.DialerRetries = true, 1
		return goredis.NewClusterClient(o), nil
	}
	o, err := goredis.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled, o.DialerRetries, o.MaxRetries = true, 1, -1
	return goredis.NewClient(o), nil
}

// Masters calls f for every server with keys, until a call fails.
func (r *Redis) Masters(ctx context.Context, f func(ctx context.Context, master *goredis.Client) error) error {
	switch c := r.Client.(type) {
	case *goredis.ClusterClient:
		var one sync.Mutex // ForEachMaster calls for all at once
		return c.ForEachMaster(ctx, func(ctx context.Context, master *goredis.Client) error {
			one.Lock()
			defer one.Unlock()
			return f(ctx, master)
		})
	case *goredis.Client:
		return f(ctx, c)
	}
	return fmt.Errorf("client of type %T, want a Client or a ClusterClient of go-redis", r.Client)
}

// KeysOf is the pattern of all stored keys of the counters whose Prefix begins
// with prefix.
func KeysOf(prefix string) string { return "{" + prefix + "*" }

// Scan calls f with all keys that match the pattern, in batches. A key present
// all the while is never left out; a key may come twice.
func (r *Redis) Scan(ctx context.Context, pattern string, f func(master *goredis.Client, keys []string) error) error {
	return r.Masters(ctx, func(ctx context.Context, master *goredis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := master.Scan(ctx, cursor, pattern, 1000).Result()
			if err == nil && len(keys) > 0 {
				err = f(master, keys)
			}
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	})
}

// Remove removes all keys that match the pattern, and returns their number.
func (r *Redis) Remove(ctx context.Context, pattern string) (removed int64, err error) {
	err = r.Scan(ctx, pattern, func(master *goredis.Client, keys []string) error {
		// A command for each key: the keys of a Cluster are in many slots.
		answers, err := master.Pipelined(ctx, func(p goredis.Pipeliner) error {
			for _, key := range keys {
				p.Unlink(ctx, key)
			}
			return nil
		})
		for _, answer := range answers {
			if n, is := answer.(*goredis.IntCmd); is {
				removed += n.Val()
			}
		}
		return err
	})
	return removed, err
}

func (r *Redis) clean(ctx context.Context, prefix string) (int64, error) {
	return r.Remove(ctx, KeysOf(prefix))
}

// slack is the extra time to live of backend/redis, which spares setting the time
// anew with every hit and serves late calls: docs/storage.md. Plain counters have none.
func (r *Redis) slack(l tiers.Ladder) (most time.Duration) {
	if r.layout == redis.Plain {
		return time.Millisecond // times to live are rounded up
	}
	for i := range l.Len() {
		if i == 0 || l.At(i).Keep != l.At(i-1).Keep {
			most = max(most, Stretch(l.At(i))+l.At(i).Width+Late(l.At(i)))
		}
	}
	return most
}

// Stretch is the span of one leaf of backend/redis, where t is the finest of the
// tiers that are kept equally long: docs/storage.md.
func Stretch(t tiers.Tier) time.Duration {
	for _, buckets := range []time.Duration{3600, 600} {
		if t.Keep/t.Width >= 4*buckets {
			return buckets * t.Width
		}
	}
	return 60 * t.Width
}

// Late is the time that backend/redis keeps a leaf with buckets of t beyond the
// Counter's request, for calls whose label is behind others'.
func Late(t tiers.Tier) time.Duration {
	return min(max(time.Second, Stretch(t)/4), time.Minute)
}

func (r *Redis) close() error { return errors.Join(r.store.Close(), r.Client.Close()) }

// explain replaces an error of the first command by its most likely cause.
func (r *Redis) explain(ctx context.Context, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "invalid password"), strings.Contains(text, "invalid username-password"):
		return errors.New("the user or the password is wrong")
	case strings.Contains(text, "called without any password configured"):
		return errors.New("the URL has a password, and the server has none")
	case strings.Contains(text, "NOAUTH"):
		return errors.New("the server wants a password: redis://user:password@host:6379/0")
	}
	addr := r.url.Host
	switch {
	case r.url.Scheme == "unix":
		addr = r.url.Path
	case r.url.Port() == "":
		addr += ":6379"
	}
	// The client turns answers of other programs into misleading errors. The
	// question has a patience of its own, shorter than the client's.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience/3)
	defer cancel()
	if kind, wrong := kindOf(asking, addr); wrong == nil && kind == OnMemcached {
		return known{errKind(kind, OnRedis, addr)}
	} else if wrong == errUnknown && r.url.Scheme != "rediss" {
		return known{wrong}
	} else if wrong == nil && r.url.Scheme == "rediss" {
		return known{errors.New("what answers is Redis without TLS: redis://" + addr)}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return reason(err)
}
