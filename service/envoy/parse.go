package envoy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/abacus-go/abacus/counter"
)

// maxDepth bounds the levels of descriptors in a file.
const maxDepth = 64

// units are the lengths of the units of the protocol.
var units = map[pb.RateLimitResponse_RateLimit_Unit]time.Duration{
	pb.RateLimitResponse_RateLimit_SECOND: time.Second,
	pb.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	pb.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	pb.RateLimitResponse_RateLimit_DAY:    24 * time.Hour,
	pb.RateLimitResponse_RateLimit_WEEK:   7 * 24 * time.Hour,
	pb.RateLimitResponse_RateLimit_MONTH:  30 * 24 * time.Hour,
	pb.RateLimitResponse_RateLimit_YEAR:   365 * 24 * time.Hour,
}

// unitsOf are the units by their lengths.
var unitsOf = map[time.Duration]pb.RateLimitResponse_RateLimit_Unit{}

func init() {
	for unit, length := range units {
		unitsOf[length] = unit
	}
}

// text is text of a file with its line, also a number or a word of YAML.
type text struct {
	string
	line int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *text) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: a mapping or a list, want text", n.Line)}}
	}
	t.string, t.line = n.Value, n.Line
	return nil
}

// file is a file of rules.
type file struct {
	Domain      text
	Descriptors []level
}

// level is a descriptor of a file.
type level struct {
	Key, Value     text
	RateLimit      *rateLimit `yaml:"rate_limit"`
	Descriptors    []level
	ShadowMode     bool `yaml:"shadow_mode"`
	QuotaMode      bool `yaml:"quota_mode"`
	ShareThreshold bool `yaml:"share_threshold"`
	DetailedMetric bool `yaml:"detailed_metric"`
	ValueToMetric  bool `yaml:"value_to_metric"`
	Metadata       map[string]any
}

// rateLimit is the rate_limit of a descriptor.
type rateLimit struct {
	RequestsPerUnit uint32 `yaml:"requests_per_unit"`
	Unit            text
	Unlimited       bool
	Name            text
	Replaces        []struct{ Name text }
	Limits          text
}

// rule is a rule of a file, or of the limit that a request brings.
type rule struct {
	kind          string         // of its features
	limits        counter.Limits // none: unlimited
	shadow, quota bool
	detailed      bool // the values of requests are labels, of all entries
	name          string
	replaces      []string
	metadata      map[string]any
}

// ofType finds the words of the parser about types of this package, and located the line
// of a fault, with the words before it.
var (
	ofType  = regexp.MustCompile(` in(to)? type envoy\.\w+| into envoy\.\w+`)
	located = regexp.MustCompile(`(?m)^(?:yaml: (?:unmarshal errors:\n)?)? *line (\d+): `)
)

// parse reads a file of rules, which has known keys alone, each once.
func parse(name string, data []byte) (*file, error) {
	f := &file{}
	in := yaml.NewDecoder(bytes.NewReader(data))
	in.KnownFields(true)
	text := ""
	if err := in.Decode(f); err == io.EOF {
		text = "line 1: the file is empty, want a domain"
	} else if err != nil {
		text = ofType.ReplaceAllString(err.Error(), "")
	} else if next := (yaml.Node{}); in.Decode(&next) != io.EOF {
		text = fmt.Sprintf("line %d: a second document, want one", max(1, next.Line))
	} else if f.Domain.string == "" {
		text = "line 1: the domain is missing"
	} else {
		return f, nil
	}
	if !located.MatchString(text) {
		text = "line 1: " + text // such as aliases that go in circles
	}
	return nil, errors.New(located.ReplaceAllString(text, strings.ReplaceAll(name, "$", "$$")+":$1: "))
}

// line is the line of a text of l.
func (l *level) line() int {
	in := cmp.Or(l.RateLimit, &rateLimit{})
	return cmp.Or(l.Key.line, l.Value.line, in.Unit.line, in.Limits.line, in.Name.line)
}

// rule returns the rule of l, nil if there is none, and the line of a fault.
func (l *level) rule() (*rule, int, error) {
	switch {
	case l.Key.string == "":
		return nil, l.line(), errors.New("a descriptor has no key, want one")
	case l.ShareThreshold && !strings.Contains(l.Value.string, wildcard):
		return nil, l.line(), fmt.Errorf("share_threshold of %q, want a value with %s", l.Value.string, wildcard)
	case l.RateLimit == nil:
		return nil, 0, nil
	}
	in := l.RateLimit
	r := &rule{shadow: l.ShadowMode, quota: l.QuotaMode, detailed: l.DetailedMetric, name: in.Name.string, metadata: l.Metadata}
	for _, other := range in.Replaces {
		if other.Name.string == "" || other.Name.string == r.name {
			return nil, max(l.line(), other.Name.line), fmt.Errorf("replaces has the name %q, want names of other rules", other.Name.string)
		}
		r.replaces = append(r.replaces, other.Name.string)
	}
	if _, err := structpb.NewStruct(l.Metadata); err != nil {
		return nil, l.line(), fmt.Errorf("metadata: %w", err)
	}
	per := units[pb.RateLimitResponse_RateLimit_Unit(pb.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(in.Unit.string)])]
	switch {
	case in.Unlimited && (per > 0 || in.Limits.string != ""):
		return nil, l.line(), errors.New("the rule is unlimited, and has a unit or limits, want one of them")
	case in.Unlimited:
		return r, 0, nil
	case in.Limits.string != "" && (in.Unit.string != "" || in.RequestsPerUnit > 0):
		return nil, in.Limits.line, errors.New("the rule has limits, and a unit or requests_per_unit, want one of them")
	case in.Limits.string != "":
		var err error
		r.limits, err = parseLimits(in.Limits.string)
		return r, in.Limits.line, err
	case per == 0:
		return nil, max(in.Unit.line, l.line()), fmt.Errorf("the unit is %q, want second, minute, hour, day, week, month or year", in.Unit.string)
	}
	r.limits = counter.Limits{{Max: int64(in.RequestsPerUnit), Per: per}}
	return r, 0, nil
}

// parseLimits reads limits in the form of this library.
func parseLimits(s string) (counter.Limits, error) {
	limits, err := counter.ParseLimits(s)
	for i, limit := range limits {
		if slices.ContainsFunc(limits[:i], func(before counter.Limit) bool { return before.Per == limit.Per && before.Period == limit.Period }) {
			return nil, fmt.Errorf("the limits are %q, want one for each window", s)
		}
	}
	return limits, err
}

func (r *rule) unlimited() bool { return len(r.limits) == 0 }
