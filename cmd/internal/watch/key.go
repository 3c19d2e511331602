package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/rods"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// Key is what a store has of a key, or the fault of the question.
type Key struct {
	Fault    string     `json:"fault,omitempty"` // instead of the rest
	Again    bool       `json:"again,omitempty"` // another question may do: the store has failed
	Event    string     `json:"event"`
	Feature  string     `json:"feature"`
	Limits   []KeyLimit `json:"limits"`
	Banned   string     `json:"banned,omitempty"`
	Override string     `json:"override,omitempty"`
	Windows  []string   `json:"windows"` // to choose, the longest first
	Window   string     `json:"window"`  // of the rods
	Rods     *rods.View `json:"rods"`
	Max      int64      `json:"max"` // of the window's limit
}

// KeyLimit is the state of a key under a limit.
type KeyLimit struct {
	Limit      string  `json:"limit"`
	Low        int64   `json:"low"`
	Used       int64   `json:"used"`
	Room       int64   `json:"room"`
	Wait       string  `json:"wait,omitempty"` // until there is room
	RetryAfter float64 `json:"retryAfter"`     // the same in milliseconds; 0: there is room
}

// Keys looks at the keys of features, with the rods of a window: of one by name, or the
// shortest, or else the longest.
func Keys(ctx context.Context, lim *limiter.Limiter, event, window string, features ...feature.Feature) (all []*Key, err error) {
	usages, err := lim.Usage(ctx, event, features...)
	if err != nil {
		return nil, err
	}
	rules := lim.Rules(event)
	for _, u := range usages {
		k := &Key{Event: event, Feature: text.Clean(u.Key.Feature, maxShown), Banned: text.Rest(u.Banned)}
		rule := rules[slices.IndexFunc(rules, func(r limiter.Rule) bool { return r.Kind == u.Kind || r.Else == u.Kind })]
		limits := rule.Limits
		if rule.Kind != u.Kind {
			limits = rule.ElseLimits
		}
		for _, l := range u.Limits {
			row := KeyLimit{Limit: l.Limit.String(), Low: l.Count.Low, Used: l.Count.High, Room: l.Remaining, Wait: text.Rest(l.RetryAfter), RetryAfter: float64(l.RetryAfter) / float64(time.Millisecond)}
			k.Limits = append(k.Limits, row)
		}
		if u.Override != nil {
			k.Override = shown(u.Override.String())
		}
		count, err := lim.Counter().With(rule.Ladder, rule.Former) // the key is counted on the rule's own ladder
		if err != nil {
			return nil, err
		}
		if k.Rods, err = rods.Look(ctx, count, u.Key, k.choose(limits, window, count.Config())); err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// choose chooses the window of the rods: of a limit by the calendar the period so far, of
// which rods.Look shows Skew more.
func (k *Key) choose(limits counter.Limits, window string, cfg counter.Config) (chosen time.Duration) {
	for _, l := range slices.SortedFunc(slices.Values(limits), func(a, b counter.Limit) int { return cmp.Compare(b.Window(), a.Window()) }) {
		name, length := cmp.Or(l.Period.String(), dur.Format(l.Per)), l.Per
		if !l.Period.IsZero() {
			now := cfg.Now()
			start, _ := l.Period.Span(now.UnixNano())
			length = max(now.Sub(time.Unix(0, start))-cfg.Skew, tiers.MinWindow)
		}
		if !slices.Contains(k.Windows, name) {
			k.Windows = append(k.Windows, name)
		}
		if chosen == 0 || name == window || window == "shortest" {
			chosen, k.Window, k.Max = length, name, l.Max
		}
	}
	return chosen
}

// key looks at a key. The feature may be personal: it comes in a form, and is in no
// URL and in no log. A fault is part of the answer, since a browser reports every
// other status in its console.
func (w *watch) key(to http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	found, err := w.source.key(ctx, r.PostFormValue("event"), r.PostFormValue("kind"), r.PostFormValue("value"), r.PostFormValue("window"))
	if err != nil {
		found = &Key{Fault: shownError(err), Again: errors.Is(err, counter.ErrStore) || ctx.Err() != nil}
	}
	to.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(to).Encode(found) // an error is a client that hung up
}

func (s *Source) key(ctx context.Context, event, kind, value, window string) (*Key, error) {
	lim := s.limiter()
	all := lim.Rules(event)
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("event: got %q, want one of %s", event, words.List(lim.Events()))
	case kind == "" || !slices.ContainsFunc(all, func(r limiter.Rule) bool { return r.Kind == kind || r.Else == kind }):
		return nil, fmt.Errorf("kind: got %q, want a kind of a rule of %s", kind, event)
	case strings.TrimSpace(value) == "":
		return nil, fmt.Errorf("value: empty, want a feature of kind %s, such as %s", kind, cmp.Or(map[string]string{feature.KindIP: "203.0.113.9", feature.KindEmail: "ada@example.org", feature.KindDomain: "example.org"}[kind], "17"))
	}
	f := text.Feature(kind, strings.TrimSpace(value), s.bits[0], s.bits[1])
	if f.Err() != nil {
		return nil, f.Err()
	}
	keys, err := Keys(ctx, lim, event, window, f)
	if err != nil {
		return nil, err
	}
	return keys[0], nil
}
