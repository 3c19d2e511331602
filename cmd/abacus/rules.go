package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/abacus-go/abacus/cmd/abacus/internal/rulesdiff"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
)

// rulesCmd is the group of commands about files of rules.
type rulesCmd struct {
	Check  rulesCheckCmd  `cmd:"" help:"Check files of rules, and tell the meaning of each rule."`
	Diff   rulesDiffCmd   `cmd:"" help:"Tell what changes between two files of rules, for limits and for counts."`
	Test   rulesTestCmd   `cmd:"" help:"Tell what a tighter rule would have denied of the hits in a store."`
	Schema rulesSchemaCmd `cmd:"" help:"Print the format of the files as a JSON Schema."`
}

type rulesSchemaCmd struct{}

// Run prints the schema.
func (*rulesSchemaCmd) Run(e *cli.Env) error {
	_, err := e.Stdout.Write(rules.Schema())
	return err
}

type rulesCheckCmd struct {
	Files []string `arg:"" help:"The files of rules." placeholder:"FILE"`
	Quiet bool     `short:"q" help:"Print errors only."`
}

// Help is the part of --help that follows the summary.
func (*rulesCheckCmd) Help() string {
	return `All errors are printed, each with file and line. Exit codes: 0 all files are good, 1 a file has an error or cannot be read.

Examples:

    abacus rules check rules.yaml
    abacus rules check --quiet rules/*.yaml`
}

// Run prints the rules of the good files, and fails with the errors of the others.
func (c *rulesCheckCmd) Run(e *cli.Env) error {
	var out bytes.Buffer
	failed := int64(0)
	for _, file := range c.Files {
		set, err := rules.Load(file)
		if err != nil {
			failed++
			fmt.Fprintln(e.Stderr, err)
			continue
		}
		if c.Quiet {
			continue
		}
		lim, err := cli.Limiter(set.Rules)
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s: %s\n", file, words.Plural(int64(len(set.Rules)), "rule"))
		for _, event := range lim.Events() {
			for _, r := range lim.Rules(event) {
				explain(&out, r, lim)
			}
		}
	}
	_, err := e.Stdout.Write(out.Bytes())
	if failed > 0 {
		return errors.Join(err, fmt.Errorf("%s of %d with errors", words.Plural(failed, "file"), len(c.Files)))
	}
	return err
}

// explain writes the meaning of a rule of lim, with its ladder.
func explain(out io.Writer, r limiter.Rule, lim *limiter.Limiter) {
	fmt.Fprintf(out, "\n%s", r)
	switch {
	case r.Soft && r.Percent > 0:
		fmt.Fprintf(out, ", soft, enforced for %d %%", r.Percent)
	case r.Soft:
		fmt.Fprint(out, ", soft")
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t"+format+"\n", append([]any{name}, args...)...)
	}
	line("limits", "%s", r.Limits)
	if slices.ContainsFunc(r.Limits, func(l counter.Limit) bool { return l.Max == 0 }) {
		line("", "a limit of 0 admits nothing, ever")
	}
	for _, plan := range r.Plans {
		line("plan", "%s", plan)
	}
	if r.Else != "" {
		line("else", "%q: %s", r.Else, r.ElseLimits)
	}
	if r.Ban > 0 {
		line("ban", "%s", dur.Format(r.Ban))
	}
	line("ladder", "%s", r.Ladder)
	if r.Former != nil {
		line("former", "%s", r.Former.Ladder)
	}
	coarsest := r.Ladder.At(r.Ladder.Len() - 1)
	line("kept", "%s after the last hit, and on servers a little longer", dur.Format(coarsest.Keep+coarsest.Width))
	line("policy", "%s, without a feature %s", r.OnFailure, r.IfMissing)
	for _, o := range r.Overrides {
		line("override", "%s: %s", o.String()+counted(lim, r, o.Value), rulesdiff.Effect(o))
	}
	w.Flush()
}

// counted names the key of a value, if the key is another text or has other features
// too: an IPv6 address is counted as its network.
func counted(lim *limiter.Limiter, r limiter.Rule, value string) string {
	usage, err := lim.Usage(context.Background(), r.Event, feature.New(r.Kind, value))
	if err != nil || usage[0].Key.Feature == r.Kind+":"+value { // the error is of no value
		return ""
	}
	return ", and all of " + usage[0].Key.Feature
}

type rulesDiffCmd struct {
	Old  string `arg:"" help:"The rules until now." placeholder:"OLD"`
	New  string `arg:"" help:"The rules from now on." placeholder:"NEW"`
	JSON bool   `help:"Print one JSON object."`
}

// Help is the part of --help that follows the summary.
func (*rulesDiffCmd) Help() string {
	return `A line for each rule that is added, removed, raised, lowered or otherwise changed, and below what becomes of the counts. Exit codes: 0 both files are good, whether they differ or not, 1 a file has an error.

Example:

    abacus rules diff rules.yaml rules.new.yaml`
}

// Run prints the differences.
func (c *rulesDiffCmd) Run(e *cli.Env) error {
	before, err := cli.Rules(c.Old)
	if err != nil {
		return err
	}
	after, err := cli.Rules(c.New)
	if err != nil {
		return err
	}
	changes := changed{rulesdiff.Diff(before, after)}
	return e.Print(c.JSON, changes, changes.render)
}

// changed is the output of abacus rules diff --json.
type changed struct {
	Changes []rulesdiff.Change `json:"changes"`
}

func (c changed) render() []byte {
	var out bytes.Buffer
	for _, change := range c.Changes {
		fmt.Fprintf(&out, "%s\n", change.Rule)
		for _, line := range change.Changes {
			fmt.Fprintf(&out, "  %-9s  %s\n", line.Kind, line.Text)
		}
	}
	if len(c.Changes) == 0 {
		out.WriteString("no rule differs\n")
	}
	return out.Bytes()
}
