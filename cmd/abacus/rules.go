package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
)

// rulesCmd is the group of commands about files of rules.
type rulesCmd struct {
	Check  rulesCheckCmd  `cmd:"" help:"Check files of rules, and print the meaning of each rule."`
	Diff   rulesDiffCmd   `cmd:"" help:"Show what changes between two files of rules, for limits and for counts."`
	Test   rulesTestCmd   `cmd:"" help:"Show what a tighter rule would have denied of the hits in a store."`
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

// meant is a file of rules.
type meant struct {
	File  string
	Rules []meaning
}

// meaning is a rule of a limiter, with what follows from it.
type meaning struct {
	limiter.Rule
	Kept       time.Duration // of a count
	Exceptions []string
}

// Warnings says of limits that one admits nothing, or that one never denies: each of its
// windows is in a window of another limit, which has no more room.
func (meaning) Warnings(limits counter.Limits) (all []string) {
	for _, l := range limits {
		if l.Max == 0 {
			return []string{"a limit of 0 admits nothing, ever"}
		}
		if i := slices.IndexFunc(limits, func(by counter.Limit) bool { return by != l && by.Max <= l.Max && within(l, by) }); i >= 0 {
			all = append(all, fmt.Sprintf("%s never denies: %s is reached first", l, limits[i]))
		}
	}
	return all
}

// Run prints the rules of the good files, and fails with the errors of the others.
func (c *rulesCheckCmd) Run(e *cli.Env) error {
	var files []meant
	failed := int64(0)
	for _, name := range c.Files {
		set, err := rules.Load(name)
		if err != nil {
			failed++
			fmt.Fprintln(e.Stderr, err)
			continue
		}
		lim, err := cli.Limiter(set.Rules)
		if err != nil {
			return err
		}
		file := meant{File: name}
		for _, event := range lim.Events() {
			for _, r := range lim.Rules(event) {
				coarsest := r.Ladder.At(r.Ladder.Len() - 1)
				m := meaning{Rule: r, Kept: coarsest.Keep + coarsest.Width}
				for _, o := range r.Overrides {
					m.Exceptions = append(m.Exceptions, strings.Join(append([]string{o.String() + counted(lim, r, o.Value) + ": " + effectOf(o)}, m.Warnings(o.Limits)...), "; "))
				}
				file.Rules = append(file.Rules, m)
			}
		}
		files = append(files, file)
	}
	var err error
	if !c.Quiet {
		err = e.Print(false, "rules", files)
	}
	if failed > 0 {
		return errors.Join(err, fmt.Errorf("%s of %d with errors", words.Plural(failed, "file"), len(c.Files)))
	}
	return err
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
	return e.Print(c.JSON, "diff", changed{diffRules(before, after)})
}

// changed is the output of abacus rules diff --json.
type changed struct {
	Changes []ruleChange `json:"changes"`
}
