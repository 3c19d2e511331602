package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// Report sums up the findings of some [Checker]s so far.
type Report struct {
	Calls [Kinds][Done + 1]int64 // by kind and outcome

	Labels      int64 // rule 1: labels that were looked at
	Mislabelled int64 // labels outside of their calls
	Windows     int64 // rule 2: windows that were looked at, the fullest for each admitted hit, limit and axis
	Full        int64 // windows with exactly Max hits
	Over        int64 // windows with more hits than Max and the losses in the window explain

	Lossy, LossyOver   int64 // windows that contain a loss of the store, and among them windows above Max
	HalfForgotten      int64 // windows that held more than Max, by a taking back of what was not there any more
	Beyond, BeyondOver int64 // windows within reach of a clock beyond the skew, and among them windows above Max

	Seen, Unseen             int64 // rule 3: counts that were checked, and counts that were too low
	BeyondSeen, BeyondDenied int64 // what rules 3 and 4 passed over for a clock beyond the skew

	Reasons [Reasons]int64 // rule 4: denials by reason
	Left    int64          // denials by what a loss of parts has left of a key

	Findings []Finding // the first findings; Bad counts all
	Bad      int64
}

// maxFindings bounds the findings of a rule that are kept.
const maxFindings = 4

// Finding is a break of a rule.
type Finding struct {
	Rule  int
	Key   string
	Limit counter.Limit // zero for rule 1
	What  string
	Story string // what happened to the key around it, one call a line
}

func (f *Finding) String() string {
	return fmt.Sprintf("rule %d, key %s, limit %s: %s\n%s", f.Rule, f.Key, f.Limit, f.What, f.Story)
}

// Held is the number of windows without a loss and without a clock beyond the skew.
func (r *Report) Held() int64 { return r.Windows - r.Lossy - r.Beyond }

// Denials is the number of denials that rule 4 looked at.
func (r *Report) Denials() (n int64) {
	for _, of := range r.Reasons {
		n += of
	}
	return n
}

// Wrong is the number of denials without a reason.
func (r *Report) Wrong() int64 { return r.Reasons[None] }

// Unjudged is the number of counts and denials that rules 3 and 4 passed over.
func (r *Report) Unjudged() int64 { return r.BeyondSeen + r.BeyondDenied }

func (r *Report) count(call *Call) { r.Calls[call.Kind][call.Outcome]++ }

// find notes a break of a rule by the call r.
func (c *Checker) find(rule int, key string, limit counter.Limit, r *record, what string) {
	c.Report.Bad++
	if c.found[rule]++; c.found[rule] > maxFindings {
		return
	}
	f := Finding{Rule: rule, Key: key, Limit: limit, What: what}
	if r.Outcome != Denied {
		f.Story = c.story(key, limit, r)
	} else {
		for _, ask := range r.Asks { // any of them could be the reason
			f.Story += fmt.Sprintf("%s under %s:\n%s", ask.Key, counter.Limits(ask.Limits), c.story(ask.Key, longest(ask.Limits), r))
		}
	}
	c.Report.Findings = append(c.Report.Findings, f)
}

// longest is the limit with the longest window.
func longest(limits []counter.Limit) counter.Limit {
	return slices.MaxFunc(limits, func(a, b counter.Limit) int { return cmp.Compare(a.Per, b.Per) })
}

// maxStory bounds the calls of a story.
const maxStory = 40

// story tells the last calls of key up to r, times being seconds before r ended.
func (c *Checker) story(name string, limit counter.Limit, r *record) string {
	k := c.key(name)
	since := r.Ended - int64(c.length(limit)+c.beyond(max(c.length(limit), c.cfg.Ladder.At(0).Width))+c.cfg.Remember)
	var calls []*hit
	for _, call := range slices.Concat(k.calls, k.forgets) {
		if call.Outcome == Denied && r.Outcome != Denied {
			continue // it explains no count
		}
		if call.Ended >= since && call.Began <= r.Ended {
			calls = append(calls, call)
		}
	}
	if !slices.ContainsFunc(calls, func(h *hit) bool { return h.record == r }) {
		calls = append(calls, newHit(r))
	}
	sort.SliceStable(calls, func(i, j int) bool { return calls[i].Ended < calls[j].Ended })
	var b strings.Builder
	if n := len(calls) - maxStory; n > 0 {
		fmt.Fprintf(&b, "  (%d calls before)\n", n)
		calls = calls[n:]
	}
	for _, f := range slices.Concat(c.faults, k.losses) {
		if f.To >= since && f.From <= r.Ended {
			fmt.Fprintf(&b, "  %s .. %s %s\n", seconds(f.From-r.Ended), seconds(f.To-r.Ended), f.Name)
		}
	}
	for _, call := range calls {
		mark := " "
		if call.record == r {
			mark = ">"
		}
		fmt.Fprintf(&b, "%s %s\n", mark, call.line(name, r.Ended))
	}
	return b.String()
}

// KindNames are the names of the kinds of calls.
var KindNames = [Kinds]string{"Take", "Peek", "Add", "Count", "Refund", "Forget"}

var outcomeNames = [Done + 1]string{"killed", "failed", "denied", "ok"}

func (k Kind) String() string    { return KindNames[k] }
func (o Outcome) String() string { return outcomeNames[o] }

// line tells h as it concerns a key, times being seconds before an instant.
func (h *hit) line(key string, end int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s .. %s  process %d caller %d  %s %d %s", seconds(h.Began-end), seconds(h.Ended-end), h.Process, h.Caller, h.Kind, h.N, h.Outcome)
	i := 0 // of Remaining
	for _, ask := range h.Asks {
		if ask.Key == key && len(ask.Limits) > 0 {
			fmt.Fprintf(&b, " under %s", counter.Limits(ask.Limits))
			if i+len(ask.Limits) <= len(h.Remaining) {
				fmt.Fprintf(&b, " remaining %v", h.Remaining[i:i+len(ask.Limits)])
			}
		}
		i += len(ask.Limits)
	}
	if len(h.Asks) > 1 {
		fmt.Fprintf(&b, " with %d more keys", len(h.Asks)-1)
	}
	if h.admitted() {
		fmt.Fprintf(&b, " label %s", seconds(h.Label-end))
		if h.True != h.Label {
			fmt.Fprintf(&b, " read %s", seconds(h.True-end))
		}
	}
	if h.Kind == Count {
		fmt.Fprintf(&b, " at most %d", h.High)
	}
	if h.goneAt() != far {
		fmt.Fprintf(&b, " given back %s", seconds(h.goneAt()-end))
	}
	if h.lost != far {
		fmt.Fprintf(&b, " lost %s", seconds(h.lost-end))
	}
	if h.Beyond {
		b.WriteString(" clock beyond")
	}
	if h.Error != "" {
		fmt.Fprintf(&b, " (%.80s)", h.Error)
	}
	return b.String()
}

func seconds(ns int64) string { return fmt.Sprintf("%+.4f", time.Duration(ns).Seconds()) }
