package counter

import (
	"cmp"
	"fmt"

	"github.com/abacus-go/abacus/tiers"
)

// formerly returns the Counter of cfg.Former; nil if there is none.
func (c *Counter) formerly(cfg Config) (*Counter, error) {
	f := cfg.Former
	if f == nil {
		return nil, nil
	}
	cfg.Former = nil
	if f.Ladder.Len() > 0 {
		cfg.Ladder = f.Ladder
	}
	if f.Secret != nil {
		cfg.Secret = f.Secret
	}
	cfg.Prefix = cmp.Or(f.Prefix, cfg.Prefix)
	cfg.Skew, cfg.Settle = max(0, cmp.Or(f.Skew, cfg.Skew)), max(0, cmp.Or(f.Settle, cfg.Settle))
	former, err := c.base.counter(cfg, true)
	if err != nil {
		return nil, fmt.Errorf("%w, as Config.Former has it", err)
	}
	if former.keys.head == c.keys.head && string(former.keys.secret) == string(c.keys.secret) {
		return nil, fmt.Errorf("counter: Config.Former has the ladder %q and keys of the Counter itself, want another ladder, Prefix, Secret, Skew or Settle", cfg.Ladder)
	}
	return former, nil
}

// judged returns the limits that c judges: all limits, but for a former ladder
// only the limits whose window the ladder can hold. If there is no such limit,
// hits are counted all the same, under a limit that denies nothing.
func (c *Counter) judged(limits Limits) Limits {
	var judged Limits
	for _, limit := range limits {
		if limit.fits(c.plan.Ladder) == nil {
			judged = append(judged, limit)
		}
	}
	if judged == nil {
		judged = Limits{{Max: MaxCount, Per: max(tiers.MinWindow, c.plan.Ladder.At(0).Width)}}
	}
	return judged
}
