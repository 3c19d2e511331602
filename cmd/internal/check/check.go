// Package check tries the promises of abacus on a store, and looks at the setup
// of the store's servers.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/promise"
	"github.com/abacus-go/abacus/tiers"
)

// Status is the outcome of a check.
type Status string

// Outcomes of a check.
const (
	OK      Status = "ok"
	Fact    Status = "fact"    // neither good nor bad
	Warning Status = "warning" // no promise is broken yet
	Failed  Status = "failed"
)

// Result is the finding of a check.
type Result struct {
	Name    string             `json:"name"`
	Promise string             `json:"promise"` // under test, in few words
	Status  Status             `json:"status"`
	Seen    string             `json:"seen"`
	Means   string             `json:"means,omitempty"` // for the promises; of a Warning and a Failed
	Numbers map[string]float64 `json:"numbers,omitempty"`
}

// Config is the configuration of a check.
type Config struct {
	Prefix  string        // of all stored keys
	Timeout time.Duration // patience of each call, as counter.Config.Patience
	Settle  time.Duration // as counter.Config.Settle; zero: the default there

	// Told is called with each result in turn; an error ends the check. Default: no
	// call.
	Told func(Result) error
}

// Run makes all checks in turn; only the first if the store cannot count. The
// stored keys stay, under cfg.Prefix. The error is the error of ctx or of Told, next to
// the results until then.
func Run(ctx context.Context, store *stores.Opened, cfg Config) ([]Result, error) {
	r := &run{store: store, cfg: cfg}
	checks := []func(context.Context) (Result, error){
		r.reachable, r.promised(herd), r.promised(promise.Denied), r.promised(promise.Keys), r.trips, r.lives,
		r.promised(promise.Boundary), r.expiry, r.clocks,
	}
	for _, s := range setups {
		checks = append(checks, func(context.Context) (Result, error) { return s.judge(store.Name.Kind, r.servers) })
	}
	for _, check := range checks {
		result, err := check(ctx)
		if ctx.Err() != nil {
			return r.results, ctx.Err()
		}
		if err == errNotHere {
			continue
		}
		switch {
		case err == nil:
		case len(r.results) > 0 && late(err):
			result.Status, result.Seen, result.Means = Warning, "too slow to tell: "+err.Error(), tooSlow
		default:
			result.Status, result.Seen = Failed, err.Error()
			if errors.Is(err, counter.ErrStore) {
				result.Means = "The store failed, and the check with it: mend that, and check again."
			}
		}
		r.results = append(r.results, result)
		if cfg.Told != nil {
			if err := cfg.Told(result); err != nil {
				return r.results, err
			}
		}
		if len(r.results) == 1 && result.Status == Failed {
			break
		}
	}
	return r.results, nil
}

// errNotHere is the error of a check that does not apply to a store.
var errNotHere = errors.New("not for this store")

// run is a pass over all checks.
type run struct {
	store    *stores.Opened
	cfg      Config
	servers  []backend.Server
	results  []Result
	expiring []string // stored keys with a short time to live
}

// counter makes a new counter, as another process would: without the memory of
// earlier denials.
func (r *run) counter(l tiers.Ladder, patience time.Duration, suffix string) (*counter.Counter, error) {
	return counter.New(r.store.Store, counter.Config{Ladder: l, Prefix: r.cfg.Prefix + suffix, Settle: r.cfg.Settle, Patience: patience})
}

// Patience is the timeout of calls that must not fail for being slow, since the
// check is about the counts of a store and not about the store's speed.
func Patience(timeout time.Duration) time.Duration { return max(5*time.Second, timeout) }

// settle is the longest time for a try of a counter.
func (r *run) settle() time.Duration { return cmp.Or(r.cfg.Settle, counter.DefaultSettle) }

// local reports whether the store is in this process.
func (r *run) local() bool { return r.store.Name.Kind == stores.InMemory }

// reachable asks the servers what the Check of a store asks, with the patience of
// the check. Findings that leave hits countable come with the later checks.
func (r *run) reachable(ctx context.Context) (Result, error) {
	result := Result{Name: "reachable", Promise: "can be counted on", Status: OK, Seen: "in this process", Means: "Nothing else was tried."}
	if err := r.store.Identify(ctx); err != nil {
		return result, err
	}
	ask := backend.CheckRequest{Key: r.cfg.Prefix + ":?check", Skew: counter.DefaultSkew, Deadline: time.Now().Add(Patience(r.cfg.Timeout))}
	failures := failuresOf(r.store.Store.CheckServers(ctx, &ask))
	r.servers = ask.Servers
	switch {
	case r.local():
	case len(r.servers) == 0:
		result.Seen = "the store"
	default:
		slices.SortFunc(r.servers, func(a, b backend.Server) int { return strings.Compare(a.Name, b.Name) })
		result.Seen = identity(r.store.Name.Kind, r.servers)
	}
	if len(failures) > 0 {
		return result, fmt.Errorf("%s answers, but cannot be counted on: %w", result.Seen, errors.Join(failures...))
	}
	result.Means = ""
	return result, nil
}

// failuresOf returns the findings of a Check by which hits cannot be counted.
func failuresOf(err error) (failures []error) {
	if all, is := err.(interface{ Unwrap() []error }); is {
		for _, err := range all.Unwrap() {
			failures = append(failures, failuresOf(err)...)
		}
		return failures
	}
	if err == nil || errors.Is(err, backend.ErrCondition) {
		return nil
	}
	return []error{err}
}

// identity names the program and the versions of the servers.
func identity(kind stores.Kind, servers []backend.Server) string {
	var names []string
	for _, s := range servers {
		if name := strings.TrimSpace(kind.String() + " " + version(s)); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	text := strings.Join(names, " and ")
	if mode := servers[0].Facts["redis_mode"]; mode != "" {
		text += ", " + mode
	}
	if len(servers) > 1 {
		text += fmt.Sprintf(", %d servers", len(servers))
	}
	return text
}

// version is the version of a server; empty if the server does not tell.
func version(s backend.Server) string { return cmp.Or(s.Facts["redis_version"], s.Facts["version"]) }

// herd is the race of this check: each racer has a Counter of its own.
var herd = promise.Herd(counter.Limits{{Max: 7, Per: 24 * time.Hour}}, 1, 40, 5)

// promised tries a case that the conformance suite tries as well.
func (r *run) promised(c promise.Case) func(context.Context) (Result, error) {
	return func(ctx context.Context) (Result, error) {
		s := &promise.Subject{
			Counter: func(l tiers.Ladder, patient bool) (*counter.Counter, error) {
				if patient {
					return r.counter(l, Patience(r.cfg.Timeout), "")
				}
				return r.counter(l, r.cfg.Timeout, "")
			},
			Patience: Patience(r.cfg.Timeout),
			Round:    r.awayFromTheHour,
			Judge: func(began time.Time, err error) (bool, error) {
				err = orSlow(began, err)
				return late(err), err
			},
		}
		if !r.local() {
			s.Reach = counter.DefaultSkew + r.settle()
		}
		f, err := c.Try(ctx, s)
		result := Result{Name: c.Name, Promise: c.Promise, Status: OK, Seen: f.Seen}
		switch {
		case err != nil:
			return result, err
		case f.Broken != "":
			result.Status, result.Means = Failed, f.Broken
		case f.All():
			return result, f.Last
		case f.Failed > 0:
			r.warn(&result, f.Failures)
		}
		return result, nil
	}
}

// awayFromTheHour waits where racers could find themselves on both sides of the
// end of an hour, the width of the tickets of a day: there, on a store without an
// atomic step, the promise of every place does not hold.
func (r *run) awayFromTheHour(ctx context.Context) error {
	const near = 2 * time.Second
	if _, atomic := r.store.Store.(backend.Atomic); atomic {
		return nil
	}
	now := time.Now()
	if now.Add(-near).Truncate(time.Hour).Equal(now.Add(near).Truncate(time.Hour)) {
		return nil
	}
	select {
	case <-time.After(2 * near):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// warn makes result a Warning about failed calls.
func (r *run) warn(result *Result, f promise.Failures) {
	result.Status = Warning
	if f.Late < f.Failed {
		result.Means = fmt.Sprintf("%d of %d calls failed: %v", f.Failed, f.Calls, f.Last)
		return
	}
	result.Means = fmt.Sprintf("%d of %d calls were late, --timeout is %s: %v\n%s", f.Failed, f.Calls, dur.Format(r.cfg.Timeout), f.Last, tooSlow)
}

// slowCall is the least duration of a failed call that counts as late, where the
// error does not say so: most of the shortest timeout that callers have.
const slowCall = 40 * time.Millisecond

// orSlow is the error of a call that began at began; a slowError if late.
func orSlow(began time.Time, err error) error {
	if err != nil && time.Since(began) >= slowCall && !refused(err) {
		return slowError{err}
	}
	return err
}

// slowError is an error of a late call, and no server's refusal.
type slowError struct{ error }

func (e slowError) Unwrap() error { return e.error }

// late reports whether err came for want of time. A late error says nothing about
// the counts of the store.
func late(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, new(slowError)) || errors.As(err, new(*gomemcache.ConnectTimeoutError)) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

// refused reports whether err is a server's refusal, however late.
func refused(err error) bool {
	var reply goredis.Error
	return errors.As(err, &reply) || errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "SERVER_ERROR") ||
		strings.Contains(err.Error(), "out of memory")
}

const tooSlow = "A call that is late is an error, never a wrong answer: no promise is broken. The store is busy or far away: give it a server of its own, or callers more time (counter.Config.Patience; here --timeout)."
