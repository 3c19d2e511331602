package memory

import (
	"context"
	"errors"

	"github.com/abacus-go/abacus/backend"
)

// Check returns nil if the store takes a fresh key, and has evicted nothing.
// Otherwise the error joins the findings: a full store under [Refuse] is an
// [ErrFull], a store that has evicted keys a [backend.ErrCondition]. A Counter
// or limiter on the store has a Check of its own.
func (s *Store) Check(ctx context.Context) error { return backend.CheckStore(ctx, s) }

// CheckServers is described in [backend.Store]. The only server is the store
// itself, whose clock is the caller's.
func (s *Store) CheckServers(ctx context.Context, r *backend.CheckRequest) error {
	r.Servers = nil
	var err error
	if s.policy != EvictOldest { // which takes any fresh key, and would evict another key for the probe
		probe := r.Probe(r.Key)
		if err = s.Do(ctx, probe); err == nil {
			probe.N = -1
			err = s.Do(ctx, probe)
		}
	}
	server := backend.Server{Name: "memory", Run: "this process", Evicted: s.Stats().Evicted}
	r.Servers = append(r.Servers, server)
	if server.Evicted > 0 {
		err = errors.Join(err, backend.Unmet("memory: %d keys were evicted while they still counted, want none: a larger Config.MaxBuckets, or Refuse", server.Evicted))
	}
	return err
}

// Report is zero: no answer comes late in this process, and nothing is guessed.
func (s *Store) Report() backend.Report { return backend.Report{} }
