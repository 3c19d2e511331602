package main

import (
	_ "embed"
	"fmt"
	"maps"
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
	var list strings.Builder
	for i := range scenarios {
		if !scenarios[i].long {
			fmt.Fprintf(&list, "- **%s**: %s.\n", scenarios[i].name, scenarios[i].means)
		}
	}
	return c.Fill(text, command, map[string]any{"Broken": len(c.broken()) > 0, "Scenarios": list.String(),
		"Short": rows(c.of(false)), "Long": rows(c.of(true)), "Decisions": c.decisions()})
}

// rows is a table with a row for each trial.
func rows(trials []*trial) string {
	all := [][]string{{"", "policy", "store", "let through", "bound", "not in the store", "too many there", "median", "99 %", "longest"}}
	for _, t := range trials {
		took := t.times()
		var lacking, surplus int64
		for _, f := range t.floods {
			lacking, surplus = lacking+f.lacking, surplus+f.surplus
		}
		all = append(all, []string{t.name, t.policy.name, t.store, t.letThrough(), t.bound(), page.Thousands(lacking), page.Thousands(surplus),
			quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1)})
	}
	return page.Table(all)
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

// decisions is a table of the outcomes, and of the numbers of Limiter.Stats.
func (c *campaign) decisions() string {
	all := [][]string{{"", "policy", "store", "outcomes", "carried", "dropped", "waited for a turn", "in vain"}}
	for _, t := range c.trials {
		outcomes, stats := map[string]int64{}, limiter.Stats{}
		for _, e := range t.ends {
			for outcome, n := range e.Outcomes {
				outcomes[outcome] += n
			}
			stats.Carried, stats.Dropped = stats.Carried+e.Stats.Carried, stats.Dropped+e.Stats.Dropped
			stats.Waited, stats.Shed = stats.Waited+e.Stats.Waited, stats.Shed+e.Stats.Shed
		}
		var parts []string
		for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
			parts = append(parts, page.Thousands(outcomes[outcome])+" "+outcome)
		}
		all = append(all, []string{t.name, t.policy.name, t.store, strings.Join(parts, ", "),
			page.Thousands(stats.Carried), page.Thousands(stats.Dropped), page.Thousands(stats.Waited), page.Thousands(stats.Shed)})
	}
	return page.Table(all)
}
