package main

import (
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/page"
	"github.com/abacus-go/abacus/limiter"
)

//go:embed page.tmpl
var text string

// page is docs/reports/floods.md as the campaign has found it.
func (c *campaign) page(command string) string {
	return c.Fill(text, command, map[string]any{"Broken": len(c.broken()) > 0, "Scenarios": scenarios, "Short": rows(c.of(false)), "Long": rows(c.of(true)), "All": rows(c.trials)})
}

// row is a trial in the tables of the page.
type row struct {
	Name, Policy, Store, LetThrough, Bound string
	Lacking, Surplus                       int64
	Median, Most, Longest                  string
	Outcomes                               map[string]int64
	limiter.Stats
}

func rows(trials []*trial) (all []row) {
	for _, t := range trials {
		took := t.times()
		r := row{Name: t.Name, Policy: t.policy.name, Store: t.store, LetThrough: t.letThrough(), Bound: t.bound(),
			Median: quantile(took, 0.5), Most: quantile(took, 0.99), Longest: quantile(took, 1), Outcomes: map[string]int64{}}
		for _, f := range t.floods {
			r.Lacking, r.Surplus = r.Lacking+f.lacking, r.Surplus+f.surplus
		}
		for _, e := range t.ends {
			for outcome, n := range e.Outcomes {
				r.Outcomes[outcome] += n
			}
			r.Carried, r.Dropped = r.Carried+e.Stats.Carried, r.Dropped+e.Stats.Dropped
			r.Waited, r.Shed = r.Waited+e.Stats.Waited, r.Shed+e.Stats.Shed
		}
		all = append(all, r)
	}
	return all
}

// letThrough is the number of hits in the fullest window of each limit, in each run.
func (t *trial) letThrough() string {
	var each []string
	for _, f := range t.floods {
		var of []string
		for i, n := range f.fullest {
			if text := page.Thousands(n); len(t.limits) == 1 {
				of = append(of, text)
			} else {
				of = append(of, text+" of "+t.limits[i].String())
			}
		}
		each = append(each, strings.Join(of, ", "))
	}
	if all := slices.Compact(slices.Clone(each)); len(all) == 1 && len(each) > 1 {
		return all[0] + " each"
	}
	return strings.Join(each, ", ")
}

// bound is the most that the policy lets through in a window.
func (t *trial) bound() string {
	if !t.policy.bounded {
		return "none"
	}
	var each []string
	for _, limit := range t.limits {
		limit.Max = t.policy.most(limit.Max, t.services)
		each = append(each, limit.String())
	}
	return strings.Join(each, ", ")
}

// times are the times of all answers, the shortest first.
func (t *trial) times() (all []time.Duration) {
	for _, f := range t.floods {
		all = append(all, f.took...)
	}
	slices.Sort(all)
	return all
}

// quantile is the time that a share of the sorted times does not exceed.
func quantile(sorted []time.Duration, share float64) string {
	if len(sorted) == 0 {
		return "-"
	}
	d := sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
