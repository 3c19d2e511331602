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
	gone := emptied{Done: "forgot"}
	var features []feature.Feature
	for _, given := range c.Features {
		if store.lim == nil {
			err = gone.count(e.Ctx, store.count, counter.Key{Event: c.Event, Feature: given})
		} else {
			var f feature.Feature
			if f, err = c.Keys.Program.feature(given); err == nil {
				features, err = append(features, f), gone.look(e.Ctx, store.lim, given, f, c.Event)
			}
		}
		if err != nil {
			return err
		}
	}
	if store.lim != nil {
		err = store.lim.Forget(e.Ctx, c.Event, features...)
	}
	for i := 0; store.lim == nil && i < len(gone.All) && err == nil; i++ {
		err = store.count.Forget(e.Ctx, gone.All[i].Key)
	}
	if err != nil {
		return notStore(err)
	}
	return gone.print(e, c.Keys.Store)
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
	gone := emptied{Done: "erased"}
	features := make([]feature.Feature, len(c.Features))
	for i, given := range c.Features {
		if features[i], err = c.Keys.Program.feature(given); err != nil {
			return err
		}
		var events []string
		for _, event := range store.lim.Events() {
			if slices.ContainsFunc(store.lim.Rules(event), func(r limiter.Rule) bool { return by(r, features[i].Kind()) }) {
				events = append(events, event)
			}
		}
		if err := gone.look(e.Ctx, store.lim, given, features[i], events...); err != nil {
			return err
		}
	}
	if err := store.lim.Erase(e.Ctx, features...); err != nil {
		return notStore(err)
	}
	return gone.print(e, c.Keys.Store)
}

// emptied is the keys that a command empties, with the counts before.
type emptied struct {
	Store cli.Store
	Done  string // the deed: "forgot"
	All   []limiter.Usage
	none  []string // features that counted nothing
}

// look notes the counts of a feature under the rules of events.
func (g *emptied) look(ctx context.Context, lim *limiter.Limiter, given string, f feature.Feature, events ...string) error {
	before := len(g.All)
	for _, event := range events {
		all, err := lim.Usage(ctx, event, f)
		if err != nil {
			return notStore(err)
		}
		g.All = append(g.All, all...)
	}
	g.missed(given, before)
	return nil
}

// count notes the counts of a key without a limiter.
func (g *emptied) count(ctx context.Context, count *counter.Counter, key counter.Key) error {
	ladder, before := count.Config().Ladder, len(g.All)
	hits, err := count.Count(ctx, key, ladder.At(ladder.Len()-1).Keep)
	g.All = append(g.All, limiter.Usage{Key: key, Total: hits})
	g.missed(key.Feature, before)
	return notStore(err)
}

// missed notes a feature without counts, whose keys are those from first on.
func (g *emptied) missed(given string, first int) {
	if !slices.ContainsFunc(g.All[first:], func(u limiter.Usage) bool { return u.Total.High > 0 || u.Banned > 0 }) {
		g.none = append(g.none, text.Clean(given, cli.Columns))
	}
}

// print writes a line for each key.
func (g *emptied) print(e *cli.Env, store cli.Store) error {
	g.Store = store
	return cmp.Or(e.Print(false, "forget", g), found(g.none))
}
