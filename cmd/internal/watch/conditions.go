package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/cmd/internal/check"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
)

// state reports whether a condition holds.
type state string

const (
	holds   state = "holds"
	broken  state = "broken"
	unknown state = "unknown"
)

// condition is a condition of the promise, docs/guarantees.md, in the light of a look.
type condition struct {
	Name  string `json:"name"`
	State state  `json:"state"`
	Why   string `json:"why"`
}

// unless is a condition that holds by one reason, or is broken by another.
func unless(name string, isBroken bool, why, fine string) condition {
	if isBroken {
		return condition{name, broken, why}
	}
	return condition{name, holds, fine}
}

// conditions judges the conditions of the promise by a look.
func (w *watch) conditions(found []stores.Look, st *status) (all []condition) {
	var answering []backend.Server
	var gone []string
	for _, f := range found {
		if f.Err != nil {
			gone = append(gone, f.Name)
		} else {
			answering = append(answering, f.Server)
		}
	}
	fine := "Every server answers."
	if w.source.servers == nil {
		fine = "The store is in this process."
	}
	all = append(all, unless("The store answers", len(gone) > 0, "No answer of "+words.List(gone)+": calls are decided by the OnFailure of their rules.", fine))
	if w.source.servers != nil {
		all = append(all, w.written(st), w.clocks(answering))
		for _, r := range check.Setup(w.source.kind, answering) {
			is := broken
			if r.Status == check.OK {
				is = holds
			} else if r.Status == check.Fact || strings.Contains(r.Seen, "not known") {
				is = unknown
			}
			if r.Name != "restarts" { // by the longest window, below
				all = append(all, condition{strings.ToUpper(r.Promise[:1]) + r.Promise[1:], is,
					strings.TrimSpace("The server says: " + r.Seen + ". " + strings.ReplaceAll(r.Means, "\n", " "))})
			}
		}
		if len(answering) == 0 {
			all = append(all, condition{"Nothing is evicted", unknown, "No server answers."})
		}
		all = append(all, w.kept(found))
	}
	all = append(all, w.alike(st))
	if st != nil {
		left := st.Counter.HitsLeft + st.Counter.TakingBackFailed
		all = append(all,
			unless("No caller's clock is ahead", st.Counter.BucketsAhead > 0,
				fmt.Sprintf("The service has met %d answers with hits of the future: some caller's clock is ahead by more than the Skew.", st.Counter.BucketsAhead),
				"The service has met no hit of the future."),
			unless("No hit stays of a failed call", left > 0,
				fmt.Sprintf("%d takings back of the service were not confirmed: such hits deny other calls until they age out. No limit is passed.", left),
				"Every taking back of the service was confirmed."))
	}
	for i := range all {
		all[i].Why = text.Clean(all[i].Why, 400)
	}
	return all
}

// written judges whether hits can be counted, which only a service can know: the
// watch writes nothing.
func (w *watch) written(st *status) condition {
	const name = "The store takes hits"
	if st == nil || !st.Tallied {
		return condition{name, unknown, "The watch writes nothing, so it has not tried: abacus check --store tries it."}
	}
	failed := int64(0)
	for _, o := range []limiter.Outcome{limiter.OutcomeFailedClosed, limiter.OutcomeFailedOpen, limiter.OutcomeLocalAdmitted, limiter.OutcomeLocalOverLimit} {
		failed += st.totals[o]
	}
	if w.failed.since.Equal(st.Since) && failed > w.failed.n {
		w.failed.at = time.Now()
	}
	w.failed.since, w.failed.n = st.Since, failed
	return unless(name, time.Since(w.failed.at) < time.Minute, "Within the last minute the service has decided calls without the store.",
		"The service has decided no call without the store within the last minute of the watch.")
}

// clocks judges the clocks of the servers by that of this machine. The clocks of the
// callers decide, and a server is their common measure.
func (w *watch) clocks(servers []backend.Server) condition {
	const name = "Clocks agree"
	if len(servers) == 0 {
		return condition{name, unknown, "No server answers."}
	}
	skew := w.source.limiter().Counter().Config().Skew
	s := slices.MaxFunc(servers, func(a, b backend.Server) int { return int(a.Ahead.Abs() - b.Ahead.Abs()) })
	told := fmt.Sprintf("The clock of %s is %s, against this machine's; the Skew is %s.", s.Name, s.Clock(), dur.Format(skew))
	return unless(name, s.Apart(skew), told+" Compare the machines of all callers.", told)
}

// kept judges whether the store still has the hits of the longest window.
func (w *watch) kept(found []stores.Look) condition {
	longest := time.Duration(0)
	lim := w.source.limiter()
	for _, event := range lim.Events() {
		for _, r := range lim.Rules(event) {
			for _, l := range slices.Concat(append(slices.Clip(r.Plans), r.Limits, r.ElseLimits)...) {
				longest = max(longest, l.Window())
			}
		}
	}
	c := condition{"The store has kept the longest window", holds, fmt.Sprintf("Every server has been up for longer than %s.", dur.Format(longest))}
	for _, f := range found {
		up := uptime(f)
		switch state := w.servers[f.Name]; {
		case c.State == broken:
		case state.replaced:
			c.State, c.Why = broken, "Another server has taken the place of "+f.Name+" while this page was open: hits that had not reached it are forgiven."
		case state.restarts > 0 && f.Facts["aof_enabled"] != "1":
			c.State, c.Why = broken, f.Name+" was restarted while this page was open: earlier hits are forgiven."
		case f.Err != nil || len(f.Facts) == 0:
			c.State, c.Why = unknown, "The age of "+f.Name+" is not known."
		case f.Evicted > state.evicted:
			c.State, c.Why = broken, fmt.Sprintf("%s has evicted %d while this page was open: these hits are forgiven.", f.Name, f.Evicted-state.evicted)
		case up < longest:
			c.State, c.Why = unknown, fmt.Sprintf("%s has been up for %s, less than the longest window of %s: hits from before a restart are forgiven.", f.Name, text.Roughly(up), dur.Format(longest))
		}
	}
	return c
}

// alike judges whether the service counts by the rules of this page.
func (w *watch) alike(st *status) condition {
	const name = "All callers count alike"
	if w.source.file == "" {
		return condition{name, holds, "One limiter counts, with these rules."}
	}
	if st == nil || st.MoreRules > 0 {
		return condition{name, unknown, "Rules, ladders, prefix and secret are part of the promise, and no store knows those of its callers. --status compares the rules of a service."}
	}
	lim := w.source.limiter()
	skew := lim.Counter().Config().Skew
	var here, there []string
	for _, event := range lim.Events() {
		for _, r := range lim.Rules(event) {
			here = append(here, statusRule{r.Event, r.Kind, r.Limits, r.Ladder.String(), r.Soft}.String())
		}
	}
	for _, r := range st.Rules {
		there = append(there, r.String())
	}
	for who, rules := range map[string][2][]string{"the service": {there, here}, "only the file": {here, there}} {
		for _, rule := range rules[0] {
			if !slices.Contains(rules[1], rule) {
				return condition{name, broken, "The rules differ: " + who + " has " + rule + "."}
			}
		}
	}
	return unless(name, st.Skew != skew, fmt.Sprintf("The service has a Skew of %s, and this page --skew %s.", dur.Format(st.Skew), dur.Format(skew)),
		"The service has the rules, the ladders and the Skew of this page. Its prefix and its secret are not known.")
}

func (r statusRule) String() string {
	return fmt.Sprintf("%q by %q: %s%s, ladder %s", r.Event, r.Kind, r.Limits, map[bool]string{true: " (soft)"}[r.Soft], r.Ladder)
}
