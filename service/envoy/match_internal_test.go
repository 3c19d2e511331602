package envoy

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// choices makes a tree of rules and a descriptor of few texts, as bytes choose.
type choices struct{ data []byte }

func (c *choices) of(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

var (
	someKeys   = []string{"a", "b", "a=b", "a/b"}
	someValues = []string{"", "x", "xy", "*", "x*", "*y", "x*y", "x*y*", "**", "1:x"}
	someTexts  = []string{"", "x", "xy", "xay", "xxyy", "yx", "*", "x*", "1:x", "x\n"}
)

func (c *choices) levels(depth int) (all []level) {
	for range c.of(5) {
		l := level{Key: text{someKeys[c.of(len(someKeys))], 1}, Value: text{someValues[c.of(len(someValues))], 1}}
		if l.ShareThreshold = c.of(4) == 0 && strings.Contains(l.Value.string, "*"); c.of(3) > 0 {
			l.RateLimit = &rateLimit{Unit: text{"hour", 1}, RequestsPerUnit: 1}
		}
		if depth < 3 {
			l.Descriptors = c.levels(depth + 1)
		}
		all = append(all, l)
	}
	return all
}

// naive is the rule of a descriptor and the values under which it is counted, by a look at
// each level of the rules: the levels from the first on, and the values so far.
func naive(levels []level, entries []*common.RateLimitDescriptor_Entry) (found *level, values []string) {
	e := entries[0]
	matches := []func(l *level) bool{
		func(l *level) bool { return l.Value.string != "" && l.Value.string == e.Value },
		func(l *level) bool {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(l.Value.string), `\*`, `(?s:.*)`)
			return strings.Contains(l.Value.string, "*") && regexp.MustCompile("^"+pattern+`\z`).MatchString(e.Value)
		},
		func(l *level) bool { return l.Value.string == "" },
	}
	for _, match := range matches {
		for i := range levels {
			l := &levels[i]
			if l.Key.string != e.Key || !match(l) {
				continue
			}
			value := e.Value
			if l.ShareThreshold {
				value = l.Value.string
			}
			if len(entries) == 1 {
				return l, []string{value}
			}
			found, values = naive(l.Descriptors, entries[1:])
			return found, append([]string{value}, values...)
		}
	}
	return nil, nil
}

// twice reports whether two levels are the same.
func twice(levels []level) bool {
	seen := map[entry]bool{}
	for i := range levels {
		l := &levels[i]
		at := entry{l.Key.string, l.Value.string}
		if seen[at] || twice(l.Descriptors) {
			return true
		}
		seen[at] = true
	}
	return false
}

// The matcher finds the rule that a look at each level finds.
func FuzzMatch(f *testing.F) {
	for seed := range 400 {
		data := make([]byte, 60)
		for i := range data {
			data[i] = byte((seed + 3) * (i + 7) * (i + seed*i + 1) >> 3)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{data}
		var entries []*common.RateLimitDescriptor_Entry
		for range 1 + c.of(3) {
			entries = append(entries, &common.RateLimitDescriptor_Entry{Key: someKeys[c.of(len(someKeys))], Value: someTexts[c.of(len(someTexts))]})
		}
		levels := c.levels(1)
		root := &node{}
		err := root.add("f", "", 1, levels)
		if twice(levels) {
			require.ErrorContains(t, err, "want each once")
			return
		}
		require.NoError(t, err)
		got, text := root.match(entries, nil)
		want, values := naive(levels, entries)
		if want == nil || want.RateLimit == nil {
			require.Nil(t, got, "%v in %v", entries, levels)
			return
		}
		require.NotNil(t, got, "%v in %v", entries, levels)
		var length []byte
		for _, value := range values {
			length = fmt.Appendf(length, "%d:%s", len(value), value)
		}
		require.Equal(t, string(length), string(text))
		require.Equal(t, kindOf(pathOf(levels, want, ""), got.limits), got.kind)
	})
}

// pathOf is the path of a level.
func pathOf(levels []level, of *level, before string) string {
	for i := range levels {
		l := &levels[i]
		path := before + "/" + escape(l.Key.string)
		if l.Value.string != "" {
			path += "=" + escape(l.Value.string)
		}
		if l == of {
			return path
		}
		if below := pathOf(l.Descriptors, of, path); below != "" {
			return below
		}
	}
	return ""
}

// A file is an error, or rules that the limiter takes.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"domain: d\ndescriptors: [{key: k, value: v*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 5}}]",
		"domain: d\ndescriptors:\n- key: a\n  shadow_mode: true\n  rate_limit: &r {limits: '5/s, 100/10m', name: n, replaces: [{name: m}]}\n  descriptors:\n  - {key: b, quota_mode: yes, rate_limit: *r, metadata: {a: [1, {b: c}]}}",
		"domain: ''\n", "domain: &a [*a]", "\x00", "domain: d\ndescriptors: [{key: k, rate_limit: {limits: 1/500d}}]", "domain: d\ndescriptors: [{key: \"\\u00e9\\0:+\", rate_limit: {limits: 5/1ms}}]",
		"domain: d\ndescriptors: [{key: k, rate_limit: {limits: '5/s, 9 per month from 15 in Europe/Berlin, 100 per day in UTC'}}]",
		"{\"domain\": \"d\", \"descriptors\": [{\"key\": \"k\", \"rate_limit\": {\"unlimited\": true}}]}",
	} {
		f.Add([]byte(seed))
	}
	c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{}))(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := compile([]content{{"f", data}}, &Config{})
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "f:"), "%v", err)
			return
		}
		_, err = limiter.New(c, limiter.Config{Rules: set.rules})
		require.NoError(t, err)
	})
}

// A message is an error, or the request that the generated code reads, but for text that is
// not UTF-8, or looks as if it had been escaped: different texts stay different.
func FuzzRequest(f *testing.F) {
	for _, r := range []*pb.RateLimitRequest{
		{Domain: "d", HitsAddend: 7, Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}, {Key: "\uFFFD"}}}}},
		{Domain: "d", Descriptors: []*common.RateLimitDescriptor{{Limit: &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: 1}, Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "\uFFFDff"}}}}},
	} {
		message := try.To(proto.Marshal(r))(f)
		f.Add(message)
		f.Add(bytes.ReplaceAll(message, []byte("v"), []byte("\xff")))
		f.Add(append(message, 0xff))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := decode(message)
		want := &pb.RateLimitRequest{}
		if invalid := proto.Unmarshal(message, want); err != nil || invalid != nil || bytes.Contains(message, []byte(mark)) {
			if err == nil { // escaped: nothing but text has changed
				room := maxParts
				escaped := escapeText(nil, message, want.ProtoReflect().Descriptor(), &room)
				require.NoError(t, proto.Unmarshal(escaped, want))
				require.True(t, proto.Equal(want, got))
			}
			return
		}
		require.True(t, proto.Equal(want, got))
	})
}

// A request of empty parts takes no more memory than a long one.
func TestRequestsOfManyParts(t *testing.T) {
	for name, message := range map[string]string{
		"descriptors": "\x0a\x01d" + strings.Repeat("\x12\x00", 2<<20),
		"entries":     "\x0a\x01d\x12\x80\x80\x80\x02" + strings.Repeat("\x0a\x00", 2<<20),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decode([]byte(message))
		runtime.ReadMemStats(&after)
		require.ErrorContains(t, err, "more than 20000 parts", name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(40<<20), name)
	}
	message := try.To(proto.Marshal(&pb.RateLimitRequest{Domain: "d", Descriptors: slices.Repeat([]*common.RateLimitDescriptor{{Entries: slices.Repeat([]*common.RateLimitDescriptor_Entry{{Key: "key", Value: "value"}}, 100)}}, 100)}))(t)
	require.Greater(t, len(message), isShort)
	try.To(decode(message))(t)
}
