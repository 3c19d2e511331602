// Package replay sends a log through a [counter.Counter] on the log's own clock,
// and checks every decision against the log of every hit.
package replay

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// Config is the configuration of a replay.
type Config struct {
	Store  backend.Store
	Limits counter.Limits // on every key; at least one
	Ladder tiers.Ladder   // must serve the limits
	Skew   time.Duration  // how far stamps may run back; zero: not at all
	Prefix string         // of the stored keys; see counter.Config

	// Decided is called with every event and the decision, in the order of the
	// log. An error of Decided stops the replay. Default: no call.
	Decided func(e eventlog.Event, allowed bool) error
}

// Replay is a pass over a log, used once.
type Replay struct {
	cfg     Config
	counter *counter.Counter
	judge   oracle.Judge
	now     time.Time // of the event under decision
	keys    map[counter.Key]*history
	reads   int64
	report  Report
}

// history is the decisions about one key.
type history struct {
	log    oracle.Log // admitted hits
	denied int64
}

// New checks cfg. An error is the caller's mistake.
func New(cfg Config) (*Replay, error) {
	r := &Replay{
		cfg:   cfg,
		judge: oracle.Judge{Ladder: cfg.Ladder, Skew: cfg.Skew},
		keys:  map[counter.Key]*history{},
	}
	for _, limit := range cfg.Limits {
		if _, err := cfg.Ladder.Finest(limit.Per); err != nil {
			return nil, fmt.Errorf("limit %s: %w", limit, err)
		}
	}
	var err error
	r.counter, err = NewCounter(cfg.Store, cfg.Ladder, cfg.Skew, cfg.Prefix, &r.now)
	return r, err
}

// NewCounter makes a Counter for hits of the past, now being the time of the hit
// under decision. A skew of zero is none, whatever the store's default is. A log's
// clock cannot tell how long a call took: the store's own timeout holds.
func NewCounter(store backend.Store, l tiers.Ladder, skew time.Duration, prefix string, now *time.Time) (*counter.Counter, error) {
	return counter.New(store, counter.Config{
		Ladder: l, Skew: cmp.Or(skew, -1), Settle: -1, Patience: -1, Prefix: prefix, Now: func() time.Time { return *now },
	})
}

// Run replays all of log. The Report has all decisions, also beside an error: an
// [eventlog.Error], the error of ctx, an error of the store, or an error of
// Config.Decided.
func (r *Replay) Run(ctx context.Context, log *eventlog.Log) (*Report, error) {
	began := time.Now()
	err := log.Each(ctx, &r.report.Seen, func(e *eventlog.Event) error { return r.decide(ctx, e) })
	r.finish(time.Since(began))
	return &r.report, err
}

// decide takes an event, and compares the answer with the log of all admitted
// hits.
func (r *Replay) decide(ctx context.Context, e *eventlog.Event) error {
	key := counter.Key{Event: e.Event, Feature: e.Feature}
	r.now = e.At
	verdict, err := r.counter.Take(ctx, key, 1, r.cfg.Limits)
	if err != nil {
		return fmt.Errorf("event %d: %w", r.report.Events+1, err)
	}
	h := r.keys[key]
	if h == nil {
		h = &history{}
		r.keys[key] = h
	}
	right, err := r.judge.Allowed(&h.log, e.At, 1, r.cfg.Limits)
	if err != nil {
		return err
	}
	r.report.Add(e.At)
	for _, limit := range r.cfg.Limits {
		cover, _ := r.cfg.Ladder.Cover(e.At, limit.Per, r.cfg.Skew) // New and the reader have checked the arguments
		r.reads += cover.Reads()
	}
	switch {
	case verdict.Allowed:
		r.report.Admitted++
		if !right {
			r.report.WrongAdmitted++
		}
		h.log.Add(e.At, 1)
	default:
		r.report.Denied++
		h.denied++
		if right {
			r.report.WrongDenied++
		} else if r.judge.Exact(&h.log, e.At, 1, r.cfg.Limits) {
			r.report.GridDenied++
		}
	}
	if r.cfg.Decided != nil {
		return r.cfg.Decided(*e, verdict.Allowed)
	}
	return nil
}
