// Package replay sends a log through a [counter.Counter] on the log's own clock,
// and checks every decision against the log of every hit.
package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
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

// Run replays all of log. The Report has all decisions, also next to an error: an
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
	right := r.judge.Allowed(&h.log, e.At, 1, r.cfg.Limits)
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

// Report is the result of a replay, and the output of demo replay --json.
type Report struct {
	File     string    `json:"file"`
	Store    string    `json:"store"`
	Limits   string    `json:"limits"`
	Ladder   string    `json:"ladder"`
	Skew     string    `json:"skew"`
	Keys     int       `json:"keys"`
	First    time.Time `json:"first"` // the oldest stamp; the zero time without events
	Last     time.Time `json:"last"`  // the newest
	RunsBack string    `json:"runs_back"`

	eventlog.Seen

	Admitted int64 `json:"admitted"`
	Denied   int64 `json:"denied"`

	// Compared with the log of every hit. Denied though the log has room, even
	// with the oldest bucket counted whole; admitted though it has none: both
	// must be zero, as long as stamps run back by no more than the skew.
	WrongDenied   int64 `json:"wrongly_denied"`
	WrongAdmitted int64 `json:"wrongly_admitted"`

	// Denied though a log of every hit would have admitted: the price of
	// counting in buckets, and of the skew.
	GridDenied int64 `json:"denied_within_grid"`

	Worst []Worst `json:"worst"` // of each limit, in order

	// The mean numbers, over all events, of buckets in the covers of all limits,
	// and of buckets that hits were added to.
	BucketsRead    float64 `json:"buckets_read_per_event"`
	BucketsWritten float64 `json:"buckets_written_per_event"`

	Seconds float64 `json:"seconds"` // reading and checking included
	Rate    float64 `json:"events_per_second"`

	MostDenied []DeniedKey `json:"most_denied"` // at most ten
	Stopped    string      `json:"stopped,omitempty"`

	// Kept describes the keys left in the store. The caller fills it in; nil means
	// none, for a store in this process.
	Kept *Kept `json:"kept,omitempty"`

	Told []string `json:"-"` // what the log proves, for people
}

// Worst is the fullest true window of a limit, over all keys.
type Worst struct {
	Limit    string  `json:"limit"`
	Max      int64   `json:"max"`
	Admitted int64   `json:"admitted"`     // in that window
	Ratio    float64 `json:"ratio_to_max"` // above 1: the promise is broken
	Event    string  `json:"event,omitempty"`
	Feature  string  `json:"feature,omitempty"`
}

// Kept describes the keys left by a replay in a store on a server.
type Kept struct {
	Prefix  string `json:"prefix"`            // common beginning of all stored keys
	Within  string `json:"expire_within"`     // the longest time to live
	Removed *int64 `json:"removed,omitempty"` // number of keys removed at the end; nil without --clean
}

// DeniedKey is a key that was denied.
type DeniedKey struct {
	Event    string `json:"event"`
	Feature  string `json:"feature"`
	Denied   int64  `json:"denied"`
	Admitted int64  `json:"admitted"`
}

// mostDenied is the largest number of keys in Report.MostDenied.
const mostDenied = 10

func (r *Replay) finish(spent time.Duration) {
	p := &r.report
	p.Limits, p.Ladder, p.Skew = r.cfg.Limits.String(), r.cfg.Ladder.String(), dur.Format(r.cfg.Skew)
	p.Keys, p.First, p.Last, p.RunsBack = len(r.keys), p.Seen.First, p.Seen.Last, dur.Format(p.Back)
	p.Told = p.Notes(r.cfg.Skew)
	p.Seconds = spent.Seconds()
	if p.Events > 0 {
		n := float64(p.Events)
		p.BucketsRead = float64(r.reads) / n
		p.BucketsWritten = float64(p.Admitted*int64(r.cfg.Ladder.Len())) / n
		p.Rate = n / p.Seconds
	}
	p.Worst = make([]Worst, len(r.cfg.Limits))
	for i, limit := range r.cfg.Limits {
		p.Worst[i] = r.worst(limit)
	}
	p.MostDenied = r.mostDenied()
}

func (r *Replay) worst(limit counter.Limit) Worst {
	w := Worst{Limit: limit.String(), Max: limit.Max}
	for key, h := range r.keys {
		if h.log.Total() < w.Admitted {
			continue
		}
		// Of equal windows the first by name: a map has no order.
		n := h.log.Worst(limit.Per)
		if n > w.Admitted || n > 0 && n == w.Admitted && compareKeys(key, counter.Key{Event: w.Event, Feature: w.Feature}) < 0 {
			w.Admitted, w.Event, w.Feature = n, key.Event, key.Feature
		}
	}
	if limit.Max > 0 {
		w.Ratio = float64(w.Admitted) / float64(limit.Max)
	}
	return w
}

func (r *Replay) mostDenied() []DeniedKey {
	all := []DeniedKey{}
	for key, h := range r.keys {
		if h.denied > 0 {
			all = append(all, DeniedKey{key.Event, key.Feature, h.denied, h.log.Total()})
		}
	}
	slices.SortFunc(all, func(a, b DeniedKey) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied),
			compareKeys(counter.Key{Event: a.Event, Feature: a.Feature}, counter.Key{Event: b.Event, Feature: b.Feature}))
	})
	return all[:min(len(all), mostDenied)]
}

func compareKeys(a, b counter.Key) int {
	return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Feature, b.Feature))
}
