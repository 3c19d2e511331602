// Package rules reads the rules of a [limiter.Limiter] from a file of YAML, and so
// of JSON, and watches the file for changes.
//
//	set, err := rules.Load("rules.yaml")
//	...
//	lim, err := limiter.New(count, limiter.Config{Rules: set.Rules})
//	...
//	watcher, err := rules.Watch(set, rules.WatchConfig{
//		Apply: func(set *rules.Set) error { return lim.Replace(set.Rules...) },
//		Read:  lim.RulesRead,
//	})
//	...
//	defer watcher.Close()
//
// docs/rules.md describes the format; [Schema] is the format as a JSON Schema.
package rules

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// MaxSize is the largest size of a file of rules, in bytes.
const MaxSize = 1 << 20

// Set is the content of a file of rules. [Load] and [Parse] make a Set.
type Set struct {
	// Rules are the rules in the order of the file, for limiter.Config.Rules and
	// Limiter.Replace. A program may set their LimitsOf before: see PlansBy.
	Rules []limiter.Rule

	file   string
	lines  []int // of Rules
	loaded bool  // by Load
	sum    [sha256.Size]byte
	plans  map[plan]counter.Limits
}

// plan is the name of a plan of a rule.
type plan struct{ event, kind, name string }

// Plan returns the limits of a plan of the rule for event and kind, for
// [limiter.Under]. Without such a plan the limits are nil, under which the
// limits of the rule hold.
func (s *Set) Plan(event, kind, name string) counter.Limits { return s.plans[plan{event, kind, name}] }

// PlansBy returns Rules with their plans, for limiter.Config.Rules and
// Limiter.Replace: a feature has the limits of the plan that planOf names for the
// call, and without such a plan the limits of the rule. The plan of a request is in
// the context of a middleware:
//
//	lim, err := limiter.New(count, limiter.Config{Rules: set.PlansBy(planOf)})
//
// planOf is called as Rule.LimitsOf is. A rule with plans must be the only enforced,
// or the only soft, rule of its event and kind.
func (s *Set) PlansBy(planOf func(ctx context.Context, c limiter.Call) string) []limiter.Rule {
	all := slices.Clone(s.Rules)
	for i := range all {
		if len(all[i].Plans) > 0 {
			all[i].LimitsOf = func(ctx context.Context, c limiter.Call) counter.Limits {
				return s.Plan(c.Event, c.Feature.Kind(), planOf(ctx, c))
			}
		}
	}
	return all
}

// Line is the line of Rules[i] in the file, counted from 1.
func (s *Set) Line(i int) int { return s.lines[i] }

// Load reads and parses the file at path. The error is that of the file system, or
// of Parse.
func Load(path string) (*Set, error) {
	data, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	set, err := Parse(path, data)
	if err == nil {
		set.loaded = true
	}
	return set, err
}

// read returns the content of a regular file, and one byte more than MaxSize of a
// larger one.
func read(path string) (data []byte, err error) {
	// A pipe would wait for a writer when it is opened.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file, want a file of YAML", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(io.LimitReader(file, MaxSize+1))
	return data, errors.Join(err, file.Close())
}

// Parse reads rules from data, YAML or JSON in UTF-8; name is the name of the file
// in errors. The rules are checked as limiter.New checks them, for a Counter whose
// Config has no Ladder. The error joins an [Error] for each fault that was found, in
// the order of lines.
func Parse(name string, data []byte) (*Set, error) {
	count, err := counter.New(noStore, counter.Config{})
	if err != nil {
		return nil, err
	}
	d := decoder{count: count, set: Set{file: name, sum: sha256.Sum256(data), plans: map[plan]counter.Limits{}}}
	d.Reader = d.fail
	if root := d.Parse(data, MaxSize, "rules under the key events"); root != nil {
		d.root(root)
		d.check()
	}
	if err = d.join(); err != nil {
		return nil, err
	}
	return &d.set, nil
}

// Error is a fault of a file of rules. [errors.As] finds the first fault in the
// error of Parse; the method Unwrap() []error of this error lists all faults.
type Error struct {
	File string
	Line int    // counted from 1
	Path string // the place, such as events.signup.ip.limits; empty for a fault of the whole file
	Err  error
}

// Error is file, line, place and fault: "rules.yaml:4: events.signup.ip.ban: ...".
func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d: %s: %v", e.File, e.Line, e.Path, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
