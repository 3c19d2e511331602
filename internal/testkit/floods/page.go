package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/page"
	"github.com/abacus-go/abacus/limiter"
)

// page is docs/reports/floods.md as the campaign has found it.
func (c *campaign) page(command string) string {
	var b strings.Builder
	if err := pageTemplate.Execute(&b, struct {
		Date, Took, Machine, Versions, Command, Verdict, Short, Scenarios, Long, Decisions string
	}{
		Date: c.began.UTC().Format("2006-01-02 15:04 UTC"), Took: c.took.Round(time.Second).String(),
		Machine: page.Machine(), Versions: c.versions, Command: command, Verdict: c.verdict(),
		Short: rows(c.short), Scenarios: scenarios(), Long: rows(c.long), Decisions: c.decisions(),
	}); err != nil {
		return err.Error() // nothing in the template can fail
	}
	return b.String()
}

var pageTemplate = template.Must(template.New("page").Parse(`# Floods

This page is for everybody who chooses a policy for a store that fails (` + "`OnFailure`" + ` of a rule): it
has the number of requests that each policy lets through in a flood. A program
(internal/testkit/floods, "make floods") wrote the page. The program sends floods of requests to
small services in processes of their own, whose store is late or stands still, and counts the
requests that come through.

| | |
|---|---|
| date | {{.Date}} |
| run | {{.Took}} |
| machine | {{.Machine}}; services, connections and stores share it |
| versions | {{.Versions}} |

    {{.Command}}

{{.Verdict}}

The columns of the tables are:

- **Policy**: open, closed and local are ` + "`FailOpen`, `FailClosed` and `FailLocal`" + `; local-64 is
  ` + "`FailLocal` with a `MaxInFlight` of 64. Each of I services has a `Share`" + ` of 1/I.
- **Let through**: hits of the fullest window of a user, in each run, by the labels that the hits
  have. Requests that used the limit up before the flood are included, and so are requests of an
  open rule that nobody counted.
- **Bound**: the most hits that the policy may let through in a window.
- **Not in the store**: hits, of all runs, that were let through and that the store had not counted
  in the end.
- **Too many there**: hits, of all runs, that the store had counted beyond the hits that were let
  through, such as hits that were carried twice.
- **Median, 99 %, longest**: times of all answers of the flood as the client saw them, the wait for
  a processor included.

## Twenty thousand requests

The limit is 10/h, a decision has 10 ms, and 1,500 connections send at least 20,000 requests. Each
connection sends a request when the request before has been answered. Every run has a user of its
own.

{{.Scenarios}}
{{.Short}}
## A long standstill

There are 60 users under the limits 6/10s and 20/h, and all else is at its default. 120 connections
send a request a second each, from up to 5 s before the standstill until 5 s after the standstill.

Whenever the store goes on, a single service is at once asked by Peek for one hit more than a user
has left. All services are asked in this way when the store has counted all hits. In the end no hit
may wait to be carried, no goroutine may be left in a service, and no answer may have taken 30 s.

{{.Long}}
## How the requests were decided

The table has the outcomes of all services and runs, requests before the flood included, and the
numbers of ` + "`Limiter.Stats`" + `.

{{.Decisions}}`))

// verdict is the result in a sentence or two.
func (c *campaign) verdict() string {
	if len(c.broken()) > 0 {
		return "**Promises were broken**, or something was left behind. The program printed each break."
	}
	return `**No promise was broken**: no window over its bound, no answer that hung, no goroutine left, no hit
lost under a policy that counts.`
}

// scenarios is a list of the short scenarios.
func scenarios() string {
	var b strings.Builder
	for i := range short {
		fmt.Fprintf(&b, "- **%s**: %s.\n", short[i].name, short[i].means)
	}
	return b.String()
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
	for _, t := range append(c.short[:len(c.short):len(c.short)], c.long...) {
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
