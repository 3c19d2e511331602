package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
)

// rulesReplay is a replay of a log by the rules of a file. Each line of the log is
// a call with one feature; rules by other kinds do not apply to the line.
type rulesReplay struct {
	lim   *limiter.Limiter
	kinds map[string][]string // by event
	now   time.Time
	eventlog.Seen
	Without int64            `json:"without_rules"` // lines of events that have no rules
	Rules   []*replayedRule  `json:"rules"`
	Stopped string           `json:"stopped,omitempty"`
	File    string           `json:"-"` // the log
	By      string           `json:"-"` // the file of the rules
	denied  map[string]int64 // by event and feature
}

// replayedRule is the decisions by a rule.
type replayedRule struct {
	Rule     string `json:"rule"`
	Limits   string `json:"limits"`
	Events   int64  `json:"events"`
	Admitted int64  `json:"admitted"`
	Denied   int64  `json:"denied"`

	event string
	kinds []string // Kind, and Else
}

// newRulesReplay makes the limiter of a file, which counts in memory.
func newRulesReplay(file string, skew time.Duration) (*rulesReplay, error) {
	all, err := cli.Rules(file)
	if err != nil {
		return nil, err
	}
	r := &rulesReplay{kinds: map[string][]string{}, Rules: []*replayedRule{}, By: file, denied: map[string]int64{}}
	for i := range all {
		// Nothing fails here, and a line has one feature.
		all[i].OnFailure, all[i].IfMissing, all[i].Former = limiter.FailClosed, limiter.MissingSkip, nil
		rule := all[i]
		if !rule.Soft {
			row := &replayedRule{Rule: rule.String(), Limits: rule.Limits.String(), event: rule.Event, kinds: []string{rule.Kind}}
			if rule.Else != "" {
				row.kinds = append(row.kinds, rule.Else)
			}
			r.Rules = append(r.Rules, row)
			r.kinds[rule.Event] = append(r.kinds[rule.Event], row.kinds...)
		}
	}
	all = slices.DeleteFunc(all, func(rule limiter.Rule) bool { return rule.Soft })
	if len(all) == 0 {
		return nil, fmt.Errorf("--rules %s: all rules are soft, want one that is enforced", file)
	}
	count, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: cmp.Or(skew, -1), Now: func() time.Time { return r.now }})
	if err != nil {
		return nil, err
	}
	r.lim, err = limiter.New(count, limiter.Config{Rules: all})
	return r, err
}

// decide takes an event of the log.
func (r *rulesReplay) decide(ctx context.Context, e *eventlog.Event) (allowed bool, err error) {
	r.Events++ // and no stamps: nothing is proved
	r.now = e.At
	kinds := r.kinds[e.Event]
	kind, _, _ := strings.Cut(e.Feature, ":")
	given := e.Feature
	switch {
	case len(kinds) == 0:
		r.Without++
		return true, nil
	case slices.Contains(kinds, kind):
	case len(kinds) == 1:
		kind, given = kinds[0], kinds[0]+":"+e.Feature
	default:
		return false, fmt.Errorf("feature %q: event %q has rules by %s, want a kind, a colon and a value", e.Feature, e.Event, words.Quoted(kinds))
	}
	feature, err := text.FeatureOf(counter.Key{Event: e.Event, Feature: given})
	if err != nil {
		return false, err
	}
	verdict, err := r.lim.Allow(ctx, e.Event, feature)
	if err != nil {
		return false, err
	}
	row := r.Rules[slices.IndexFunc(r.Rules, func(row *replayedRule) bool { return row.event == e.Event && slices.Contains(row.kinds, kind) })]
	row.Events++
	if verdict.Allowed {
		row.Admitted++
	} else {
		row.Denied++
		r.denied[e.Event+" of "+given]++
	}
	return verdict.Allowed, nil
}

// runRules replays the log by --rules, and prints the report.
func (c *replayCmd) runRules(e *cli.Env) error {
	if c.Store.Kind != stores.InMemory || c.Ladder.Len() > 0 || c.Grid > 0 {
		return cli.Usagef("--rules: replays rules in memory, each on its ladder, want no --store, --ladder and --grid")
	}
	r, err := newRulesReplay(c.Rules, time.Duration(c.Skew))
	if err != nil {
		return err
	}
	in, err := openInput(c.File, e.Stdin)
	if err != nil {
		return err
	}
	defer in.close()
	out, err := createDecisions(c.Decisions, in)
	if err != nil {
		return err
	}
	r.File = in.name
	bar := e.Progress()
	bar.Show("replay", in.size, true)
	err = c.log(in, bar).Each(e.Ctx, &r.Seen, func(event *eventlog.Event) error {
		allowed, err := r.decide(e.Ctx, event)
		if err != nil {
			return fmt.Errorf("%s: event %d: %w", in.name, r.Events, err)
		}
		return out.decided(*event, allowed)
	})
	bar.Clear()
	if err = cmp.Or(e.Cause(err), out.close()); err != nil {
		r.Stopped = err.Error()
	}
	return cmp.Or(err, e.Print(c.JSON, "rules", r))
}

// denied is a key and its denials.
type denied struct {
	Key    string
	Denied int64
}

// Most is the keys that were denied most, ten at most.
func (r *rulesReplay) Most() (all []denied) {
	for key, n := range r.denied {
		all = append(all, denied{key, n})
	}
	slices.SortFunc(all, func(a, b denied) int { return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Key, b.Key)) })
	return all[:min(len(all), 10)]
}
