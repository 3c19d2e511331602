package rules

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/document"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// The content of a file, read by the decoder of decode.go.

func (d *decoder) root(n *yaml.Node) {
	const want = "a mapping with the key events"
	before := len(d.errs)
	found := false
	d.Mapping(n, "", want, field{"events", func(n *yaml.Node, path string) {
		found = true
		d.Each(n, path, "events by name", func(event string, _, n *yaml.Node, path string) {
			d.Each(n, path, "rules by kind of feature, such as ip", func(kind string, k, n *yaml.Node, path string) {
				d.kind(event, kind, k, n, path)
			})
		})
	}})
	d.Want(found || len(d.errs) > before, n.Line, "", "the key events is missing, want rules under it")
}

// kind reads a rule, or a list of rules, for an event and kind.
func (d *decoder) kind(event, kind string, k, n *yaml.Node, path string) {
	if n.Kind != yaml.SequenceNode {
		d.rule(event, kind, k.Line, k.Line, n, path)
		return
	}
	d.List(n, path, "a rule, or a list of rules", func(_ int, n *yaml.Node, path string) {
		d.rule(event, kind, k.Line, n.Line, n, path)
	})
}

// rule reads a rule that begins in the given line, below the line of its kind. A
// part with an error is left out of the rule.
func (d *decoder) rule(event, kind string, kindLine, line int, n *yaml.Node, path string) {
	r := limiter.Rule{Event: event, Kind: kind}
	p := place{path: path, kind: kindLine, node: n}
	soft := true // no error in the field
	p.whole = d.sound(func() {
		d.Mapping(n, path, "a rule, with limits",
			field{"limits", func(v *yaml.Node, path string) { r.Limits = d.limits(n, v, path) }},
			field{"plans", func(n *yaml.Node, path string) {
				d.Each(n, path, "limits by the name of a plan", func(name string, _, v *yaml.Node, path string) {
					limits, key := d.limits(n, v, path), plan{event, kind, name}
					_, is := d.set.plans[key]
					d.Want(!is, v.Line, path, "the event and kind have a plan of this name already, want each name once")
					d.set.plans[key] = limits
					if limits != nil && !slices.ContainsFunc(r.Plans, func(l counter.Limits) bool { return slices.Equal(l, limits) }) {
						r.Plans, p.plans = append(r.Plans, limits), append(p.plans, name)
					}
				})
			}},
			field{"else", func(n *yaml.Node, path string) {
				if !d.sound(func() {
					d.Mapping(n, path, "a kind with limits",
						field{"kind", func(n *yaml.Node, path string) { r.Else, _ = d.Text(n, path, "a kind, such as ip") }},
						field{"limits", func(v *yaml.Node, path string) { r.ElseLimits = d.limits(n, v, path) }})
					d.require(n, path, "kind", "limits")
				}) {
					r.Else, r.ElseLimits = "", nil
				}
			}},
			field{"ban", func(n *yaml.Node, path string) {
				if n.Kind != yaml.SequenceNode {
					r.Ban = bans(d.Duration(n, path))
					return
				}
				d.List(n, path, "at least one duration", func(_ int, n *yaml.Node, path string) { r.Ban = append(r.Ban, bans(d.Duration(n, path))...) })
			}},
			field{"ladder", func(n *yaml.Node, path string) { r.Ladder = d.ladder(n, path) }},
			field{"former", func(n *yaml.Node, path string) {
				if ladder := d.ladder(n, path); ladder.Len() > 0 {
					r.Former = &counter.Config{Ladder: ladder}
				}
			}},
			field{"on_failure", func(n *yaml.Node, path string) {
				d.unmarshal(n, path, "fail-closed, fail-open or fail-local", &r.OnFailure)
			}},
			field{"if_missing", func(n *yaml.Node, path string) { d.unmarshal(n, path, "deny, skip or share", &r.IfMissing) }},
			field{"soft", func(n *yaml.Node, path string) { soft = d.sound(func() { r.Soft = d.Bool(n, path) }) }},
			field{"percent", func(n *yaml.Node, path string) { r.Percent = d.percent(n, path) }},
			field{"overrides", func(n *yaml.Node, path string) { r.Overrides, p.overrides = d.overrides(n, path, kind) }})
		d.require(n, path, "limits")
	})
	if !soft {
		r.Percent = 0 // which would need a soft rule
	}
	d.set.Rules, d.set.lines, d.places = append(d.set.Rules, r), append(d.set.lines, line), append(d.places, p)
}

// bans returns a ban of a length, if that is none of a fault.
func bans(length time.Duration) limiter.Bans {
	if length == 0 {
		return nil
	}
	return limiter.Bans{length}
}

func (d *decoder) ladder(n *yaml.Node, path string) (l tiers.Ladder) {
	d.unmarshal(n, path, `tiers as width:keep, such as "1s:1d, 1m:1d, 1h:1d"`, &l)
	return l
}

func (d *decoder) percent(n *yaml.Node, path string) int {
	const want = "a whole number of percent, 1 to 100"
	if !d.Is(n, yaml.ScalarNode, path, want) {
		return 0
	}
	percent, _ := strconv.Atoi(n.Value)
	// 010 is 8 by YAML 1.1, and 10 by YAML 1.2.
	if n.ShortTag() != "!!int" || strconv.Itoa(percent) != n.Value || percent < 1 || percent > 100 {
		d.fail(n.Line, path, "the value is %s, want %s", document.Describe(n), want)
		return 0
	}
	return percent
}

// overrides reads the overrides of a rule, with their indexes in the file.
func (d *decoder) overrides(n *yaml.Node, path, kind string) (all []limiter.Override, indexes []int) {
	d.List(n, path, "a list of overrides", func(i int, n *yaml.Node, path string) {
		var o limiter.Override
		if d.sound(func() { o = d.override(n, path, kind) }) {
			all, indexes = append(all, o), append(indexes, i)
		}
	})
	return all, indexes
}

func (d *decoder) override(n *yaml.Node, path, kind string) (o limiter.Override) {
	d.Mapping(n, path, "an override",
		field{"value", func(n *yaml.Node, path string) { o.Value, _ = d.Text(n, path, "the value of a feature as text") }},
		field{"network", func(n *yaml.Node, path string) {
			text, ok := d.Text(n, path, "a network, such as 203.0.113.0/24")
			if !ok {
				return
			}
			var err error
			if o.Network, err = netip.ParsePrefix(text); err != nil {
				d.fail(n.Line, path, "the value is %q, want a network, such as 203.0.113.0/24 or 2001:db8::/32", text)
			} else if o.Network != o.Network.Masked() {
				d.fail(n.Line, path, "the value is %s, which has bits beyond its length, want %s", text, o.Network.Masked())
			}
			d.Want(kind == feature.KindIP, n.Line, path, "the kind is %q, want a value: a network is for the kind ip", kind)
		}},
		field{"domain", func(n *yaml.Node, path string) {
			o.Domain, _ = d.Text(n, path, "a mail domain, such as example.org")
			d.Want(kind == feature.KindEmail, n.Line, path, "the kind is %q, want a value: a domain is for the kind email", kind)
		}},
		field{"limits", func(v *yaml.Node, path string) { o.Limits = d.limits(n, v, path) }},
		field{"exempt", func(n *yaml.Node, path string) { o.Exempt = d.Bool(n, path) }},
		field{"denied", func(n *yaml.Node, path string) { o.Denied = d.Bool(n, path) }},
		field{"comment", func(n *yaml.Node, path string) { o.Comment, _ = d.Text(n, path, "text") }},
		field{"until", func(n *yaml.Node, path string) { o.Until = d.instant(n, path) }})
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		d.oneOf(n, path, "value", "network", "domain")
		d.oneOf(n, path, "limits", "exempt", "denied")
	}
	return o
}

// instant reads a time with its zone. A date alone is refused: the end of an override
// may be read as the begin or as the end of the day.
func (d *decoder) instant(n *yaml.Node, path string) time.Time {
	const want = "a time with its zone, such as 2027-01-31T00:00:00Z"
	if !d.Is(n, yaml.ScalarNode, path, want) {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, n.Value)
	d.Want(err == nil && !t.IsZero(), n.Line, path, "the value is %q, want %s", n.Value, want) // the zero time would be no end
	return t
}
