package envoy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"unicode/utf8"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// invalid is an error that the client has made.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// Bounds of requests: 100 descriptors of 100 entries have fewer parts, and a short request
// cannot have many. The parser makes 70 bytes of each byte of a request of empty parts.
const maxParts, isShort = 20_000, 64 << 10

// decode reads a request. All errors are the client's.
func decode(message []byte) (*pb.RateLimitRequest, error) {
	r := &pb.RateLimitRequest{}
	if len(message) > isShort || bytes.Contains(message, []byte(mark)) || proto.Unmarshal(message, r) != nil {
		room := maxParts
		message = escapeText(nil, message, r.ProtoReflect().Descriptor(), &room)
		if err := proto.Unmarshal(message, r); err != nil || room < 0 {
			return nil, invalid("the request is no message, or has more than %d parts: %v", maxParts, err)
		}
	}
	switch n := len(r.Descriptors); {
	case r.Domain == "":
		return nil, invalid("the request has no domain, want one")
	case n == 0 || n > counter.MaxKeys:
		return nil, invalid("the request has %d descriptors, want 1 to %d", n, counter.MaxKeys)
	}
	for _, d := range r.Descriptors {
		switch {
		case len(d.Entries) == 0:
			return nil, invalid("a descriptor has no entries, want one or more")
		case d.Limit != nil && units[unitOf(d)] == 0:
			return nil, invalid("the limit of a descriptor has the unit %s, want a unit from SECOND to YEAR", unitOf(d))
		case d.HitsAddend.GetValue() > counter.MaxCount:
			return nil, invalid("a descriptor has %d hits, want at most %d", d.HitsAddend.GetValue(), int64(counter.MaxCount))
		case slices.ContainsFunc(d.Entries, func(e *common.RateLimitDescriptor_Entry) bool { return e.Key == "" }):
			return nil, invalid("an entry of a descriptor has no key, want one")
		}
	}
	return r, nil
}

// unitOf is the unit of the limit that a descriptor brings.
func unitOf(d *common.RateLimitDescriptor) pb.RateLimitResponse_RateLimit_Unit {
	return pb.RateLimitResponse_RateLimit_Unit(d.Limit.Unit)
}

// mark begins the hexadecimal form of text that begins with it, or is not UTF-8.
const mark = "\uFFFD"

// escapeText appends a message to dst in which all text is UTF-8: the parser refuses other
// text, but Envoy sends the values of headers as they are, and lets a request pass whose
// answer is an error. Different texts stay different. With more parts than there is room for
// the end is missing.
func escapeText(dst, message []byte, of protoreflect.MessageDescriptor, room *int) []byte {
	for *room--; len(message) > 0 && *room >= 0; {
		number, typ, size := protowire.ConsumeField(message)
		if size < 0 {
			return append(dst, message...) // an error of the parser
		}
		field := of.Fields().ByNumber(number)
		if field == nil || typ != protowire.BytesType || field.Kind() != protoreflect.StringKind && field.Message() == nil {
			dst, message = append(dst, message[:size]...), message[size:]
			continue
		}
		_, _, tag := protowire.ConsumeTag(message)
		text, _ := protowire.ConsumeBytes(message[tag:])
		switch {
		case field.Message() != nil:
			text = escapeText(nil, text, field.Message(), room)
		case !utf8.Valid(text) || bytes.HasPrefix(text, []byte(mark)):
			text = hex.AppendEncode([]byte(mark), text)
		}
		dst, message = protowire.AppendBytes(protowire.AppendTag(dst, number, typ), text), message[size:]
	}
	return dst
}

// target is a descriptor of a request with the rule that it has met.
type target struct {
	*common.RateLimitDescriptor
	rule     *rule // nil: none
	n        int64 // hits
	replaced bool
	first    int // the index of the first target that is counted under the same text
	feature  feature.Feature
	state    *counter.State // of the limit that binds; nil: not counted, or nothing is known
}

// counted reports whether t is counted.
func (t *target) counted() bool { return t.rule != nil && !t.rule.unlimited() && !t.replaced }

// costs reports whether the hits of t are counted whatever the limit: those that a
// descriptor has of its own are known afterwards.
func (t *target) costs() bool { return t.HitsAddend != nil && t.n > 0 && !t.IsNegativeHits }

// targetsOf finds the rule of each descriptor, and the feature that the rule counts.
// mayOverride says whether limits that a descriptor brings hold.
func targetsOf(r *pb.RateLimitRequest, set *ruleset, mayOverride bool) []target {
	root := set.domains[r.Domain]
	targets := make([]target, len(r.Descriptors))
	var replaced []string
	var buf [256]byte
	for i := range targets {
		t := &targets[i]
		t.RateLimitDescriptor, t.first, t.n = r.Descriptors[i], i, int64(max(1, r.HitsAddend))
		if t.HitsAddend != nil {
			t.n = int64(t.HitsAddend.Value)
		}
		if root == nil {
			continue
		}
		var text []byte
		t.rule, text = root.match(t.Entries, buf[:0])
		if t.Limit != nil && mayOverride {
			t.rule, text = set.override(t, text, buf[:0])
		}
		if t.rule == nil {
			continue
		}
		replaced = append(replaced, t.rule.replaces...)
		if !t.rule.unlimited() {
			t.feature = feature.New(t.rule.kind, value(text))
		}
	}
	for i := range targets {
		t := &targets[i]
		t.replaced = t.rule != nil && slices.Contains(replaced, t.rule.name)
		same := func(other target) bool { return other.counted() && other.feature == t.feature }
		if first := slices.IndexFunc(targets[:i], same); first >= 0 && t.counted() {
			t.first = first
		}
	}
	return targets
}

// override returns the rule by the limit that t brings: on the counts of the rule that t has
// met, if that has the same window and is not in shadow_mode, whose policy for a store that
// fails is another; else on counts by all entries.
func (set *ruleset) override(t *target, text, buf []byte) (*rule, []byte) {
	limits := counter.Limits{{Max: int64(t.Limit.RequestsPerUnit), Per: units[unitOf(t.RateLimitDescriptor)]}}
	if r := t.rule; r != nil && !r.unlimited() && !r.shadow && len(r.limits) == 1 && r.limits[0].Per == limits[0].Per {
		return &rule{kind: r.kind, limits: limits, detailed: r.detailed}, text
	}
	for _, e := range t.Entries {
		buf = appendText(appendText(buf, e.Key), e.Value)
	}
	return &rule{kind: kindOf(wildcard, limits), limits: limits, shadow: set.shadow, quota: set.quota}, buf // a path of a file has a slash first
}

// maxValue is the length of the text that is counted as it is. A longer text is its digest,
// so that no request takes much memory for as long as a limit lasts.
const maxValue = 256

// value is the value of a feature with the text of match, which begins with a digit.
func value(text []byte) string {
	if len(text) > maxValue {
		sum := sha256.Sum256(text)
		return "#" + string(sum[:])
	}
	return string(text)
}

// call is what the limiter is asked for the targets of a request.
type call struct {
	take   []feature.Feature
	credit []feature.Feature // whose hits are given back
	asks   []int             // by the first of equal targets, the index in take; -1: none
	keys   int               // of take
	costs  bool              // a target has costs
}

// callOf returns the features of the targets that are counted. Rules that deny no call are
// charged; so is a rule in quota_mode next to others, since it denies only with them.
func callOf(targets []target) (c call) {
	c.asks = make([]int, len(targets))
	quotas := 0
	for i := range targets {
		c.asks[i] = -1
		if t := &targets[i]; t.counted() && t.rule.quota && t.first == i {
			quotas++
		}
	}
	for i := range targets {
		t := &targets[i]
		if !t.counted() {
			continue
		}
		f := t.feature
		if t.HitsAddend != nil {
			f = limiter.Times(f, t.n)
		}
		if t.Limit != nil {
			f = limiter.Under(f, t.rule.limits)
		}
		if t.IsNegativeHits && t.n > 0 {
			c.credit = append(c.credit, f)
			continue
		}
		if t.costs() || t.rule.shadow || t.rule.quota && quotas > 1 {
			f = limiter.Charged(f)
		}
		c.costs = c.costs || t.costs()
		if c.asks[t.first] < 0 {
			c.asks[t.first] = len(c.take)
			c.keys++
			if t.rule.shadow {
				c.keys++
			}
		}
		c.take = append(c.take, f)
	}
	return c
}
