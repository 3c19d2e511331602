package counter

import (
	"fmt"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// Former is the ladder of the keys until now, with all fields that change a
// stored key. A zero field is as in the Config of the Counter, or as the ladder
// of With; so at least one field is set.
//
// A Counter with a Former counts each hit by both ladders, with one label, and
// admits a hit only if in both ladders every limit has room that the ladder can
// hold. Forget empties both, a Refund gives back in both, and Count, Peek and
// RetryAfter tell the larger number. Each call has the cost of two keys.
//
// So no limit is lost while a ladder changes, as long as all hits within one Per
// come from processes that have one ladder in common:
//
//  1. Processes with the former ladder alone are replaced by processes with both
//     ladders, at any pace, or back.
//  2. When the last process with the former ladder alone is gone, more than Per +
//     Skew pass, of the longest Per.
//  3. Processes with both are replaced by processes with the new ladder alone, at
//     any pace, or back.
//
// While both ladders count, clocks must agree within the smaller Skew of the two.
// A limit that the former ladder cannot hold begins to hold with the last hit
// that was counted by the former alone. Soft keys are counted by the new ladder
// alone.
type Former struct {
	Ladder tiers.Ladder
	Prefix string
	Secret []byte        // not nil and empty: none
	Skew   time.Duration // negative: none
	Settle time.Duration // negative: none
}

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
	if f.Prefix != "" {
		cfg.Prefix = f.Prefix
	}
	if f.Secret != nil {
		cfg.Secret = f.Secret
	}
	if f.Skew != 0 {
		cfg.Skew = max(0, f.Skew)
	}
	if f.Settle != 0 {
		cfg.Settle = max(0, f.Settle)
	}
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
		if c.holds(limit) {
			judged = append(judged, limit)
		}
	}
	if judged == nil {
		judged = Limits{{Max: MaxCount, Per: max(tiers.MinWindow, c.plan.Ladder.At(0).Width)}}
	}
	return judged
}

func (c *Counter) holds(limit Limit) bool {
	_, err := c.plan.Ladder.Finest(limit.Per)
	return err == nil
}
