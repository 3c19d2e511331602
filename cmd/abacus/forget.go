package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

type forgetCmd struct {
	Event    string   `arg:"" help:"The event of the keys, such as login."`
	Features []string `arg:"" help:"The features, such as email:ada@example.org ip:203.0.113.9."`
	Terms    terms    `embed:""`
	Keys     keys     `embed:""`
}

// Help is the part of --help that follows the summary.
func (*forgetCmd) Help() string {
	return `All limits of the features begin again for the event, and bans end. It asks nothing, and prints what was counted. A program that runs knows within a second; its local counters, of rules under FailLocal, keep the hits.

` + keysHelp + `

` + cli.StoreHelp + `

Examples:

    abacus forget --rules rules.yaml --store redis://127.0.0.1:6379/0 \
        login email:Ada@Example.org
    abacus forget --limits 10/h --store memcached://127.0.0.1:11211 jobs 17`
}

// Run forgets the keys, and prints what was counted.
func (c *forgetCmd) Run(e *cli.Env) error {
	store, err := c.Keys.open(e.Ctx, c.Terms, time.Now)
	if err != nil {
		return err
	}
	defer store.Close()
	gone := emptied{Done: "forgot", Store: c.Keys.Store}
	if store.lim != nil {
		features, err := gone.look(e.Ctx, store.lim, c.Keys.Program, c.Features, func(feature.Feature) []string { return []string{c.Event} })
		if err == nil {
			err = store.lim.Forget(e.Ctx, c.Event, features...)
		}
		return gone.print(e, err)
	}
	ladder := store.count.Config().Ladder
	for _, given := range c.Features {
		key := counter.Key{Event: c.Event, Feature: given}
		hits, wrong := store.count.Count(e.Ctx, key, ladder.At(ladder.Len()-1).Keep)
		err = cmp.Or(err, wrong)
		gone.add(given, limiter.Usage{Key: key, Total: hits})
	}
	for i := 0; i < len(gone.All) && err == nil; i++ {
		err = store.count.Forget(e.Ctx, gone.All[i].Key)
	}
	return gone.print(e, err)
}

type eraseCmd struct {
	Features []string `arg:"" help:"The features, such as email:ada@example.org user:17."`
	Rules    string   `help:"The file of the rules by which the program's limiter counts." required:"" placeholder:"FILE"`
	Keys     keys     `embed:""`
}

// Help is the part of --help that follows the summary.
func (*eraseCmd) Help() string {
	return `The keys of the features are deleted for all events of the rules, with their bans: neither SCAN nor lru_crawler metadump finds them afterwards. A digest stays until the last hit has left its window. Repeat it when the calls of the person have ended, and with the former rules after a change of a ban. A feature that is part of joined features is not found in these: erase each joined feature too.

` + featuresHelp + ` ` + nothingHelp + `

` + cli.StoreHelp + `

Examples:

    abacus erase --rules rules.yaml --store redis://127.0.0.1:6379/0 \
        email:Ada@Example.org user:17`
}

// Run erases the keys, and prints what was counted.
func (c *eraseCmd) Run(e *cli.Env) error {
	store, err := c.Keys.open(e.Ctx, terms{Rules: c.Rules}, time.Now)
	if err != nil {
		return err
	}
	defer store.Close()
	gone := emptied{Done: "erased", Store: c.Keys.Store}
	features, err := gone.look(e.Ctx, store.lim, c.Keys.Program, c.Features, func(f feature.Feature) []string {
		return slices.DeleteFunc(slices.Clone(store.lim.Events()), func(event string) bool {
			return !slices.ContainsFunc(store.lim.Rules(event), func(r limiter.Rule) bool { return by(r, f.Kind()) })
		})
	})
	if err == nil {
		err = store.lim.Erase(e.Ctx, features...)
	}
	return gone.print(e, err)
}

// emptied is the keys that a command empties, with the counts before.
type emptied struct {
	Store cli.Store
	Done  string // the deed: "forgot"
	All   []limiter.Usage
	none  []string // features that counted nothing
}

// look notes the counts of features under the rules of events.
func (g *emptied) look(ctx context.Context, lim *limiter.Limiter, p program, given []string, events func(feature.Feature) []string) ([]feature.Feature, error) {
	features := make([]feature.Feature, len(given))
	for i, text := range given {
		var err error
		if features[i], err = p.feature(text); err != nil {
			return nil, err
		}
		var all []limiter.Usage
		for _, event := range events(features[i]) {
			usages, err := lim.Usage(ctx, event, features[i])
			if err != nil {
				return nil, err
			}
			all = append(all, usages...)
		}
		g.add(text, all...)
	}
	return features, nil
}

// add notes the keys of a feature.
func (g *emptied) add(given string, keys ...limiter.Usage) {
	g.All = append(g.All, keys...)
	if !slices.ContainsFunc(keys, func(u limiter.Usage) bool { return u.Total.High > 0 || u.BanStep > 0 }) {
		g.none = append(g.none, text.Clean(given, cli.Columns))
	}
}

// print writes a line for each key, unless there was an error.
func (g *emptied) print(e *cli.Env, err error) error {
	if err != nil {
		return notStore(err)
	}
	return cmp.Or(e.Print(false, "forget", g), found(g.none))
}
