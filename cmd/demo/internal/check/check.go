// Package check tries the promises of abacus on a store, and looks at how its
// servers are set up.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Status is how a check ended.
type Status string

// How a check ends.
const (
	OK      Status = "ok"
	Fact    Status = "fact"    // neither good nor bad
	Warning Status = "warning" // no promise is broken, but one may be some day
	Failed  Status = "failed"
)

// Result is what one check found.
type Result struct {
	Name    string             `json:"name"`
	Promise string             `json:"promise"` // what is tried, in few words
	Status  Status             `json:"status"`
	Seen    string             `json:"seen"`
	Means   string             `json:"means,omitempty"` // for the promises; of a Warning and a Failed
	Numbers map[string]float64 `json:"numbers,omitempty"`
}

// Config is how a store is checked.
type Config struct {
	Prefix  string        // of all that is stored
	Timeout time.Duration // patience of each call, as counter.Config.Patience
	Settle  time.Duration // as counter.Config.Settle; zero: its default

	// Told is called with each result as it comes. Default: nobody is told.
	Told func(Result)
}

// Run makes all checks, one after the other; when nothing can be counted there
// are no others. It leaves behind what it has stored, under cfg.Prefix. The error
// is that of ctx; results until then are returned with it.
func Run(ctx context.Context, store *stores.Opened, cfg Config) ([]Result, error) {
	r := &run{store: store, cfg: cfg}
	for _, check := range []func(context.Context) (Result, error){
		r.reachable, r.herd, r.denied, r.keys, r.trips, r.lives, r.boundary, r.expiry, r.clocks,
		r.room, r.slabs, r.role, r.coverage, r.restarts,
	} {
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
			cfg.Told(result)
		}
		if len(r.results) == 1 && result.Status == Failed {
			break
		}
	}
	return r.results, nil
}

// errNotHere is of a check that a store gives no occasion for.
var errNotHere = errors.New("not for this store")

// run is one pass over all checks.
type run struct {
	store   *stores.Opened
	cfg     Config
	servers []stores.Server
	results []Result
	dying   []string // stored keys that are about to expire
}

// counter is a new one, as another process would have it: it remembers nothing
// of what others were told.
func (r *run) counter(l tiers.Ladder, change ...func(*counter.Config)) (*counter.Counter, error) {
	cfg := counter.Config{Ladder: l, Prefix: r.cfg.Prefix, Settle: r.cfg.Settle, Patience: r.cfg.Timeout}
	for _, f := range change {
		f(&cfg)
	}
	return counter.New(r.store.Store, cfg)
}

// counters is n of them.
func (r *run) counters(n int, l tiers.Ladder) ([]*counter.Counter, error) {
	all := make([]*counter.Counter, n)
	for i := range all {
		var err error
		if all[i], err = r.counter(l); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Patience is how long a call waits that is not to fail for being slow: one that
// finds out what a store counts, not how fast.
func Patience(timeout time.Duration) time.Duration { return max(5*time.Second, timeout) }

// patient is a counter of calls that are not to fail for being slow.
func (r *run) patient(l tiers.Ladder) (*counter.Counter, error) {
	return r.counter(l, func(cfg *counter.Config) { cfg.Patience = Patience(r.cfg.Timeout) })
}

// settle is how long one try of a counter may last.
func (r *run) settle() time.Duration { return cmp.Or(r.cfg.Settle, counter.DefaultSettle) }

// local tells whether the store is in this process.
func (r *run) local() bool { return r.store.Name.Kind == stores.InMemory }

func (r *run) reachable(ctx context.Context) (Result, error) {
	result := Result{Name: "reachable", Promise: "can be counted on", Status: OK, Seen: "in this process"}
	var err error
	if r.servers, err = r.store.Identify(ctx); err != nil {
		result.Means = "Nothing else was tried."
		return result, err
	}
	if !r.local() {
		result.Seen = identity(r.store.Name.Kind, r.servers)
	}
	c, err := r.patient(tiers.Default)
	if err != nil {
		return result, err
	}
	if err := c.Add(ctx, counter.Key{Event: "reachable", Feature: "first"}, 1); err != nil {
		result.Means = "Nothing else was tried."
		return result, fmt.Errorf("%s answers, but cannot be counted on: %w", result.Seen, err)
	}
	return result, nil
}

// identity says who the servers are.
func identity(kind stores.Kind, servers []stores.Server) string {
	versions := map[string]bool{}
	var names []string
	for _, s := range servers {
		if !versions[s.Version] {
			versions[s.Version] = true
			names = append(names, strings.TrimSpace(kind.String()+" "+s.Version))
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
