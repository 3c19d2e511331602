package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/limiter"
)

// check makes a Limiter of each rule, and then of the rules of each event: rules of
// two events have nothing to do with each other. Of rules that are rejected
// together, each that contradicts the rules before has an error of its own.
func (d *decoder) check() {
	events := map[string][]int{} // indexes of rules
	var order []string
	for i := range d.set.Rules {
		if d.alone(i); !d.places[i].whole {
			continue
		}
		event := d.set.Rules[i].Event
		if events[event] == nil {
			order = append(order, event)
		}
		events[event] = append(events[event], i)
	}
	for _, event := range order {
		all := events[event]
		if len(all) == 1 || d.try(all) == nil {
			continue
		}
		var good []int
		for _, soft := range []bool{false, true} { // a soft rule is checked beside all enforced rules
			for _, i := range all {
				if d.set.Rules[i].Soft != soft {
					continue
				}
				if err := d.try(append(good[:len(good):len(good)], i)); err != nil {
					d.refused(i, good, err)
				} else {
					good = append(good, i)
				}
			}
		}
	}
}

// maxFaults bounds the faults of a rule that alone looks for.
const maxFaults = 100

// alone finds the faults of rule i by itself: after an error the rule is tried
// again without the field at fault.
func (d *decoder) alone(i int) {
	r, p := &d.set.Rules[i], &d.places[i]
	if r.Limits == nil { // told already
		return
	}
	for range maxFaults {
		err := d.try([]int{i})
		if err == nil {
			return
		}
		p.whole = false
		switch name, n := d.refused(i, nil, err); name {
		case "Ban":
			r.Ban = nil
		case "Percent":
			r.Percent = 0
		case "Former":
			r.Former = nil
		case "Else", "ElseLimits":
			r.Else, r.ElseLimits = "", nil
		case "Plans":
			r.Plans, p.plans = slices.Delete(r.Plans, n, n+1), slices.Delete(p.plans, n, n+1)
		case "Overrides":
			r.Overrides, p.overrides = slices.Delete(r.Overrides, n, n+1), slices.Delete(p.overrides, n, n+1)
		default:
			return
		}
	}
}

// nowhere is a store that is never asked: limiter.New checks rules without it.
type nowhere struct{ backend.Store }

func (nowhere) Keeps() bool                                        { return true }
func (nowhere) Bind(backend.Store, *backend.TakeKey) backend.Quota { return nil }

var noStore backend.Local = nowhere{backend.FromDo(func(context.Context, *backend.Request) error {
	return errors.New("rules: no store")
})}

// try returns the error of limiter.New for some of the rules.
func (d *decoder) try(indexes []int) error {
	cfg := limiter.Config{Local: d.count} // which counts nothing
	for _, i := range indexes {
		cfg.Rules = append(cfg.Rules, d.set.Rules[i])
	}
	lim, err := limiter.New(d.count, cfg)
	if err != nil {
		return err
	}
	return lim.Close(context.Background()) // no hits
}

var (
	// An error of limiter.New behind the name of the rule: the index of the rule, a
	// field with its index, a field within, and the rest.
	faulty = regexp.MustCompile(`^(?s)Config\.Rules\[(\d+)\](?:\.([A-Z][A-Za-z]*)(?:\[(\d+)\])?(?:\.([A-Z][A-Za-z]*))?)?:? ?(.*)$`)
	// Quoted text, the name of a package, of a rule and of a field.
	names = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\b(?:counter|limiter|tiers): |\bConfig\.Rules\[(\d+)\]|(?:\b(?:Rule|Config))?\.([A-Z][A-Za-z]+)\b`)
)

// yamlNames are the keys for the fields of a limiter.Rule and a limiter.Override.
var yamlNames = map[string]string{
	"Event": "event", "Kind": "kind", "Limits": "limits", "Plans": "plans", "Else": "else.kind", "ElseLimits": "else.limits", "Ban": "ban",
	"Ladder": "ladder", "Former": "former", "OnFailure": "on_failure", "IfMissing": "if_missing",
	"Soft": "soft", "Percent": "percent", "Overrides": "overrides", "Value": "value", "Network": "network", "Domain": "domain",
}

// inFile returns an error of another package in the words of a file. rule names the
// rule of an index.
func inFile(text string, rule func(index int) string) string {
	return names.ReplaceAllStringFunc(text, func(name string) string {
		m := names.FindStringSubmatch(name)
		switch {
		case name[0] == '"':
			return name
		case m[1] != "":
			index, _ := strconv.Atoi(m[1])
			return rule(index)
		case m[2] != "":
			return cmp.Or(yamlNames[m[2]], name)
		}
		return ""
	})
}

// refused makes an error of limiter.New for rule i, next to good ones, an error of
// the file, and returns the field at fault, and its index.
func (d *decoder) refused(i int, good []int, err error) (name string, n int) {
	p, r := &d.places[i], d.set.Rules[i]
	var steps []any
	fault := strings.TrimPrefix(err.Error(), fmt.Sprintf("limiter: rule %s: ", r))
	line := d.set.lines[i]
	if m := faulty.FindStringSubmatch(fault); m != nil {
		fault = m[5]
		if m[1] == strconv.Itoa(len(good)) { // the field is not of a rule before
			name = m[2]
			n, _ = strconv.Atoi(m[3])
		}
		switch within := m[4]; {
		case name == "":
		case name == "Kind":
			line, fault = p.kind, "the kind "+fault
		case name == "Plans" && m[3] != "":
			steps = []any{"plans", p.plans[n]}
		case name == "Overrides" && m[3] != "":
			steps = []any{"overrides", p.overrides[n]}
			if within != "" {
				steps = append(steps, yamlNames[within])
			}
		default:
			for key := range strings.SplitSeq(yamlNames[name], ".") {
				steps = append(steps, key)
			}
		}
	}
	line, path := p.find(line, steps...)
	fault = inFile(fault, func(index int) string {
		if index >= len(good) {
			return "the rule"
		}
		return fmt.Sprintf("the rule in line %d", d.set.lines[good[index]])
	})
	d.errs = append(d.errs, &Error{d.set.file, line, path, errors.New(fault)})
	return name, n
}
