package memcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
	"github.com/abacus-go/abacus/internal/loan"
)

// Check asks all servers and returns nil if each answers, takes an addition, has
// a clock within [backend.DefaultSkew] of this machine's, and has evicted nothing
// since its start. Otherwise the error joins the findings; findings that leave
// hits countable are a [backend.ErrCondition]. memcached tells the time in whole
// seconds, so a clock error of 1.5 s goes unnoticed. The addition is to a key
// beginning with ab, the default Prefix of a Counter. A Counter or limiter on the
// store has a Check too, with the Counter's own clock, Skew and Prefix. Check
// keeps the deadline of ctx, and lasts no longer than Config.IOTimeout if ctx has
// none.
func (s *Store) Check(ctx context.Context) error { return backend.CheckStore(ctx, s) }

// CheckServers is described in [backend.Store]. Each server is asked for its
// stats on a connection of its own, next to the shared connections.
func (s *Store) CheckServers(ctx context.Context, r *backend.CheckRequest) error {
	r.Servers = nil
	deadline := r.Deadline
	if own, is := ctx.Deadline(); deadline.IsZero() && is {
		deadline = own
	}
	deadline, err := s.begin(ctx, deadline)
	if err != nil {
		return err
	}
	ctx, cancel := loan.WithDeadline(ctx, deadline)
	defer cancel()
	keys := s.keyOfEach(r.Key)
	names := slices.Sorted(maps.Keys(keys))
	found, errs := make([]backend.Server, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { found[i], errs[i] = s.checkServer(ctx, r, s.transports[name], keys[name]) })
	}
	all.Wait()
	for i, name := range names {
		if found[i].Name != "" {
			errs[i] = errors.Join(errs[i], onServer(name, "", r.Found(found[i])))
		}
	}
	return errors.Join(errs...)
}

// keyOfEach returns a key on each server, by the names of the servers. Each key
// begins with key.
func (s *Store) keyOfEach(key string) map[string]string {
	keys := map[string]string{}
	for i := 0; len(keys) < len(s.selector.servers); i++ {
		try := key + "-" + strconv.Itoa(i)
		if name := s.selector.pick(try).name; keys[name] == "" {
			keys[name] = try
		}
	}
	return keys
}

// onServer returns err with the name of the server and what was to be done, nil
// without err.
func onServer(name, do string, err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "memcache: "), name+": ")
	return &checkError{"memcache: server " + name + ": " + do + text, err}
}

type checkError struct {
	text string
	err  error
}

func (e *checkError) Error() string { return e.text }
func (e *checkError) Unwrap() error { return e.err }

// checkServer looks at a server. The Server has a Name if the server has
// answered.
func (s *Store) checkServer(ctx context.Context, r *backend.CheckRequest, t *transport, key string) (server backend.Server, err error) {
	name := t.address.name
	conn, err := t.dialer.DialContext(ctx, t.address.network, name)
	if err != nil {
		return server, onServer(name, "", t.failed("dial", err))
	}
	a := asking{ctx: ctx, t: t, alone: t.newPipeline(conn, false)}
	a.deadline, _ = ctx.Deadline()
	defer a.alone.fail(errClosed)
	found := backend.Server{Name: name}
	found.Ahead, found.Within, err = r.Clock(func() (time.Time, time.Duration, error) {
		var err error
		if found.Facts, err = a.stats("stats", ""); err != nil {
			return time.Time{}, 0, err
		}
		// The clock ticks once a second, in whole seconds from a start that was
		// rounded: the true time is up to a second earlier, and up to two later.
		seconds, err := strconv.ParseInt(found.Facts["time"], 10, 64)
		return time.Unix(seconds, 0).Add(500 * time.Millisecond), 1500 * time.Millisecond, err
	})
	if err != nil {
		if f := new(failure); errors.As(err, &f) {
			err = f.err
		}
		// A server or a proxy that shows no stats may count all the same.
		if failed := s.probe(ctx, r, key, nil); failed != nil {
			return server, onServer(name, "", t.failed("stats", err))
		}
		return server, onServer(name, "", backend.Unmet("stats: %w, want pid, time, uptime and evictions: clocks, evictions and restarts cannot be seen", err))
	}
	found.Run = fmt.Sprintf("process %s since %s", found.Facts["pid"], startOf(found.Facts))
	found.Evicted, _ = strconv.ParseInt(found.Facts["evictions"], 10, 64)
	for request, prefix := range map[string]string{"stats settings": "settings.", "stats items": "items.", "stats slabs": "slabs."} {
		// A proxy may not pass on all stats.
		if facts, err := a.stats(request, prefix); err == nil {
			maps.Copy(found.Facts, facts)
		}
	}
	var errs []error
	if err := s.probe(ctx, r, key, &a); err != nil {
		errs = append(errs, onServer(name, "cannot be written to: ", err))
	}
	if found.Evicted > 0 {
		errs = append(errs, onServer(name, "", backend.Unmet("has evicted %d items since its start, want none: evicted hits are forgiven; give the server more memory, or start it with -M", found.Evicted)))
	}
	return found, errors.Join(errs...)
}

// stats asks for statistics, and puts prefix before their names.
func (a asking) stats(request, prefix string) (map[string]string, error) {
	all, err := a.read("stats", request)
	facts := map[string]string{}
	for _, fact := range all {
		facts[prefix+fact.name] = string(fact.value)
	}
	return facts, err
}

// startOf is the instant of the server's start, in seconds since 1970.
func startOf(facts map[string]string) string {
	now, _ := strconv.ParseInt(facts["time"], 10, 64)
	up, _ := strconv.ParseInt(facts["uptime"], 10, 64)
	return strconv.FormatInt(now-up, 10)
}

// probe adds a hit to a key, as calls do, and removes the item, or leaves the item
// for its life of some seconds if a is nil.
func (s *Store) probe(ctx context.Context, r *backend.CheckRequest, key string, a *asking) error {
	op := r.Probe(key)
	op.Deadline, _ = ctx.Deadline()
	if err := s.Do(ctx, op); err != nil || a == nil {
		return err
	}
	items := make([]kept, len(op.Add))
	for i, slot := range op.Add {
		items[i].name = item.Name(key, slot.Bucket)
	}
	return a.remove(items)
}

// Report returns the part of Stats that every store has. The store itself
// guesses nothing.
func (s *Store) Report() backend.Report {
	st := s.Stats()
	return backend.Report{LateAnswers: st.LateAdditions, HitsLeft: st.Unanswered + st.TakingBackFailed}
}
