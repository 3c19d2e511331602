// Package watch is a page that looks at a store while somebody looks at the page: its
// servers, the conditions of the promise, the decisions of a service, and keys by name.
// It writes nothing to the store.
package watch

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/cmd/internal/check"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/cmd/internal/web"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

const (
	// lookEvery is the time between two looks at the store and the service.
	lookEvery = time.Second

	lastLooks = 300 // of the charts: five minutes
	lastTrips = 60  // of the median and the worst: a minute
	maxDenied = 10  // rows of keys
	maxRules  = 1000
	maxShown  = 120 // characters of a name
)

// watch looks at a source while a page is open.
type watch struct {
	source *Source
	ctx    context.Context // ends the looks

	mu       sync.Mutex // of a look
	last     *look
	lastAt   time.Time
	past     []moment
	servers  map[string]*serverState
	previous *status
	asked    time.Time // when previous was asked
	service  since
	begins   int
	failed   struct {
		since, at time.Time
		n         int64
	}
}

// look is the state of all that is watched.
type look struct {
	moment
	Servers    []serverLook `json:"servers"`
	Service    *serviceLook `json:"service,omitempty"` // nil: not asked
	Conditions []condition  `json:"conditions"`

	rules ruleList
}

// moment is a point of the charts.
type moment struct {
	At    int64              `json:"at"`              // milliseconds since the Unix epoch
	Trip  *float64           `json:"trip"`            // milliseconds, of the slowest server; nil: a server did not answer
	Rates map[string]float64 `json:"rates,omitempty"` // decisions a second by outcome; empty: not known
}

// since is a state that lasts.
type since struct {
	fault string
	at    time.Time
}

// now notes the state of now, and tells since when it lasts.
func (s *since) now(at time.Time, fault string) int64 {
	if s.at.IsZero() || (s.fault == "") != (fault == "") {
		s.at = at
	}
	s.fault = fault
	return s.at.UnixMilli()
}

type serverState struct {
	since
	trips    []time.Duration // the newest last
	run      string
	seen     time.Time // when run was last seen
	restarts int
	replaced bool  // by a server that was up before: a failover
	evicted  int64 // when the watch began
}

type serverLook struct {
	Name    string   `json:"name"`
	Fault   string   `json:"fault,omitempty"`
	Since   int64    `json:"since"`
	Version string   `json:"version"`
	Trips   []string `json:"trips,omitempty"` // the last, the median and the worst of a minute
	Clock   string   `json:"clock"`
	Facts   []string `json:"facts"` // what it says of its memory, its part and its age
}

type serviceLook struct {
	Fault    string           `json:"fault,omitempty"`
	Since    int64            `json:"since"`
	Tallied  bool             `json:"tallied"`
	Counted  int64            `json:"counted,omitempty"` // since when decisions are counted
	Begins   int              `json:"begins"`            // times that the totals began anew
	Outcomes map[string]int64 `json:"outcomes"`
	Denied   []deniedRow      `json:"denied"`
	DeniedAt int64            `json:"denied_since,omitempty"`
	Limiter  limiter.Stats    `json:"limiter"`
	Counter  counter.Stats    `json:"counter"`
}

type deniedRow struct {
	Event   string `json:"event"`
	Kind    string `json:"kind"`
	Feature string `json:"feature"`
	Text    string `json:"text,omitempty"` // of the feature, to look for; empty: a digest
	AtLeast int64  `json:"at_least"`
	AtMost  int64  `json:"at_most"`
}

// ruleList is the rules, and the faults of their file.
type ruleList struct {
	Rules  []ruleRow `json:"rules"`
	More   int       `json:"more,omitempty"`
	Faults []string  `json:"faults,omitempty"` // of the file; Rules are then of an earlier file
}

type ruleRow struct {
	Event  string   `json:"event"`
	Kind   string   `json:"kind"`
	Else   string   `json:"else,omitempty"`
	Limits string   `json:"limits"`
	Notes  []string `json:"notes,omitempty"`
	Ladder string   `json:"ladder"`
	Policy string   `json:"policy"`
}

//go:embed pages
var files embed.FS

// Page is the page of the watch, to be shown by Add.
var Page = web.Page{Name: "watch", Path: "/watch", Link: "Watch a store", Files: files, Charts: true}

// Add adds the watch to a site, until ctx is done.
func (s *Source) Add(ctx context.Context, to *web.Site) {
	to.Handle("GET "+Page.Path, func(w http.ResponseWriter, r *http.Request) {
		to.Show(w, http.StatusOK, Page.Name, Page.Link, struct{ Store, File, Status string }{s.store, s.file, s.status})
	})
	w := &watch{source: s, ctx: ctx, servers: map[string]*serverState{}}
	to.Handle("GET /watch/looks", func(answer http.ResponseWriter, r *http.Request) {
		if out, is := to.Begin(answer, r); is {
			defer out.Close()
			w.stream(out)
		}
	})
	to.Handle("POST /watch/key", w.key)
}

// stream sends what was seen until now, and then each look.
func (w *watch) stream(out *web.Stream) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w.mu.Lock()
	past := append([]moment{}, w.past...)
	w.mu.Unlock()
	err := out.Send("past", past)
	for rules := ""; err == nil; {
		last := w.next()
		if now := fmt.Sprint(last.rules); now != rules {
			rules = now
			err = out.Send("rules", last.rules)
		}
		if err == nil {
			err = out.Send("look", last)
		}
		select {
		case <-tick.C:
		case <-out.Context().Done():
			return
		}
	}
}

// next is the look of now, which may be another page's: all pages share one row of looks,
// each of which begins after the end of the one before.
func (w *watch) next() *look {
	w.mu.Lock()
	defer w.mu.Unlock()
	passed := time.Since(w.lastAt)
	if w.last != nil && passed < lookEvery*9/10 {
		return w.last
	}
	if passed > 3*lookEvery {
		w.previous = nil // a rate over a time without a look would be a mean of long ago
	}
	w.last = w.look(w.ctx)
	w.lastAt = time.Now()
	w.past = append(w.past, w.last.moment)
	w.past = w.past[max(0, len(w.past)-lastLooks):]
	return w.last
}

// look asks the store and the service, side by side.
func (w *watch) look(ctx context.Context) *look {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var found []stores.Look
	var st *status
	var fault error
	asked := time.Now()
	var wait sync.WaitGroup
	if w.source.servers != nil {
		wait.Go(func() { found = w.source.servers(ctx) })
	}
	if w.source.ask != nil {
		wait.Go(func() { st, fault = w.source.ask(ctx) })
	}
	wait.Wait()
	l := &look{moment: moment{At: asked.UnixMilli()}, Servers: []serverLook{}, rules: w.source.rules()}
	w.lookAtServers(l, asked, found)
	if w.source.ask != nil {
		w.lookAtService(l, asked, st, fault)
	}
	l.Conditions = w.conditions(found, st)
	return l
}

func (w *watch) lookAtServers(l *look, now time.Time, found []stores.Look) {
	var slowest time.Duration
	all := len(found) > 0
	seen := map[string]bool{}
	for _, f := range found {
		seen[f.Name] = true
		state := w.servers[f.Name]
		if state == nil {
			state = &serverState{run: f.Run, evicted: f.Evicted}
			w.servers[f.Name] = state
		}
		row := serverLook{Name: shown(f.Name), Version: shown(cmp.Or(f.Facts["redis_version"], f.Facts["version"])), Facts: []string{}}
		if f.Err != nil {
			row.Fault, all = shownError(f.Err), false
		} else {
			if state.run != "" && f.Run != "" && state.run != f.Run {
				state.restarts++
				state.replaced = state.replaced || uptime(f) > now.Sub(state.seen)
				state.evicted = 0
			}
			state.run, state.seen = cmp.Or(f.Run, state.run), now
			state.trips = append(state.trips, f.RoundTrip)
			state.trips = state.trips[max(0, len(state.trips)-lastTrips):]
			slowest = max(slowest, f.RoundTrip)
			sorted := slices.Sorted(slices.Values(state.trips))
			for _, trip := range []time.Duration{f.RoundTrip, sorted[len(sorted)/2], sorted[len(sorted)-1]} {
				row.Trips = append(row.Trips, trip.Round(10*time.Microsecond).String())
			}
			row.Clock = f.Clock()
			for _, r := range check.Setup(w.source.kind, []backend.Server{f.Server}) {
				row.Facts = append(row.Facts, text.Clean(r.Seen, maxShown))
			}
		}
		row.Since = state.now(now, row.Fault)
		l.Servers = append(l.Servers, row)
	}
	for name := range w.servers {
		if !seen[name] {
			delete(w.servers, name)
		}
	}
	if all {
		trip := float64(slowest.Microseconds()) / 1e3
		l.Trip = &trip
	}
}

func (w *watch) lookAtService(l *look, now time.Time, st *status, fault error) {
	row := &serviceLook{Outcomes: map[string]int64{}, Denied: []deniedRow{}}
	if fault != nil {
		row.Fault = shownError(fault)
	}
	row.Since, row.Begins, l.Service = w.service.now(now, row.Fault), w.begins, row
	if fault != nil {
		return
	}
	if w.previous != nil {
		l.Rates = rates(w.previous, st, now.Sub(w.asked))
		if l.Rates == nil && st.Tallied {
			w.begins++
			row.Begins = w.begins
		}
	}
	w.previous, w.asked = st, now
	if row.Tallied = st.Tallied; st.Tallied {
		row.Counted, row.DeniedAt = st.Since.UnixMilli(), st.DeniedSince.UnixMilli()
	}
	for outcome, total := range st.totals {
		row.Outcomes[outcome.String()] = total
	}
	row.Limiter, row.Counter = st.Limiter, st.Counter
	for _, k := range st.MostDenied[:min(len(st.MostDenied), maxDenied)] {
		d := deniedRow{Event: shown(k.Event), Kind: shown(k.Kind), Feature: shown(k.Feature), AtLeast: k.AtLeast, AtMost: k.AtMost}
		if value, is := strings.CutPrefix(k.Feature, k.Kind+":"); is && d.Feature == k.Feature {
			d.Text = value
		}
		row.Denied = append(row.Denied, d)
	}
}

// rates are the decisions a second between two statuses of one life of a service; nil
// if the totals have begun anew in between, or are not counted.
func rates(before, now *status, passed time.Duration) map[string]float64 {
	if !before.Tallied || !now.Tallied || !before.Since.Equal(now.Since) || passed <= 0 {
		return nil
	}
	all := map[string]float64{}
	for outcome, total := range now.totals {
		all[outcome.String()] = float64(total-before.totals[outcome]) / passed.Seconds()
	}
	for outcome, total := range before.totals {
		if now.totals[outcome] < total {
			return nil
		}
	}
	return all
}

// rules lists the rules of now.
func (s *Source) rules() ruleList {
	lim := s.limiter()
	list := ruleList{Rules: []ruleRow{}}
	for _, event := range lim.Events() {
		for _, r := range lim.Rules(event) {
			if len(list.Rules) == maxRules {
				list.More++
				continue
			}
			row := ruleRow{r.Event, r.Kind, r.Else, r.Limits.String(), nil, r.Ladder.String(), fmt.Sprintf("%s; without the feature: %s", r.OnFailure, r.IfMissing)}
			note := func(is bool, format string, args ...any) {
				if is {
					row.Notes = append(row.Notes, shown(fmt.Sprintf(format, args...)))
				}
			}
			note(r.Soft && r.Percent == 0, "soft: denies nobody")
			note(r.Soft && r.Percent > 0, "soft: denies %d %% of the features", r.Percent)
			note(r.Else != "", "without %s by %s: %s", r.Kind, r.Else, r.ElseLimits)
			note(len(r.Ban) > 0, "a denial bans for %s", r.Ban)
			note(len(r.Plans) > 0, "plans: %s", strings.Trim(fmt.Sprint(r.Plans), "[]"))
			note(len(r.Overrides) > 0, "%d overrides", len(r.Overrides))
			note(r.Former != nil, "counts by the former ladder, too")
			list.Rules = append(list.Rules, row)
		}
	}
	if err := s.rulesFault(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			list.Faults = append(list.Faults, text.Clean(line, 300))
		}
		list.Faults = list.Faults[:min(len(list.Faults), 50)]
	}
	return list
}

// shown is a name for a page: whoever sends a request may have chosen it.
func shown(name string) string { return text.Clean(name, maxShown) }

func shownError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %s", patience)
	}
	return text.Clean(err.Error(), 300)
}

// uptime is 0 if it is not known.
func uptime(l stores.Look) time.Duration {
	seconds, _ := strconv.ParseInt(cmp.Or(l.Facts["uptime"], l.Facts["uptime_in_seconds"]), 10, 64)
	return time.Duration(seconds) * time.Second
}
