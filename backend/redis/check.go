package redis

import (
	"cmp"
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
	own, _ := ctx.Deadline()
	ctx, cancel, err := s.server.Begin(ctx, cmp.Or(r.Deadline, own), s.timeout)
	if err != nil {
		return err
	}
	defer cancel()
	masters, err := s.masters(ctx, r.Key)
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	for i := range masters {
		wait.Go(func() { masters[i].check(ctx, r) })
	}
	wait.Wait()
	var all []error
	for _, m := range masters {
		if m.found.Name != "" {
			m.finds("", r.Found(m.found))
		}
		all = append(all, m.findings...)
	}
	return errors.Join(all...)
}

// master is a server with keys, and what a check has found.
type master struct {
	*redis.Client
	store    *base
	name     string
	key      string         // on the server; none if the master of a Cluster has no slots
	found    backend.Server // with a Name if the master has told its time
	findings []error
}

// maxProbes bounds the search for a key on each master of a Cluster: a master with a
// hundredth of the slots is missed once in 10^17 checks.
const maxProbes = 4096

// masters returns all servers with keys, with a key that begins with key on each.
func (s *base) masters(ctx context.Context, key string) ([]master, error) {
	cluster := s.server.Cluster()
	if cluster == nil {
		client := s.server.Client().(*redis.Client)
		return []master{{Client: client, store: s, name: client.Options().Addr, key: key}}, nil
	}
	var mu sync.Mutex
	var all []master
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, master{Client: node, store: s, name: node.Options().Addr})
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

// finds notes err, unless it is nil, with the part of the check that met err: "cannot be
// read: ".
func (m *master) finds(part string, err error) {
	if err != nil {
		m.findings = append(m.findings, &serverError{"redis: server " + m.name + ": " + part, m.store.String() + ": ", err})
	}
}

// serverError is an error with the name of a server, instead of the name of the
// store.
type serverError struct {
	prefix, instead string
	err             error
}

func (e *serverError) Error() string { return e.prefix + strings.TrimPrefix(e.err.Error(), e.instead) }
func (e *serverError) Unwrap() error { return e.err }

// check looks at a master.
func (m *master) check(ctx context.Context, r *backend.CheckRequest) {
	if m.key != "" {
		m.finds("cannot be written to: ", m.probe(ctx, r))
	}
	ahead, within, err := r.Clock(func() (time.Time, time.Duration, error) {
		t, err := m.Time(ctx).Result()
		return t, time.Microsecond, err
	})
	if err != nil {
		m.findings = nil // whatever was asked before has failed as well
		m.finds("", m.store.server.Failed(ctx, err))
		return
	}
	m.found = backend.Server{Name: m.name, Ahead: ahead, Within: within}
	info, err := m.Info(ctx).Result()
	var refusal redis.Error
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		m.finds("", backend.Unmet("the user may not ask for INFO, want the right to: evictions and restarts cannot be seen"))
		return
	case errors.As(err, &refusal) && !errors.Is(err, redis.Nil):
		m.finds("", backend.Unmet("INFO is refused (%w), want an answer: evictions and restarts cannot be seen", err))
		return
	case err != nil:
		m.finds("", m.store.server.Failed(ctx, err))
		return
	}
	facts := map[string]string{}
	for line := range strings.SplitSeq(info, "\r\n") {
		if name, value, found := strings.Cut(line, ":"); found {
			facts[name] = value
		}
	}
	m.found.Facts, m.found.Run = facts, facts["run_id"]
	m.found.Evicted, _ = strconv.ParseInt(facts["evicted_keys"], 10, 64)
	if facts["redis_mode"] == "cluster" {
		// Without the right to CONFIG the setting is not known.
		const coverage = "cluster-require-full-coverage"
		if settings, err := m.ConfigGet(ctx, coverage).Result(); err == nil {
			facts["config."+coverage] = settings[coverage]
		}
	}
	if facts["role"] == "slave" {
		m.finds("", backend.Unmet("is a replica of %s:%s, want a master: its master does not know of hits that are counted here", facts["master_host"], facts["master_port"]))
	}
	switch policy, limit := facts["maxmemory_policy"], facts["maxmemory"]; {
	case policy == "" || limit == "":
		m.finds("", backend.Unmet("INFO tells no maxmemory and maxmemory_policy: evictions cannot be seen"))
	case policy != "noeviction" && limit != "0":
		m.finds("", backend.Unmet("maxmemory-policy is %s with a maxmemory of %s bytes, want noeviction: evicted hits are forgiven; %s keys were evicted since its start",
			policy, limit, facts["evicted_keys"]))
	}
}

// probe adds a hit to the key of a master, as calls do, and removes the key.
func (m *master) probe(ctx context.Context, r *backend.CheckRequest) error {
	op := r.Probe(m.key)
	op.Deadline, _ = ctx.Deadline()
	if err := m.store.layout.Do(ctx, op); err != nil {
		return err
	}
	if err := m.store.server.Client().Unlink(ctx, m.store.layout.names(op)...).Err(); err != nil {
		return m.store.server.Failed(ctx, err)
	}
	return nil
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

// ServerOf is described in [backend.Placer]: of a Cluster the master of the slot, as
// far as the client knows.
func (s *base) ServerOf(key string) string {
	cluster := s.server.Cluster()
	if cluster == nil {
		return ""
	}
	node, err := cluster.MasterForKey(asked, rootTag(key))
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// asked is a context that has ended, for questions that ask no server.
var asked, _ = context.WithDeadline(context.Background(), time.Time{})
