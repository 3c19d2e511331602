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
	"github.com/abacus-go/abacus/limiter"
)

// keyLook is a key by name.
type keyLook struct {
	Fault    string     `json:"fault,omitempty"` // instead of the rest
	Again    bool       `json:"again,omitempty"` // another question may do: the store has failed
	Feature  string     `json:"feature"`
	Ladder   string     `json:"ladder"`
	Limits   []limitRow `json:"limits"`
	Banned   string     `json:"banned,omitempty"`
	Override string     `json:"override,omitempty"`
	Windows  []string   `json:"windows"` // to choose, the longest first
	Window   string     `json:"window"`  // of the rods
	Rods     *rods.View `json:"rods"`
	Max      int64      `json:"max"` // of the window's limit
}

type limitRow struct {
	Limit string `json:"limit"`
	Low   int64  `json:"low"`
	Used  int64  `json:"used"`
	Room  int64  `json:"room"`
	Wait  string `json:"wait,omitempty"` // until there is room
}

// key looks at a key. The feature may be personal: it comes in a form, and is in no
// URL and in no log. A fault is part of the answer, since a browser reports every
// other status in its console.
func (w *watch) key(to http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	found, err := w.source.key(ctx, r.PostFormValue("event"), r.PostFormValue("kind"), r.PostFormValue("value"), r.PostFormValue("window"))
	if err != nil {
		found = &keyLook{Fault: shownError(err), Again: errors.Is(err, counter.ErrStore) || ctx.Err() != nil}
	}
	to.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(to).Encode(found) // an error is a client that hung up
}

func (s *Source) key(ctx context.Context, event, kind, value, window string) (*keyLook, error) {
	lim := s.limiter()
	all := lim.Rules(event)
	i := slices.IndexFunc(all, func(r limiter.Rule) bool { return r.Kind == kind || r.Else == kind && kind != "" })
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("event: got %q, want one of %s", event, text.List(lim.Events()))
	case i < 0:
		return nil, fmt.Errorf("kind: got %q, want a kind of a rule of %s", kind, event)
	case strings.TrimSpace(value) == "":
		return nil, fmt.Errorf("value: empty, want a feature of kind %s, such as %s", kind, cmp.Or(map[string]string{feature.KindIP: "203.0.113.9", feature.KindEmail: "ada@example.org", feature.KindDomain: "example.org"}[kind], "17"))
	}
	f := text.Feature(kind, strings.TrimSpace(value), s.bits[0], s.bits[1])
	if f.Err() != nil {
		return nil, f.Err()
	}
	usages, err := lim.Usage(ctx, event, f)
	if err != nil {
		return nil, err
	}
	rule, usage := all[i], usages[0]
	limits := rule.Limits
	if rule.Kind != kind {
		limits = rule.ElseLimits
	}
	k := &keyLook{Feature: text.Clean(usage.Key.Feature, maxShown), Ladder: rule.Ladder.String(), Limits: []limitRow{}}
	for _, u := range usage.Limits {
		row := limitRow{Limit: u.Limit.String(), Low: u.Count.Low, Used: u.Count.High, Room: u.Remaining}
		if u.RetryAfter > 0 {
			row.Wait = text.Rest(u.RetryAfter)
		}
		k.Limits = append(k.Limits, row)
	}
	if usage.Banned > 0 {
		k.Banned = text.Rest(usage.Banned)
	}
	if usage.Override != nil {
		k.Override = shown(usage.Override.String())
	}
	count, err := lim.Counter().With(rule.Ladder, rule.Former)
	if err == nil {
		k.Rods, err = rods.Look(ctx, count, usage.Key, k.choose(limits, window))
	}
	return k, err
}

// choose chooses the window of the rods: the one that is asked for, or the longest.
func (k *keyLook) choose(limits counter.Limits, window string) (chosen time.Duration) {
	for _, l := range slices.SortedFunc(slices.Values(limits), func(a, b counter.Limit) int { return cmp.Compare(b.Per, a.Per) }) {
		name := dur.Format(l.Per)
		if !slices.Contains(k.Windows, name) {
			k.Windows = append(k.Windows, name)
		}
		if chosen == 0 || name == window {
			chosen, k.Window, k.Max = l.Per, name, l.Max
		}
	}
	return chosen
}
