package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/check"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/internal/words"
)

type checkCmd struct {
	Store   cli.Store `help:"The store to check." required:"" env:"ABACUS_STORE" placeholder:"STORE"`
	Timeout cli.Span  `help:"The patience of each call, as in counter.Config. Default: ${default}." default:"${timeout}" placeholder:"DURATION"`
	Settle  cli.Span  `help:"How long one try may last, as in counter.Config: part of the stored keys on memcached. Default: ${default}." default:"${settle}" placeholder:"DURATION"`
	JSON    bool      `help:"Print one JSON object at the end."`
}

// Help is the part of --help that follows the summary.
func (*checkCmd) Help() string {
	return `It takes some seconds and a few thousand calls. All that it stores begins with a prefix of its own and is removed at the end, also after an interrupt. On Redis that takes two passes of SCAN over all keys.

A check that holds is marked by a tick, a broken promise or a store that fails by a cross, and by ! what breaks no promise but is worth a look: calls that were late, servers that are set up to forget; - is a fact. Exit codes: 0 no cross, 1 a cross, 2 the call is wrong, 130 interrupted.

` + cli.StoreHelp + `

Examples:

    abacus check --store redis://127.0.0.1:6379/0
    abacus check --timeout 200ms \
        --store memcached://10.0.0.1:11211,10.0.0.2:11211
    abacus check --store memory --json`
}

// checked is the output of abacus check --json.
type checked struct {
	Store   string         `json:"store"`
	Prefix  string         `json:"prefix"`
	OK      bool           `json:"ok"`
	Checks  []check.Result `json:"checks"`
	Removed int64          `json:"removed"` // items or keys, at the end
	Error   string         `json:"error,omitempty"`
}

// Run checks the store and prints a line for each result at once.
func (c *checkCmd) Run(e *cli.Env) error {
	if err := cmp.Or(c.Timeout.Check("--timeout", time.Minute), c.Settle.Check("--settle", time.Minute)); err != nil {
		return err
	}
	// The store's own timeout is for the check's calls without a deadline.
	store, err := c.Store.Open(cli.Span(2 * check.Patience(time.Duration(c.Timeout))))
	if err != nil {
		return err
	}
	defer store.Close()
	out := checked{Store: c.Store.String(), Prefix: stores.Namespace("check")}
	cfg := check.Config{Prefix: out.Prefix, Timeout: time.Duration(c.Timeout), Settle: time.Duration(c.Settle)}
	if !c.JSON {
		cfg.Told = func(r check.Result) error { return e.Print(false, "result", r) }
		if _, err := fmt.Fprintf(e.Stdout, "%s\n\n", out.Store); err != nil {
			return err
		}
	}
	out.Checks, err = check.Run(e.Ctx, store, cfg)
	err = e.Cause(err)
	crosses := 0
	for _, r := range out.Checks {
		if r.Status == check.Failed {
			crosses++
		}
	}
	if countable := len(out.Checks) != 1 || crosses == 0; countable {
		if crosses > 0 {
			err = cmp.Or(err, fmt.Errorf("store %s: %d of %s failed", out.Store, crosses, words.Plural(int64(len(out.Checks)), "check")))
		}
		var failed error
		out.Removed, failed = cli.Clean(e.Ctx, store, out.Prefix)
		err = cmp.Or(err, failed)
	} else {
		err = cmp.Or(err, fmt.Errorf("store %s: %s", out.Store, out.Checks[0].Seen)) // and there is nothing to remove
	}
	if out.OK = err == nil; !out.OK {
		out.Error = err.Error()
	}
	return cmp.Or(err, e.Print(c.JSON, "check", out))
}
