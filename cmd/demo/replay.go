package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

type replayCmd struct {
	File      string      `arg:"" help:"The log, - for standard input. What is compressed by gzip is read as it is." placeholder:"FILE"`
	Limits    cli.Sliding `help:"The limits on every key: 10/m, 5/90s, 1000/7d; several with commas. Default: ${default}." default:"10/h,100/d" placeholder:"LIMITS"`
	Rules     string      `help:"Decide by this file of rules instead, in memory: a feature is kind:value, or a value where the event has rules by one kind." placeholder:"RULES"`
	Ladder    cli.Ladder  `help:"The buckets to count in, finest first, as width:keep, such as 1s:1d,1m:1d,1h:1d. Default: those that fit the limits, exact to a second for limits of a minute and more." placeholder:"TIERS"`
	Grid      cli.Span    `help:"Count in no buckets finer than this: less is stored, and a denial lasts up to that much longer." default:"0s" placeholder:"DURATION"`
	Skew      cli.Span    `help:"How far the stamps of the log may run back, as those of several clocks do." default:"0s" placeholder:"DURATION"`
	Store     cli.Store   `help:"Where to count: memory (the default), or the URL of Redis or memcached servers." default:"memory" env:"ABACUS_STORE" placeholder:"STORE"`
	Clean     bool        `help:"Remove from the store at the end what the replay has stored there."`
	Timeout   cli.Span    `help:"How long a call of the store may take. Default: ${default}." default:"5s" placeholder:"DURATION"`
	logFlags  `embed:""`
	Decisions string `help:"Write time_us,event,feature,allowed to this file, a line per event; it is overwritten." placeholder:"OUT.csv"`
	JSON      bool   `help:"Print the report as one JSON object."`
}

// Help is the part of --help that follows the summary.
func (*replayCmd) Help() string {
	return `Each line is a hit of a key: of an event, which is what happened, by a feature, which is who did it. Each key has the limits for itself. A csv log has a header with the columns time_us (microseconds since 1970), event and feature, in any order. In a web server's log the feature is the client, and the event the method alone, such as GET, whatever the path; so give --event, a pattern as http.ServeMux has them: then the event is the pattern, and other requests are left out. Features are taken as they are written, also those of kind ip: a limiter counts all addresses of an IPv6 network under one key, so write the network, as in the keys of the limiter.

Every decision is checked against a log of every hit. Exit codes: 0 all was read, 1 the log is bad, the store failed or the output cannot be written, 2 the call is wrong, 130 interrupted; the report shows what was read before that.

` + cli.StoreHelp + `

The decisions are the same on every store. A replay stores its keys under a prefix of its own, which the report names; it reads and flushes nothing else. They expire by themselves, or --clean removes them at the end, also after an error or an interrupt: on Redis by SCAN and UNLINK; on memcached, which cannot list by prefix, by the names, which the replay remembers.

Examples:

    printf 'time_us,event,feature\n0,login,ann\n9500000,login,ann\n' >log.csv
    demo replay --limits 1/h log.csv
    demo replay --limits 100/d --grid 60s --decisions out.csv events.csv.gz
    demo replay --store redis://127.0.0.1:6379/0 --clean events.csv
    demo replay --limits 5/h --event 'POST /login' access.log
    demo replay --rules rules.yaml --event 'login=POST /login' access.log
    zcat access.log.*.gz | demo replay --format clf --skip-bad --json -`
}

// Run replays the log and prints the report, also after an error or an interrupt.
func (c *replayCmd) Run(e *cli.Env) error {
	if c.Rules != "" {
		return c.runRules(e)
	}
	cfg, err := c.config()
	if err != nil {
		return cli.Usage(err)
	}
	store, err := c.Store.Open(c.Timeout)
	if err != nil {
		return err
	}
	// A failure to close has no bearing on the decisions.
	defer store.Close()
	cfg.Store, cfg.Prefix = store.Store, stores.Namespace("demo")
	var out decisions
	cfg.Decided = func(e eventlog.Event, allowed bool) error { return out.decided(e, allowed) }
	bar := e.Progress()
	// All mistakes in the call are found before a file is touched.
	run, err := replay.New(cfg)
	if err != nil {
		return cli.Usage(err)
	}
	in, err := openInput(c.File, e.Stdin)
	if err != nil {
		return err
	}
	defer in.close()
	if err := cli.Identify(e.Ctx, store); err != nil {
		return err
	}
	if out, err = createDecisions(c.Decisions, in); err != nil {
		return err
	}
	bar.Show("replay", in.size, true)
	report, err := run.Run(e.Ctx, c.log(in, bar))
	bar.Clear()
	err = cmp.Or(e.Cause(err), out.close())
	if wrong := report.WrongDenied + report.WrongAdmitted; err == nil && wrong > 0 && report.Back <= cfg.Skew {
		err = fmt.Errorf("%s by store %s, want none: a log of every hit decides otherwise", words.Plural(wrong, "wrong decision"), c.Store)
	}
	report.File, report.Store = in.name, c.Store.String()
	if c.Store.Kind != stores.InMemory {
		kept := &replay.Kept{Prefix: cfg.Prefix, Within: dur.Format(store.Life(cfg.Ladder, cfg.Skew, 0))}
		if c.Clean {
			removed, failed := cli.Clean(e.Ctx, store, cfg.Prefix)
			kept.Removed, err = &removed, cmp.Or(err, failed)
		}
		report.Kept = kept
	}
	if err != nil {
		report.Stopped = err.Error()
	}
	return cmp.Or(err, c.print(e, report, err))
}

func (c *replayCmd) config() (replay.Config, error) {
	cfg := replay.Config{
		Limits: counter.Limits(c.Limits),
		Ladder: c.Ladder.OrFor(c.Limits...),
		Skew:   time.Duration(c.Skew),
	}
	err := c.Timeout.Check("--timeout", 0)
	if err == nil && c.Grid > 0 {
		cfg.Ladder, err = coarser(cfg.Ladder, time.Duration(c.Grid))
	}
	return cfg, err
}

func (c *replayCmd) print(e *cli.Env, report *replay.Report, err error) error {
	if !c.JSON && err != nil && report.Events == 0 && err != cli.ErrInterrupted && !errors.Is(err, counter.ErrStore) {
		return nil // there is nothing to tell but the error: nothing was stored
	}
	return e.Print(c.JSON, "replay", report)
}

// coarser returns l without the tiers finer than grid.
func coarser(l tiers.Ladder, grid time.Duration) (tiers.Ladder, error) {
	kept := slices.DeleteFunc(l.Tiers(), func(t tiers.Tier) bool { return t.Width < grid })
	if len(kept) == 0 {
		return l, fmt.Errorf("--grid %s: the widest tier of ladder %q has %s, want at most that", dur.Format(grid), l, dur.Format(l.At(l.Len()-1).Width))
	}
	return tiers.New(kept...)
}
