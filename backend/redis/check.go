package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/redis/go-redis/v9"
)

// CheckServers is described in [backend.Store]. Of a server whose user may not ask
// for INFO, evictions and restarts cannot be seen, which is a finding.
func (s *base) CheckServers(ctx context.Context, r *backend.CheckRequest) error {
	r.Servers = nil
	deadline := r.Deadline
	if own, is := ctx.Deadline(); deadline.IsZero() && is {
		deadline = own
	}
	ctx, cancel, err := s.server.Begin(ctx, deadline, s.timeout)
	if err != nil {
		return err
	}
	defer cancel()
	masters, err := s.masters(ctx, r.Key)
	if err != nil {
		return err
	}
	found := make([]backend.Server, len(masters))
	errs := make([]error, len(masters))
	var wait sync.WaitGroup
	for i := range masters {
		wait.Go(func() { found[i], errs[i] = s.checkMaster(ctx, r, &masters[i]) })
	}
	wait.Wait()
	for i := range masters {
		if found[i].Name != "" {
			errs[i] = errors.Join(errs[i], masters[i].failed(r.Found(found[i])))
		}
	}
	return errors.Join(errs...)
}

// master is a server with keys, and a key on the server; no key if the master of a
// Cluster has no slots.
type master struct {
	*redis.Client
	store *base
	name  string
	key   string
}

// maxProbes bounds the search for a key on each master of a Cluster: a master with a
// hundredth of the slots is missed once in 10^17 checks.
const maxProbes = 4096

// masters returns all servers with keys, with a key that begins with key on each.
func (s *base) masters(ctx context.Context, key string) ([]master, error) {
	cluster := s.server.Cluster()
	if cluster == nil {
		client := s.server.Client().(*redis.Client)
		return []master{{client, s, client.Options().Addr, key}}, nil
	}
	var mu sync.Mutex
	var all []master
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, master{node, s, node.Options().Addr, ""})
		return nil
	})
	if err != nil {
		return nil, s.server.Failed(ctx, err)
	}
	for i, left := 0, len(all); left > 0 && i < maxProbes; i++ {
		try := key + "-" + strconv.Itoa(i)
		node, err := cluster.MasterForKey(ctx, rootTag(try))
		if err != nil {
			continue // a slot without a master
		}
		for j := range all {
			if all[j].key == "" && all[j].name == node.Options().Addr {
				all[j].key = try
				left--
			}
		}
	}
	return all, nil
}

// rootTag is the part of the stored keys of key that decides their hash slot.
func rootTag(key string) string { return "{" + key + "}" }

// failed returns err with the name of the server, and nil without err.
func (m *master) failed(err error) error { return m.failedTo("", err) }

// failedTo is failed with the part of the check that met err: "cannot be read: ".
func (m *master) failedTo(do string, err error) error {
	if err == nil {
		return nil
	}
	return &serverError{"redis: server " + m.name + ": " + do, m.store.String() + ": ", err}
}

// serverError is an error with the name of a server, in the place of the name of the
// store.
type serverError struct {
	prefix, instead string
	err             error
}

func (e *serverError) Error() string { return e.prefix + strings.TrimPrefix(e.err.Error(), e.instead) }
func (e *serverError) Unwrap() error { return e.err }

// checkMaster looks at a master. The Server has a Name if the master has told its time.
func (s *base) checkMaster(ctx context.Context, r *backend.CheckRequest, m *master) (server backend.Server, err error) {
	var errs []error
	if m.key != "" {
		if err := s.probe(ctx, r, m); err != nil {
			errs = append(errs, m.failedTo("cannot be written to: ", err))
		}
	}
	found := backend.Server{Name: m.name}
	found.Ahead, found.Within, err = r.Clock(func() (time.Time, time.Duration, error) {
		t, err := m.Time(ctx).Result()
		return t, time.Microsecond, err
	})
	if err != nil {
		return server, m.failed(s.server.Failed(ctx, err)) // whatever was asked before has failed as well
	}
	info, err := m.Info(ctx).Result()
	var refusal redis.Error
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		errs = append(errs, m.failed(backend.Unmet("the user may not ask for INFO, want the right to: evictions and restarts cannot be seen")))
	case errors.As(err, &refusal) && !errors.Is(err, redis.Nil):
		errs = append(errs, m.failed(backend.Unmet("INFO is refused (%w), want an answer: evictions and restarts cannot be seen", err)))
	case err != nil:
		errs = append(errs, m.failed(s.server.Failed(ctx, err)))
	default:
		found.Facts = factsOf(info)
		found.Run = found.Facts["run_id"]
		found.Evicted, _ = strconv.ParseInt(found.Facts["evicted_keys"], 10, 64)
		if found.Facts["redis_mode"] == "cluster" {
			// Without the right to CONFIG the setting is not known.
			const coverage = "cluster-require-full-coverage"
			if settings, err := m.ConfigGet(ctx, coverage).Result(); err == nil {
				found.Facts["config."+coverage] = settings[coverage]
			}
		}
		for _, err := range conditions(found.Facts) {
			errs = append(errs, m.failed(err))
		}
	}
	return found, errors.Join(errs...)
}

// probe adds a hit to the key of a master, as calls do, and removes the key.
func (s *base) probe(ctx context.Context, r *backend.CheckRequest, m *master) error {
	op := r.Probe(m.key)
	op.Deadline, _ = ctx.Deadline()
	if err := s.layout.Do(ctx, op); err != nil {
		return err
	}
	if err := s.server.Client().Unlink(ctx, s.layout.names(op)...).Err(); err != nil {
		return s.server.Failed(ctx, err)
	}
	return nil
}

// factsOf returns the lines of INFO by their names.
func factsOf(info string) map[string]string {
	facts := map[string]string{}
	for line := range strings.SplitSeq(info, "\r\n") {
		if name, value, found := strings.Cut(line, ":"); found {
			facts[name] = value
		}
	}
	return facts
}

// conditions returns the findings in the facts of a server.
func conditions(facts map[string]string) (errs []error) {
	if facts["role"] == "slave" {
		errs = append(errs, backend.Unmet("is a replica of %s:%s, want a master: its master does not know of hits that are counted here", facts["master_host"], facts["master_port"]))
	}
	switch policy, limit := facts["maxmemory_policy"], facts["maxmemory"]; {
	case policy == "" || limit == "":
		errs = append(errs, backend.Unmet("INFO tells no maxmemory and maxmemory_policy: evictions cannot be seen"))
	case policy != "noeviction" && limit != "0":
		errs = append(errs, backend.Unmet("maxmemory-policy is %s with a maxmemory of %s bytes, want noeviction: evicted hits are forgiven; %s keys were evicted since its start",
			policy, limit, facts["evicted_keys"]))
	}
	return errs
}

// Report returns the part of Stats that every store has.
func (s *base) Report() backend.Report {
	st := s.Stats()
	return backend.Report{LateAnswers: st.LateAnswers, HitsLeft: st.NotTaken + st.Abandoned}
}

// Report has the guesses of Take as well.
func (s *sums) Report() backend.Report {
	r := s.base.Report()
	r.Guesses, r.WrongGuesses = s.denied.guesses.Load(), s.denied.wrong.Load()
	return r
}
