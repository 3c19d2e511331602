package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
)

// Config is the configuration of a comparison.
type Config struct {
	// Limits are tried in turn, since a textbook limiter has a single limit.
	Limits counter.Limits

	// Store is a memory, a Redis or memcached servers. In memory each algorithm has
	// a store of its own, without a bound that matters. On servers each algorithm
	// has a prefix of its own; all keys under the prefix are removed at the end of
	// the algorithm's turn, also after an error or an interrupt. On memcached the
	// exact log is in memory, and most textbook limiters are left out.
	Store *stores.Opened

	Skew    time.Duration // how far stamps may run back, for abacus; zero: not at all
	Timeout time.Duration // of a call to a server, above zero

	Growth bool // weigh keys that grow too, for Report.Growth

	// Progress is called now and then with the name of the running algorithm and
	// the number of events decided by all algorithms so far. Default: no call.
	Progress func(name string, events int64)
}

// Comparison is a trial of several algorithms on a log. [New] makes a Comparison
// for a single Run.
type Comparison struct {
	cfg    Config
	rounds []round
	sizes  []int64 // of the keys that grow
	prefix string
	now    time.Time // of the event under decision
	grace  time.Duration
	quiet  bool // no one else uses the Redis
	given  int64
}

// round is the set of algorithms for a limit.
type round struct {
	limit      counter.Limit
	candidates []candidate
	leftOut    []LeftOut
}

// maxGrace is the largest distance by which stamps may run back. Beyond maxGrace
// neither the textbook limiters nor abacus can be configured for the log, and the
// exact log is not exact.
const maxGrace = dur.Day

// New checks cfg and finds the algorithms for each limit. An error is the
// caller's mistake.
func New(cfg Config) (*Comparison, error) {
	c := &Comparison{cfg: cfg, prefix: stores.Namespace("c")}
	if c.sizes = grownTo; !cfg.Growth {
		c.sizes = nil
	} else if cfg.Store.Name.Kind != stores.InMemory {
		c.sizes = grownTo[:10]
	}
	if cfg.Store.Name.IsPlain() {
		return nil, fmt.Errorf("store %s: want the layout sums, whose memory is compared", cfg.Store.Name)
	}
	if len(cfg.Limits) == 0 {
		return nil, errors.New("Config.Limits is empty, want at least one limit to compare under")
	}
	if cfg.Skew > maxGrace {
		return nil, fmt.Errorf("skew is %s, want at most %s", dur.Format(cfg.Skew), dur.Format(maxGrace))
	}
	for _, limit := range cfg.Limits {
		if limit.Max < 1 {
			return nil, fmt.Errorf("limit %s: Max is %d, want at least 1 to compare", limit, limit.Max)
		}
		r := round{limit: limit}
		for i, candidate := range candidates(limit) {
			_, err := candidate.open(context.Background(), c, limit)
			switch {
			case err == nil:
				r.candidates = append(r.candidates, candidate)
			case i == 0:
				return nil, fmt.Errorf("limit %s: %s", limit, reason(err, limit))
			default:
				r.leftOut = append(r.leftOut, LeftOut{candidate.name, reason(err, limit)})
			}
		}
		c.rounds = append(c.rounds, r)
	}
	return c, nil
}

// Steps is the number of decisions of all algorithms together.
func (c *Comparison) Steps(log *Log) (n int64) {
	for _, r := range c.rounds {
		for _, candidate := range r.candidates {
			n += log.Events
			for _, part := range parts {
				for _, size := range c.sizes {
					if c.grows(candidate, part) {
						n += size
					}
				}
			}
		}
	}
	return n
}

// Run gives log to each algorithm in turn, alone and from an empty store, and
// returns a Report for each limit. An error is the error of ctx or of the store.
func (c *Comparison) Run(ctx context.Context, log *Log) ([]*Report, error) {
	c.grace = min(log.Back, maxGrace)
	if redis := c.cfg.Store.Redis; redis != nil {
		var err error
		if c.quiet, err = isQuiet(ctx, redis); err != nil {
			return nil, fmt.Errorf("store %s: %w", c.cfg.Store.Name, err)
		}
	}
	var all []*Report
	for _, r := range c.rounds {
		report, err := c.round(ctx, log, r)
		if err != nil {
			return nil, err
		}
		all = append(all, report)
	}
	return all, nil
}

func (c *Comparison) round(ctx context.Context, log *Log, r round) (*Report, error) {
	sampled := 1000
	if c.cfg.Store.Name.Kind != stores.InMemory {
		sampled = 100 // each takes a round trip or more for every algorithm
	}
	t := &trial{c: c, log: log, limit: r.limit, sample: log.sample(sampled), decided: make([]uint32, log.Events)}
	report := &Report{
		Log: log.Name, Limit: r.limit.String(), Keys: len(log.keys), From: log.First, To: log.Last, Store: c.cfg.Store.Name.String(),
		Seen: log.Seen, RunsBack: dur.Format(log.Back), Skew: dur.Format(c.cfg.Skew),
		Reference: r.candidates[0].name, LeftOut: r.leftOut, Sample: len(t.sample.keys), skew: c.cfg.Skew,
	}
	for i, candidate := range r.candidates {
		a, err := t.run(ctx, i, candidate)
		if err != nil {
			return nil, err
		}
		report.Algorithms = append(report.Algorithms, a)
	}
	key, err := t.judge(ctx, report.Algorithms)
	if err != nil {
		return nil, err
	}
	report.Curve = t.curve(key, len(report.Algorithms))
	if c.sizes != nil {
		report.Growth, err = c.growth(ctx, r)
	}
	return report, err
}

// Broken returns an error if the exact log was not exact, or if abacus admitted
// more than Max. Broken returns nil where stamps run back further than the
// algorithm was configured for.
func (r *Report) Broken() error {
	for _, a := range r.Algorithms {
		switch {
		case a.Name == r.Reference && r.Back <= maxGrace && a.WronglyAdmitted+a.WronglyDenied > 0:
			return fmt.Errorf("limit %s: %d decisions of the %s are wrong, want none", r.Limit, a.WronglyAdmitted+a.WronglyDenied, a.Name)
		case a.Source == "abacus" && r.Back <= r.skew && a.WronglyAdmitted > 0:
			return fmt.Errorf("limit %s: %s has admitted %d hits too many, want none", r.Limit, a.Name, a.WronglyAdmitted)
		}
	}
	return nil
}

// Notes are lines for people about the log, and what it proves.
func (r *Report) Notes() []string { return r.Seen.Notes(r.skew) }
