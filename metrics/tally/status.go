package tally

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

// A page has so many most denied keys, and so many rows of rules and of decisions.
const statusKeys, statusRows = 20, 1_000

// Status returns a handler of a page for the people on call: the rules of lim, the
// decisions by rule and outcome and the twenty most denied keys of t, and the numbers
// of limiter.Stats and counter.Stats. With a nil t the page has no decisions and no
// keys. A request that prefers application/json to text/plain gets JSON with
// durations in nanoseconds. The page asks no server, has a bounded length, and is not
// to be cached.
//
// THE HANDLER HAS NO LOG-IN. Everybody who reaches the page reads the limits and
// the denied keys: without a counter.Config.Secret, addresses of visitors. Mount
// the page behind a log-in of your own, or on a listener out of reach from outside;
// never next to the public routes.
func Status(lim *limiter.Limiter, t *Tally) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			h.Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = io.WriteString(w, `{"title":"Method Not Allowed","status":405}`+"\n") // an error is a client that hung up
			return
		}
		s := statusOf(lim, t)
		h.Set("Vary", "Accept")
		if accept := r.Header.Values("Accept"); quality(accept, "application", "json") > quality(accept, "text", "plain") {
			h.Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(s)
			return
		}
		h.Set("Content-Type", "text/plain; charset=utf-8")
		s.writeText(w)
	})
}

type status struct {
	At        time.Time    `json:"at"`
	Rules     []statusRule `json:"rules"`
	MoreRules int          `json:"more_rules,omitempty"` // that are left out
	Tallied   bool         `json:"tallied"`              // the Snapshot is that of a Tally
	Snapshot
	MoreDecisions int           `json:"more_decisions,omitempty"`
	Skew          time.Duration `json:"skew"`
	Limiter       limiter.Stats `json:"limiter"`
	Counter       counter.Stats `json:"counter"`
}

// statusRule is a rule without the parts that may be secret, such as Former.
type statusRule struct {
	Event      string            `json:"event"`
	Kind       string            `json:"kind"`
	Limits     counter.Limits    `json:"limits"`
	Else       string            `json:"else,omitempty"`
	ElseLimits counter.Limits    `json:"else_limits,omitempty"`
	Ban        limiter.Bans      `json:"ban,omitempty"`
	Ladder     string            `json:"ladder"`
	Soft       bool              `json:"soft,omitempty"`
	Percent    int               `json:"percent,omitempty"`
	Overrides  int               `json:"overrides,omitempty"` // their number: values are personal
	OnFailure  limiter.OnFailure `json:"on_failure"`
	IfMissing  limiter.IfMissing `json:"if_missing"`
}

func statusOf(lim *limiter.Limiter, t *Tally) status {
	c := lim.Counter()
	s := status{
		At:       c.Config().Now(),
		Rules:    []statusRule{}, // in JSON [], not null
		Tallied:  t != nil,
		Snapshot: t.Snapshot(statusKeys),
		Skew:     c.Config().Skew,
		Limiter:  lim.Stats(),
		Counter:  c.Stats(),
	}
	for _, event := range lim.Events() {
		for _, r := range lim.Rules(event) {
			s.Rules = append(s.Rules, statusRule{r.Event, r.Kind, r.Limits, r.Else, r.ElseLimits, r.Ban, r.Ladder.String(), r.Soft, r.Percent, len(r.Overrides), r.OnFailure, r.IfMissing})
		}
	}
	s.Rules, s.MoreRules = first(s.Rules)
	s.Decisions, s.MoreDecisions = first(s.Decisions)
	return s
}

// first returns the first of all rows that the page has room for, and how many more
// there are.
func first[Row any](all []Row) (shown []Row, more int) {
	n := min(len(all), statusRows)
	return all[:n], len(all) - n
}

// writeText writes s for people. Features are quoted, since they may hold the
// codes that steer a terminal.
func (s *status) writeText(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	defer w.Flush()
	s.writeRules(w)
	s.writeDecisions(w)
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
		if len(r.Ban) > 0 {
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
	if !s.Tallied {
		fmt.Fprint(w, "\nDecisions are not counted: tally.Status has no Tally\n")
		return
	}
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
	fmt.Fprintf(w, "\n%T\n", stats)
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
func quality(accept []string, major, minor string) (weight float64) {
	if len(accept) == 0 {
		return 1
	}
	specific, best := map[string]int{"*/*": 1, major + "/*": 2, major + "/" + minor: 3}, 0
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil || specific[media] <= best {
			continue
		}
		best, weight = specific[media], 1
		if q, has := params["q"]; has {
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				weight = 0
			}
		}
	}
	return weight
}
