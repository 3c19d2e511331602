package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/child"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/program"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// trial is a policy under a scenario, on a store, and the outcome.
type trial struct {
	*scenario
	policy *policy
	store  string
	runs   int

	mu     sync.Mutex
	floods []*flood
	ends   []*ending
}

// flood is the outcome of a run.
type flood struct {
	fullest  []int64         // hits of the fullest window of each limit, of all users
	admitted int64           // of all users
	lacking  int64           // admitted hits that the store has not counted in the end
	surplus  int64           // hits that the store has counted beyond the admitted ones
	peeks    int             // looks at keys which must deny
	breaks   []string        // broken promises
	took     []time.Duration // of all answers
	carried  time.Duration   // from the last answer until the store has counted all
}

func (t *trial) String() string { return t.policy.name + ", " + t.store + ", " + t.Name }

// run makes all runs on a store of its own. Servers and services end with tb.
func (t *trial) run(tb testing.TB, ctx context.Context) error {
	server := startStore(tb, t.store)
	store := try.To(openStore(t.store, server.Addr))(tb)
	tb.Cleanup(func() { _ = store.Close() })
	truth := try.To(counter.New(store, counter.Config{Ladder: t.limits.Ladder()}))(tb) // that of the services' rule
	var services []*process
	for range t.services {
		services = append(services, t.start(tb, server.Addr))
	}
	for i := range t.runs {
		f, err := t.flood(ctx, i, server, services, truth)
		if err != nil {
			return fmt.Errorf("%s: run %d: %w", t, i+1, err)
		}
		t.mu.Lock()
		t.floods = append(t.floods, f)
		t.mu.Unlock()
	}
	for _, p := range services {
		end, err := p.end()
		require.NoError(tb, err, t)
		t.ends = append(t.ends, end)
	}
	return nil
}

// startStore starts a server of a kind.
func startStore(t testing.TB, kind string) *servertest.Server {
	if kind == "redis" {
		return servertest.StartRedis(t)
	}
	return servertest.StartMemcached(t)
}

// process is a service in a process of its own, seen from the outside.
type process struct {
	*child.Process
	addr string
}

// start starts a service on a store, which is killed at the end of tb.
func (t *trial) start(tb testing.TB, store string) *process {
	p := try.To(child.Start(job{Store: t.store, Addr: store, Policy: t.policy.name, Services: t.services, Limits: t.limits, Within: t.within}))(tb)
	tb.Cleanup(func() {
		_ = p.Cmd.Process.Kill() // fails only if the process has ended
		_ = p.Wait()
	})
	var at string
	require.NoError(tb, p.Lines.Decode(&at), "a service does not begin")
	return &process{p, at}
}

// end lets the service close all, and returns the last words of the service.
func (p *process) end() (*ending, error) {
	late := time.AfterFunc(3*hang, func() { _ = p.Cmd.Process.Kill() })
	defer late.Stop()
	e := &ending{}
	if err := errors.Join(p.Close(), p.Lines.Decode(e)); err != nil {
		return nil, fmt.Errorf("a service does not end: %w", err)
	}
	return e, nil
}

// round is a run under way.
type round struct {
	*trial
	*flood
	names    []string // of the users
	logs     []oracle.Log
	services []*process
	truth    *counter.Counter
	server   *servertest.Server
	load     load
}

// flood makes a run, with users of its own.
func (t *trial) flood(ctx context.Context, number int, server *servertest.Server, services []*process, truth *counter.Counter) (*flood, error) {
	r := &round{trial: t, flood: &flood{}, logs: make([]oracle.Log, t.users), services: services, truth: truth, server: server}
	for i := range t.users {
		r.names = append(r.names, fmt.Sprintf("%d of run %d", i, number))
	}
	over := make(chan struct{})
	var asked atomic.Int64
	r.load = load{names: r.names, connections: t.connections, pause: t.pause, admitted: make([]atomic.Int64, t.users), more: func() bool {
		select {
		case <-over:
			return asked.Add(1) <= int64(t.requests)
		default:
			asked.Add(1)
			return true
		}
	}}
	for _, p := range services {
		r.load.addrs = append(r.load.addrs, p.addr)
	}
	if t.usedUp {
		if err := r.each(r.useUp); err != nil {
			return nil, fmt.Errorf("use up: %w", err)
		}
	}
	var beside sync.WaitGroup
	var stopErr error
	answers, err := r.load.run(ctx, func() {
		var stopped sync.WaitGroup // from here on, unless there is a lead
		stopped.Add(1)
		beside.Go(func() {
			defer close(over)
			stopErr = r.standstill(ctx, stopped.Done)
		})
		stopped.Wait()
	})
	beside.Wait()
	if err := errors.Join(err, stopErr); err != nil {
		return nil, err
	}
	for _, a := range answers {
		r.took = append(r.took, a.took)
		r.note(a)
	}
	if err := r.compare(ctx); err != nil {
		return nil, err
	}
	r.judge()
	return r.flood, nil
}

// note writes an answer down, if the answer is an admission.
func (r *round) note(a answer) {
	if a.status == http.StatusOK {
		r.logs[a.user].Add(a.at, 1)
		r.admitted++
	}
}

// each asks each service about each user.
func (r *round) each(ask func(c *client, user int) error) error {
	for _, p := range r.services {
		c := dial(p.addr)
		defer c.CloseIdleConnections()
		for user := range r.names {
			if err := ask(c, user); err != nil {
				return fmt.Errorf("%s: %w", p.addr, err)
			}
		}
	}
	return nil
}

// useUp uses up all limits of a user, until the service denies.
func (r *round) useUp(c *client, user int) error {
	for began := time.Now(); ; {
		a, err := c.ask("/hit", r.names[user])
		if err != nil {
			return err
		}
		a.user = user
		r.note(a)
		switch {
		case a.status == http.StatusOK:
			r.load.admitted[user].Add(1)
		case a.status == http.StatusTooManyRequests:
			return nil
		case time.Since(began) > hang:
			return fmt.Errorf("the last answer is %d, want 429", a.status)
		}
	}
}

// standstill lets the store stand still, calls begun as soon as the load may begin,
// and looks at once when the store goes on. A scenario without a standstill is
// begun and over at once.
func (r *round) standstill(ctx context.Context, begun func()) error {
	begun = sync.OnceFunc(begun)
	defer begun()
	if r.stop == 0 {
		return nil
	}
	if r.lead > 0 {
		begun()
		program.Sleep(ctx, rand.N(r.lead))
	}
	for i := range 1 + r.again {
		if i > 0 {
			program.Sleep(ctx, r.stop)
		}
		r.server.Pause()
		begun()
		program.Sleep(ctx, r.stop)
		r.server.Resume()
		if len(r.services) == 1 {
			if err := r.peek("at once"); err != nil {
				return err
			}
		}
	}
	program.Sleep(ctx, r.tail)
	return nil
}

// peek asks each service about one hit more than a user's longest window has room
// for. Only a service that has let all hits of a user through knows this room at
// once.
func (r *round) peek(when string) error {
	longest := r.longest()
	return r.each(func(c *client, user int) error {
		n := max(longest.Max-r.load.admitted[user].Load()+1, 1)
		a, err := c.ask("/peek?n="+strconv.FormatInt(n, 10), r.names[user])
		if err != nil {
			return err
		}
		r.peeks++
		if a.status == http.StatusOK {
			r.breaks = append(r.breaks, fmt.Sprintf("Peek admits %d hits of user %s %s, at least %d of %s are admitted",
				n, r.names[user], when, longest.Max-n+1, longest))
		}
		return nil
	})
}

// compare waits until the store has counted all admitted hits, but only where a
// policy promises so.
func (r *round) compare(ctx context.Context) error {
	for began := time.Now(); ; program.Sleep(ctx, 50*time.Millisecond) {
		if err := r.inStore(ctx); err != nil {
			return err
		}
		r.carried = time.Since(began)
		if !r.policy.bounded {
			return nil
		}
		if r.lacking == 0 || r.carried > r.scenario.carry {
			return r.peek("in the end")
		}
	}
}

// inStore compares the admitted hits with the hits that the store has counted.
func (r *round) inStore(ctx context.Context) error {
	r.lacking, r.surplus = 0, 0
	for user, name := range r.names {
		var n counter.Count
		for began := time.Now(); ; {
			var err error
			if n, err = r.truth.Count(ctx, counter.Key{Event: event, Feature: "user:" + name}, r.longest().Per); err == nil {
				break
			}
			if time.Since(began) > hang {
				return err
			}
		}
		more := n.High - r.logs[user].Total()
		r.lacking += max(-more, 0)
		r.surplus += max(more, 0)
	}
	return nil
}

// judge looks for broken promises.
func (r *round) judge() {
	r.fullest = make([]int64, len(r.limits))
	for i, limit := range r.limits {
		most := r.policy.most(limit.Max, len(r.services))
		for user := range r.logs {
			n := r.logs[user].Worst(limit.Per)
			r.fullest[i] = max(r.fullest[i], n)
			if n > most {
				r.breaks = append(r.breaks, fmt.Sprintf("user %s: %d hits in a window of %s, want at most %d", r.names[user], n, limit, most))
			}
		}
	}
	if r.lacking > 0 {
		r.breaks = append(r.breaks, fmt.Sprintf("%d of %d hits are not in the store after %s", r.lacking, r.admitted, r.carried.Round(time.Millisecond)))
	}
	if !r.policy.bounded {
		r.breaks = nil // nothing is promised
	}
}

// broken are the broken promises of all runs.
func (t *trial) broken() (breaks []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, f := range t.floods {
		for _, b := range f.breaks[:min(5, len(f.breaks))] {
			breaks = append(breaks, fmt.Sprintf("%s: run %d, %d breaks: %s", t, i+1, len(f.breaks), b))
		}
	}
	for _, e := range t.ends {
		if e.Leak != "" {
			breaks = append(breaks, fmt.Sprintf("%s: goroutines are left: %s", t, e.Leak))
		}
	}
	return breaks
}
