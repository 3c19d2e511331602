package httplimit

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

const (
	statusKeys = 20    // denied most
	statusRows = 1_000 // of rules, and of decisions
)

// Status returns a handler of a page for the people on call: the rules of lim, the
// decisions by rule and outcome and the twenty most denied keys (both with
// limiter.Config.Tally), and the numbers of limiter.Stats and counter.Stats. A
// request that prefers application/json to text/plain gets JSON with durations in
// nanoseconds. The page asks no server, has a bounded length, and is not to be
// cached.
//
// THE HANDLER HAS NO LOG-IN. Everybody who reaches the page reads the limits and
// the denied keys: without a counter.Config.Secret, addresses of visitors. Mount
// the page behind a log-in of your own, or on a listener out of reach from outside;
// never beside the public routes.
func Status(lim *limiter.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			Problem{Title: http.StatusText(http.StatusMethodNotAllowed), Status: http.StatusMethodNotAllowed}.ServeHTTP(w, r)
			return
		}
		s := statusOf(lim)
		h.Set("Vary", "Accept")
		if accept := r.Header.Values("Accept"); quality(accept, "application", "json") > quality(accept, "text", "plain") {
			h.Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(s) // an error is a client that hung up
			return
		}
		h.Set("Content-Type", "text/plain; charset=utf-8")
		s.writeText(w)
	})
}

type status struct {
	At            time.Time        `json:"at"`
	Rules         []statusRule     `json:"rules"`
	MoreRules     int              `json:"more_rules,omitempty"` // that are left out
	Tallied       bool             `json:"tallied"`              // the next five are counted
	Since         time.Time        `json:"since,omitzero"`
	Decisions     []statusDecision `json:"decisions"`
	MoreDecisions int              `json:"more_decisions,omitempty"`
	DeniedSince   time.Time        `json:"denied_since,omitzero"`
	MostDenied    []statusKey      `json:"most_denied"`
	Skew          time.Duration    `json:"skew"`
	Limiter       limiter.Stats    `json:"limiter"`
	Counter       counter.Stats    `json:"counter"`
}

// statusRule is a rule without the parts that may be secret, such as Former.
type statusRule struct {
	Event      string            `json:"event"`
	Kind       string            `json:"kind"`
	Limits     counter.Limits    `json:"limits"`
	Else       string            `json:"else,omitempty"`
	ElseLimits counter.Limits    `json:"else_limits,omitempty"`
	Ban        time.Duration     `json:"ban,omitempty"`
	Ladder     string            `json:"ladder"`
	Soft       bool              `json:"soft,omitempty"`
	Percent    int               `json:"percent,omitempty"`
	Overrides  int               `json:"overrides,omitempty"` // their number: values are personal
	OnFailure  limiter.OnFailure `json:"on_failure"`
	IfMissing  limiter.IfMissing `json:"if_missing"`
}

type statusDecision struct {
	Event   string          `json:"event"`
	Kind    string          `json:"kind"`
	Outcome limiter.Outcome `json:"outcome"`
	Count   int64           `json:"count"`
}

type statusKey struct {
	Event   string `json:"event"`
	Kind    string `json:"kind"`
	Feature string `json:"feature"` // or its digest
	AtLeast int64  `json:"at_least"`
	AtMost  int64  `json:"at_most"`
}

func statusOf(lim *limiter.Limiter) status {
	tally, c := lim.Tally(statusKeys), lim.Counter()
	s := status{
		At:          c.Config().Now(),
		Rules:       []statusRule{}, // in JSON [], not null
		Tallied:     !tally.Since.IsZero(),
		Since:       tally.Since,
		Decisions:   []statusDecision{},
		DeniedSince: tally.DeniedSince,
		MostDenied:  []statusKey{},
		Skew:        c.Config().Skew,
		Limiter:     lim.Stats(),
		Counter:     c.Stats(),
	}
	for _, event := range lim.Events() {
		for _, r := range lim.Rules(event) {
			if len(s.Rules) == statusRows {
				s.MoreRules++
				continue
			}
			s.Rules = append(s.Rules, statusRule{r.Event, r.Kind, r.Limits, r.Else, r.ElseLimits, r.Ban, r.Ladder.String(), r.Soft, r.Percent, len(r.Overrides), r.OnFailure, r.IfMissing})
		}
	}
	for i, d := range tally.Decisions {
		if i == statusRows {
			s.MoreDecisions = len(tally.Decisions) - i
			break
		}
		s.Decisions = append(s.Decisions, statusDecision(d))
	}
	for _, k := range tally.MostDenied {
		s.MostDenied = append(s.MostDenied, statusKey{k.Key.Event, k.Kind, k.Key.Feature, k.Denied.Low, k.Denied.High})
	}
	return s
}

// writeText writes s for people. Features are quoted, since they may hold the
// codes that steer a terminal.
func (s *status) writeText(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	defer w.Flush()
	s.writeRules(w)
	if s.Tallied {
		s.writeDecisions(w)
	} else {
		fmt.Fprint(w, "\nDecisions are not counted: limiter.Config.Tally is false\n")
	}
	writeStats(w, s.Limiter)
	writeStats(w, s.Counter)
	fmt.Fprintf(w, "\nSkew\t%s\n", s.Skew)
}

func (s *status) writeRules(w io.Writer) {
	fmt.Fprintf(w, "Rules, %s\n", s.At.Format(time.RFC3339))
	for _, r := range s.Rules {
		fmt.Fprintf(w, "%q by %q\t%s\t%s\tif missing: %s", r.Event, r.Kind, r.Limits, r.OnFailure, r.IfMissing)
		if r.Else != "" {
			fmt.Fprintf(w, "\telse %q: %s", r.Else, r.ElseLimits)
		}
		if r.Ban > 0 {
			fmt.Fprintf(w, "\tban: %s", r.Ban)
		}
		if r.Soft {
			fmt.Fprintf(w, "\tsoft, %d %% enforced", r.Percent)
		}
		if r.Overrides > 0 {
			fmt.Fprintf(w, "\t%d overrides", r.Overrides)
		}
		fmt.Fprintln(w)
	}
	writeMore(w, s.MoreRules)
}

func (s *status) writeDecisions(w io.Writer) {
	fmt.Fprintf(w, "\nDecisions since %s\n", s.Since.Format(time.RFC3339))
	for _, d := range s.Decisions {
		name := strconv.Quote(d.Event)
		if d.Kind != "" {
			name += " by " + strconv.Quote(d.Kind)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\n", name, d.Outcome, d.Count)
	}
	writeMore(w, s.MoreDecisions)
	fmt.Fprintf(w, "\nDenied most since %s\n", s.DeniedSince.Format(time.RFC3339))
	for _, k := range s.MostDenied {
		n := strconv.FormatInt(k.AtMost, 10)
		if k.AtLeast < k.AtMost {
			n = fmt.Sprintf("%d to %d", k.AtLeast, k.AtMost)
		}
		fmt.Fprintf(w, "%q by %q\t%q\t%s\n", k.Event, k.Kind, k.Feature, n)
	}
}

func writeMore(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "and %d more\n", n)
	}
}

// writeStats writes the fields of a Stats under the name of its package.
func writeStats(w io.Writer, stats any) {
	v := reflect.ValueOf(stats)
	fmt.Fprintf(w, "\n%s.Stats\n", v.Type().PkgPath()[strings.LastIndexByte(v.Type().PkgPath(), '/')+1:])
	for i := range v.NumField() {
		value := v.Field(i).Interface()
		if at, is := value.(time.Time); is {
			if value = "never"; !at.IsZero() {
				value = at.Format(time.RFC3339)
			}
		}
		fmt.Fprintf(w, "%s\t%v\n", v.Type().Field(i).Name, value)
	}
}

// quality is the weight of a media type by the fields of Accept: that of the most
// specific range. See RFC 9110, section 12.5.1.
func quality(accept []string, major, minor string) float64 {
	if len(accept) == 0 {
		return 1
	}
	best, weight := 0, 0.0
	for _, part := range strings.Split(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		specific := map[string]int{"*/*": 1, major + "/*": 2, major + "/" + minor: 3}[media]
		if specific <= best {
			continue
		}
		best, weight = specific, 1
		if q, has := params["q"]; has {
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				weight = 0
			}
		}
	}
	return weight
}
