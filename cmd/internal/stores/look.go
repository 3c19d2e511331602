package stores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/redis"
)

// ErrReadOnly is the error of a call that would write to a store of OpenReadOnly.
var ErrReadOnly = errors.New("the store was opened to be read only")

// OpenReadOnly is Open for a program that only looks: calls that would write are an
// ErrReadOnly, and a Redis gets no library of functions. Reads then run as scripts
// where the library is missing.
func OpenReadOnly(n Name, timeout time.Duration) (*Opened, error) {
	o, err := Open(n, timeout)
	if err != nil {
		return nil, err
	}
	if r := o.Redis; r != nil {
		switch c := r.Client.(type) {
		case *goredis.ClusterClient:
			c.OnNewNode(func(node *goredis.Client) { node.AddHook(noLibrary{}) })
		default:
			c.AddHook(noLibrary{})
		}
		err = r.store.Close()
		if err == nil {
			r.store, err = redis.New(r.Client, redis.Config{Layout: r.layout, IOTimeout: timeout})
		}
		if err != nil {
			return nil, errors.Join(err, r.Client.Close())
		}
		o.Store = r.store
	}
	o.Store = backend.Wrap(o.Store, func(ctx context.Context, trip *backend.Trip, do func(context.Context) error) error {
		switch trip.Kind {
		case backend.KindRead, backend.KindPeek, backend.KindForgotten:
			return do(ctx)
		}
		return ErrReadOnly
	})
	return o, nil
}

// noLibrary keeps the store from loading and removing libraries, in the words of a
// server whose user may not.
type noLibrary struct{}

func (noLibrary) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (noLibrary) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if strings.EqualFold(cmd.Name(), "function") {
			cmd.SetErr(refusal{})
			return refusal{}
		}
		return next(ctx, cmd)
	}
}

func (noLibrary) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// refusal is an answer of a server, to the store.
type refusal struct{}

func (refusal) Error() string { return "NOPERM " + ErrReadOnly.Error() }
func (refusal) RedisError()   {}

// Look is a server as a look found it.
type Look struct {
	backend.Server               // with a Name only, if Err is not nil
	RoundTrip      time.Duration // of the smallest question, the connection included if there was none
	Err            error         // the server does not answer
}

// Look asks all servers for their state, side by side and for a moment at most, and
// writes nothing: whether a server can be written to is not tried. The order is that
// of the names. A store in this process has no servers.
func (o *Opened) Look(ctx context.Context) []Look {
	if o.servers == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := o.servers.look(ctx)
	slices.SortFunc(all, func(a, b Look) int { return strings.Compare(a.Name, b.Name) })
	for i := range all {
		if err := all[i].Err; err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.As(err, new(known)) {
			all[i].Err = fmt.Errorf("no answer within %s", patience)
		}
	}
	return all
}

// stamp notes when the server has told its time.
func (l *Look) stamp(asked, told time.Time, resolution time.Duration) {
	l.RoundTrip = time.Since(asked)
	l.Ahead, l.Within = told.Sub(asked.Add(l.RoundTrip/2)), l.RoundTrip/2+resolution
}

func (r *Redis) look(ctx context.Context) (all []Look) {
	var mu sync.Mutex
	see := func(ctx context.Context, master *goredis.Client) error {
		l := lookAt(ctx, master)
		if l.Name = master.Options().Addr; l.Err != nil {
			l.Err = r.explain(ctx, l.Err)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, l)
		return nil
	}
	switch c := r.Client.(type) {
	case *goredis.ClusterClient:
		if err := c.ForEachMaster(ctx, see); err != nil {
			all = append(all, Look{Server: backend.Server{Name: r.url.Host}, Err: r.explain(ctx, err)})
		}
	case *goredis.Client:
		_ = see(ctx, c) // no error
		if r.url.Query().Has("master_name") {
			all[0].Name = "master " + r.url.Query().Get("master_name")
		}
	}
	return all
}

func lookAt(ctx context.Context, master *goredis.Client) (l Look) {
	asked := time.Now()
	told, err := master.Time(ctx).Result()
	if err != nil {
		l.Err = err
		return l
	}
	l.stamp(asked, told, time.Microsecond)
	info, err := master.Info(ctx).Result()
	if err != nil {
		if ctx.Err() != nil {
			l.Err = err
		}
		return l // a user without permission for INFO may count all the same
	}
	l.Facts = map[string]string{}
	for line := range strings.SplitSeq(info, "\r\n") {
		if name, value, found := strings.Cut(line, ":"); found {
			l.Facts[name] = value
		}
	}
	l.Run = l.Facts["run_id"]
	l.Evicted, _ = strconv.ParseInt(l.Facts["evicted_keys"], 10, 64)
	if l.Facts["redis_mode"] == "cluster" {
		const coverage = "cluster-require-full-coverage"
		if settings, err := master.ConfigGet(ctx, coverage).Result(); err == nil {
			l.Facts["config."+coverage] = settings[coverage]
		}
	}
	return l
}

func (m *Memcached) look(ctx context.Context) []Look {
	all := make([]Look, len(m.Servers))
	var wait sync.WaitGroup
	for i, addr := range m.Servers {
		wait.Go(func() {
			all[i].Name = addr
			all[i].Err = all[i].ofMemcached(ctx, addr)
		})
	}
	wait.Wait()
	return all
}

func (l *Look) ofMemcached(ctx context.Context, addr string) error {
	w, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer w.close()
	kind, err := w.kind()
	if err == nil && kind != OnMemcached {
		err = known{errKind(kind, OnMemcached, addr)}
	}
	if err != nil {
		return err
	}
	asked := time.Now()
	if l.Facts, err = w.stats("stats"); err != nil {
		return err
	}
	seconds, _ := strconv.ParseInt(l.Facts["time"], 10, 64)
	// The clock ticks once a second, in whole seconds from a start that was rounded.
	l.stamp(asked, time.Unix(seconds, 0).Add(500*time.Millisecond), 1500*time.Millisecond)
	up, _ := strconv.ParseInt(l.Facts["uptime"], 10, 64)
	l.Run = fmt.Sprintf("process %s since %d", l.Facts["pid"], seconds-up)
	l.Evicted, _ = strconv.ParseInt(l.Facts["evictions"], 10, 64)
	for _, part := range []string{"settings", "items", "slabs"} {
		facts, err := w.stats("stats " + part)
		if err != nil {
			break // a proxy may not pass on all stats
		}
		for name, fact := range facts {
			l.Facts[part+"."+name] = fact
		}
	}
	return nil
}
