package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/words"
)

type forgetCmd struct {
	Event    string   `arg:"" help:"The event of the keys, such as login."`
	Features []string `arg:"" help:"The features, such as email:ada@example.org ip:203.0.113.9."`
	Keys     keys     `embed:""`
	Erase    bool     `help:"Leave no name and no value with the text of a key in the store."`
}

// Help is the part of --help that follows the summary.
func (*forgetCmd) Help() string {
	return `All limits of the keys begin anew. It asks nothing, and tells what was counted. A program that runs knows within a second; its local counters, of rules under FailLocal, keep the hits.

With --erase the keys are deleted, and not only set to zero: neither SCAN nor lru_crawler metadump finds them afterwards. A digest stays until the last hit has left its window. Repeat it for each event, and when the calls of the person have ended.

` + keysHelp + `

` + storeHelp + `

Examples:

    demo forget --store redis://127.0.0.1:6379/0 login email:Ada@Example.org
    demo forget --store memcached://127.0.0.1:11211 --erase signup \
        email:ada@example.org ip:2001:db8::1`
}

// Run forgets the keys, and prints what was counted.
func (c *forgetCmd) Run(e *env) error {
	store, count, err := c.Keys.open(e.ctx, time.Now)
	if err != nil {
		return err
	}
	defer store.Close()
	all := make([]counter.Key, len(c.Features))
	for i, feature := range c.Features {
		if all[i], err = c.Keys.key(count, c.Event, feature); err != nil {
			return err
		}
	}
	done, forget, found := "forgot", count.Forget, false
	if c.Erase {
		done, forget = "erased", count.Erase
	}
	fmt.Fprintf(e.stdout, "store   %s\n", c.Keys.Store)
	ladder := count.Ladder()
	for _, key := range all {
		hits, err := count.Count(e.ctx, key, ladder.At(ladder.Len()-1).Keep)
		if err == nil {
			err = forget(e.ctx, key)
		}
		switch {
		case err == nil:
		case errors.Is(err, counter.ErrStore):
			return fmt.Errorf("%s: %w", text.Key(key.Event, key.Feature, columns), err)
		default:
			return usageError{err}
		}
		was := "nothing was counted"
		if hits.High > 0 {
			was, found = words.Plural(hits.High, "hit"), true
		}
		fmt.Fprintf(e.stdout, "%s  %s: %s\n", done, text.Key(key.Event, key.Feature, columns-40), was)
	}
	if !found {
		_, err = fmt.Fprint(e.stdout, "\n"+otherKey)
	}
	return err
}
