package rules

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// check makes a Limiter of the whole rules, event by event: rules of two events
// have nothing to do with each other. After an error the rules of the event are
// added one after the other, and each rejected rule has an error of its own.
func (d *decoder) check() {
	events := map[string][]int{} // indexes of rules
	var order []string
	for i, r := range d.set.Rules {
		if d.places[i].whole {
			if events[r.Event] == nil {
				order = append(order, r.Event)
			}
			events[r.Event] = append(events[r.Event], i)
		}
	}
	for _, event := range order {
		all := events[event]
		if d.try(all) == nil {
			continue
		}
		var good []int
		for _, i := range all {
			if err := d.try(append(good[:len(good):len(good)], i)); err != nil {
				d.refused(i, good, err)
			} else {
				good = append(good, i)
			}
		}
	}
}

// nowhere is a store that is never asked: limiter.New checks rules without it.
type nowhere struct{}

func (nowhere) Do(context.Context, *backend.Request) error {
	return errors.New("rules: no store")
}
func (nowhere) Local()      {}
func (nowhere) Keeps() bool { return true }

var _ backend.Keeper = nowhere{}

// try returns the error of limiter.New for some of the rules.
func (d *decoder) try(indexes []int) error {
	count, err := counter.New(nowhere{}, counter.Config{})
	if err != nil {
		return err
	}
	local, err := counter.New(nowhere{}, counter.Config{})
	if err != nil {
		return err
	}
	cfg := limiter.Config{Local: local}
	for _, i := range indexes {
		cfg.Rules = append(cfg.Rules, d.set.Rules[i])
	}
	lim, err := limiter.New(count, cfg)
	if err != nil {
		return err
	}
	return lim.Close()
}

// In the errors of limiter.New, the part before the fault, and the names of fields
// and rules.
var (
	ruleHead  = regexp.MustCompile(`^limiter: rule .*?: (?:Config\.Rules\[\d+\])?`)
	fieldName = regexp.MustCompile(`^\.(Overrides\[(\d+)\]|[A-Z]\w*)(?:\[\d+\])?(?:\.[A-Z]\w*)*`)
	otherRule = regexp.MustCompile(`Config\.Rules\[(\d+)\]`)
	goName    = regexp.MustCompile(`(?:Rule|Config)?\.([A-Z][A-Za-z]+)\b`)
)

// yamlNames are the keys for the fields of a limiter.Rule.
var yamlNames = map[string]string{
	"Event": "event", "Kind": "kind", "Limits": "limits", "Plans": "plans", "Else": "else.kind", "ElseLimits": "else.limits", "Ban": "ban",
	"Ladder": "ladder", "Former": "former", "OnFailure": "on_failure", "IfMissing": "if_missing",
	"Soft": "soft", "Percent": "percent", "Overrides": "overrides",
}

// refused makes an error of limiter.New for rule i, beside good ones, an error of
// the file.
func (d *decoder) refused(i int, good []int, err error) {
	p := d.places[i]
	line, path := d.set.lines[i], p.path
	fault := err.Error()
	if head := ruleHead.FindString(fault); head != "" {
		fault = fault[len(head):]
	}
	if m := fieldName.FindStringSubmatch(fault); m != nil {
		name, key := yamlNames[m[1]], yamlNames[m[1]]
		if m[2] != "" {
			name, key = "overrides["+m[2]+"]", "overrides."+m[2]
		}
		top, _, _ := strings.Cut(name, ".")
		if name != "" {
			fault, path = fault[len(m[0]):], path+"."+name
			if m[2] == "" {
				key = top
			}
			if at := p.lines[key]; at > 0 {
				line = at
			}
		}
	}
	fault = otherRule.ReplaceAllStringFunc(fault, func(name string) string {
		n, err := strconv.Atoi(otherRule.FindStringSubmatch(name)[1])
		if err != nil || n >= len(good) {
			return "the rule"
		}
		return fmt.Sprintf("the rule in line %d", d.set.lines[good[n]])
	})
	fault = goName.ReplaceAllStringFunc(fault, func(name string) string {
		if key := yamlNames[goName.FindStringSubmatch(name)[1]]; key != "" {
			return key
		}
		return name
	})
	fault = packages.ReplaceAllString(strings.TrimPrefix(strings.TrimPrefix(fault, ":"), " "), "")
	d.errs = append(d.errs, &Error{d.set.file, line, path, errors.New(fault)})
}
