package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// ErrCondition is the error that [errors.Is] finds in findings of [Counter.Check]
// that leave hits countable: a server's clock is apart from Config.Now, or a
// server may evict counts.
var ErrCondition = backend.ErrCondition

// Check asks every server of the store and returns nil if the store is ready:
// each server answers, takes an addition, has a clock within Config.Skew of
// Config.Now, is no replica, and evicts nothing. The addition is to a key of its
// own under Config.Prefix, and is removed. Otherwise the error joins all
// findings, each with the server, the value found and the value expected.
// [errors.Is] finds [ErrStore] if hits cannot be counted, and [ErrCondition] if
// hits are counted while a promise may break: a probe of readiness should fail
// by ErrStore, and the rest should ring an alarm.
//
// Check ends by the deadline of ctx, and by Config.Patience if that is sooner.
// [Stats] tells what Check has found out, so a program that calls Check once a
// minute has alarms. Of a store made by [backend.FromDo], Check knows only
// whether the addition succeeds, and says so.
func (c *Counter) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("counter: check: %w", err)
	}
	r := backend.CheckRequest{Key: c.keys.head + "?check", Now: c.now, Skew: c.cfg.Skew, Deadline: c.deadline()}
	began := time.Now()
	err := c.store.CheckServers(ctx, &r)
	c.checks.note(began, r.Servers)
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("counter: check: %w", ctx.Err())
	}
	return findings(err)
}

// findings marks each finding in err that is no ErrCondition as an error of the
// store.
func findings(err error) error {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		all := slices.Clone(joined.Unwrap())
		for i := range all {
			all[i] = findings(all[i])
		}
		return errors.Join(all...)
	}
	if err == nil || errors.Is(err, ErrCondition) {
		return err
	}
	return &storeError{err}
}

// checks are the results of Check.
type checks struct {
	mu      sync.Mutex
	servers map[string]lastSeen // by name

	seen Stats // Checked, ClockAhead, ClockWithin, Evictions and Restarts
}

// lastSeen is a server as the last Check that reached the server has found it.
type lastSeen struct {
	run     string
	evicted int64
	at      time.Time // of that Check
}

// note notes the servers that a Check has found which began at an instant, unless a
// Check is noted that began later.
func (s *checks) note(at time.Time, servers []backend.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(servers) == 0 || at.Before(s.seen.Checked) {
		return
	}
	first := s.servers == nil
	if first {
		s.servers = map[string]lastSeen{}
	}
	s.seen.Checked, s.seen.ClockAhead, s.seen.ClockWithin = at, 0, 0
	fresh := 0
	for _, server := range servers {
		if server.Ahead.Abs() >= s.seen.ClockAhead.Abs() {
			s.seen.ClockAhead, s.seen.ClockWithin = server.Ahead, server.Within
		}
		was, known := s.servers[server.Name]
		switch {
		case !known:
			fresh++
		case server.Run == "":
			server.Run, server.Evicted = was.run, was.evicted
		case was.run != "" && server.Run != was.run:
			s.seen.Restarts++
			s.seen.Evictions += server.Evicted
		case was.run != "":
			s.seen.Evictions += max(0, server.Evicted-was.evicted)
		}
		s.servers[server.Name] = lastSeen{server.Run, server.Evicted, at}
	}
	if first {
		return
	}
	// A new server takes the place of one that is gone, as after a failover, or is
	// one more.
	for range fresh {
		for name, was := range s.servers {
			if was.at != at {
				delete(s.servers, name)
				s.seen.Restarts++
				break
			}
		}
	}
}
