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
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
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

// facts are lines about the memory, the evictions, the replicas and the age of a server.
func facts(l stores.Look) (all []string) {
	if len(l.Facts) == 0 {
		return []string{"the user may not ask for INFO"}
	}
	used, limit, evicted, up := "used_memory", "maxmemory", "evicted_keys", "uptime_in_seconds"
	if l.Facts["limit_maxbytes"] != "" {
		used, limit, evicted, up = "bytes", "limit_maxbytes", "evictions", "uptime"
	}
	memory := check.Bytes(number(l, used)) + " used"
	if number(l, limit) > 0 {
		memory = fmt.Sprintf("%s of %s used", check.Bytes(number(l, used)), check.Bytes(number(l, limit)))
	}
	if policy := l.Facts["maxmemory_policy"]; policy != "" {
		memory += ", " + shown(policy)
	}
	all = append(all, memory, fmt.Sprintf("%.0f evicted since its start", number(l, evicted)))
	if role := l.Facts["role"]; role != "" {
		part := strings.Replace(shown(role), "slave", "replica", 1)
		if n := number(l, "connected_slaves"); n > 0 {
			part += fmt.Sprintf(" of %.0f, the furthest %s behind", n, check.Bytes(furthest(l)))
		}
		all = append(all, part)
	}
	return append(all, "up for "+text.Roughly(time.Duration(number(l, up))*time.Second))
}

// furthest is the largest lag of a replica, in bytes.
func furthest(l stores.Look) (most float64) {
	for i := range int(min(number(l, "connected_slaves"), 100)) {
		for part := range strings.SplitSeq(l.Facts[fmt.Sprintf("slave%d", i)], ",") {
			if offset, is := strings.CutPrefix(part, "offset="); is {
				behind := stores.Look{Server: backend.Server{Facts: map[string]string{"offset": offset}}}
				most = max(most, number(l, "master_repl_offset")-number(behind, "offset"))
			}
		}
	}
	return most
}

// conditions judges the conditions of the promise by a look.
func (w *watch) conditions(found []stores.Look, st *status) (all []condition) {
	add := func(name string, is state, format string, args ...any) {
		all = append(all, condition{name, is, text.Clean(fmt.Sprintf(format, args...), 400)})
	}
	lim := w.source.limiter()
	var answering []backend.Server
	var gone []string
	for _, f := range found {
		if f.Err != nil {
			gone = append(gone, f.Name)
		} else {
			answering = append(answering, f.Server)
		}
	}
	if w.source.servers == nil {
		add("The store answers", holds, "The store is in this process.")
	} else {
		switch {
		case len(gone) > 0:
			add("The store answers", broken, "No answer of %s: calls are decided by the OnFailure of their rules.", text.List(gone))
		default:
			add("The store answers", holds, "Every server answers.")
		}
		w.written(add, st)
		w.clocks(add, answering, lim.Counter().Config().Skew)
		judged := check.Setup(w.source.kind, answering)
		for _, r := range judged {
			if r.Name == "restarts" {
				continue // by the longest window, below
			}
			is := map[check.Status]state{check.OK: holds, check.Fact: unknown}[r.Status]
			switch {
			case is != "":
			case strings.Contains(r.Seen, "not known"):
				is = unknown
			default:
				is = broken
			}
			add(upper(r.Promise), is, "%s", strings.TrimSpace("The server says: "+r.Seen+". "+strings.ReplaceAll(r.Means, "\n", " ")))
		}
		if len(answering) == 0 {
			add("Nothing is evicted", unknown, "No server answers.")
		}
		w.kept(add, found)
	}
	w.alike(add, st)
	if st != nil {
		serviced(add, st.Counter)
	}
	return all
}

// serviced judges the conditions that the numbers of a service tell of.
func serviced(add func(string, state, string, ...any), c counter.Stats) {
	if c.BucketsAhead > 0 {
		add("No caller's clock is ahead", broken, "The service has met %d answers with hits of the future: some caller's clock is ahead by more than the Skew.", c.BucketsAhead)
	} else {
		add("No caller's clock is ahead", holds, "The service has met no hit of the future.")
	}
	if left := c.HitsLeft + c.TakingBackFailed; left > 0 {
		add("No hit stays of a failed call", broken, "%d takings back of the service were not confirmed: such hits deny other calls until they age out. No limit is passed.", left)
	} else {
		add("No hit stays of a failed call", holds, "Every taking back of the service was confirmed.")
	}
}

// written judges whether hits can be counted, which only a service can know: the
// watch writes nothing.
func (w *watch) written(add func(string, state, string, ...any), st *status) {
	const name = "The store takes hits"
	if st == nil || !st.Tallied {
		add(name, unknown, "The watch writes nothing, so it has not tried: abacus check --store tries it.")
		return
	}
	failed := int64(0)
	for _, o := range []limiter.Outcome{limiter.OutcomeFailedClosed, limiter.OutcomeFailedOpen, limiter.OutcomeLocalAdmitted, limiter.OutcomeLocalOverLimit} {
		failed += st.totals[o]
	}
	if last := w.failed; last.since.Equal(st.Since) && failed > last.n {
		w.failed.at = time.Now()
	}
	w.failed.since, w.failed.n = st.Since, failed
	switch recent := time.Since(w.failed.at) < time.Minute; {
	case recent:
		add(name, broken, "Within the last minute the service has decided calls without the store.")
	default:
		add(name, holds, "The service has decided no call without the store within the last minute of the watch.")
	}
}

// clocks judges the clocks of the servers by that of this machine. The clocks of the
// callers decide, and a server is their common measure.
func (w *watch) clocks(add func(string, state, string, ...any), servers []backend.Server, skew time.Duration) {
	const name = "Clocks agree"
	if len(servers) == 0 {
		add(name, unknown, "No server answers.")
		return
	}
	furthest := slices.MaxFunc(servers, func(a, b backend.Server) int { return int(a.Ahead.Abs() - b.Ahead.Abs()) })
	if furthest.Apart(skew) {
		add(name, broken, "The clock of %s is %s this machine's; the Skew is %s. Compare the machines of all callers.", furthest.Name, furthest.Clock(), dur.Format(skew))
		return
	}
	add(name, holds, "The clock of %s is %s, against this machine's; the Skew is %s.", furthest.Name, furthest.Clock(), dur.Format(skew))
}

// kept judges whether the store still has the hits of the longest window.
func (w *watch) kept(add func(string, state, string, ...any), found []stores.Look) {
	const name = "The store has kept the longest window"
	longest := time.Duration(0)
	lim := w.source.limiter()
	for _, event := range lim.Events() {
		for _, r := range lim.Rules(event) {
			for _, limits := range append(slices.Clip(r.Plans), r.Limits, r.ElseLimits) {
				for _, per := range limits.Windows() {
					longest = max(longest, per)
				}
			}
		}
	}
	is, why := holds, fmt.Sprintf("Every server has been up for longer than %s.", dur.Format(longest))
	for _, f := range found {
		up := uptime(f)
		switch state := w.servers[f.Name]; {
		case is == broken:
		case state.replaced:
			is, why = broken, fmt.Sprintf("Another server has taken the place of %s while this page was open: hits that had not reached it are forgiven.", f.Name)
		case state.restarts > 0 && f.Facts["aof_enabled"] != "1":
			is, why = broken, fmt.Sprintf("%s was restarted while this page was open: earlier hits are forgiven.", f.Name)
		case f.Err != nil || len(f.Facts) == 0:
			is, why = unknown, fmt.Sprintf("The age of %s is not known.", f.Name)
		case f.Evicted > state.evicted:
			is, why = broken, fmt.Sprintf("%s has evicted %d while this page was open: these hits are forgiven.", f.Name, f.Evicted-state.evicted)
		case up < longest:
			is, why = unknown, fmt.Sprintf("%s has been up for %s, less than the longest window of %s: hits from before a restart are forgiven.", f.Name, text.Roughly(up), dur.Format(longest))
		}
	}
	add(name, is, "%s", why)
}

// alike judges whether the service counts by the rules of this page.
func (w *watch) alike(add func(string, state, string, ...any), st *status) {
	const name = "All callers count alike"
	if w.source.file == "" {
		add(name, holds, "One limiter counts, with these rules.")
		return
	}
	if st == nil || st.MoreRules > 0 {
		add(name, unknown, "Rules, ladders, prefix and secret are part of the promise, and no store knows those of its callers. --status compares the rules of a service.")
		return
	}
	lim := w.source.limiter()
	here, there := map[string]bool{}, map[string]bool{}
	for _, event := range lim.Events() {
		for _, r := range lim.Rules(event) {
			here[fmt.Sprintf("%q by %q: %s", r.Event, r.Kind, r.Limits)+soft(r.Soft)+", ladder "+r.Ladder.String()] = true
		}
	}
	for _, r := range st.Rules {
		there[fmt.Sprintf("%q by %q: %s", r.Event, r.Kind, r.Limits)+soft(r.Soft)+", ladder "+r.Ladder] = true
	}
	var other []string
	for rule := range there {
		if !here[rule] {
			other = append(other, "the service has "+rule)
		}
	}
	for rule := range here {
		if !there[rule] {
			other = append(other, "only the file has "+rule)
		}
	}
	slices.Sort(other)
	slices.Reverse(other)
	switch {
	case len(other) > 0:
		add(name, broken, "The rules differ: %s.", strings.Join(other[:min(2, len(other))], "; "))
	case st.Skew != lim.Counter().Config().Skew:
		add(name, broken, "The service has a Skew of %s, and this page --skew %s.", dur.Format(st.Skew), dur.Format(lim.Counter().Config().Skew))
	default:
		add(name, holds, "The service has the rules, the ladders and the Skew of this page. Its prefix and its secret are not known.")
	}
}

func soft(is bool) string {
	if is {
		return " (soft)"
	}
	return ""
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
