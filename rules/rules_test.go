package rules_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
	"github.com/abacus-go/abacus/tiers"
)

// examples returns the files in a directory of testdata.
func examples(t testing.TB, dir string, least int) []string {
	files := try.To(filepath.Glob(filepath.Join("testdata", dir, "*")))(t)
	require.GreaterOrEqual(t, len(files), least)
	return files
}

func TestFullFile(t *testing.T) {
	set := try.To(rules.Load("testdata/good/full.yaml"))(t)
	former := set.Rules[2].Former
	require.Equal(t, &counter.Config{Ladder: tiers.Default}, former)
	require.Equal(t, []limiter.Rule{
		{
			Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/m,20/h,100/d"), OnFailure: limiter.FailLocal, IfMissing: limiter.MissingShare,
			Overrides: []limiter.Override{
				{Value: "203.0.113.9", Exempt: true, Comment: "the monitor"},
				{Network: netip.MustParsePrefix("198.51.100.0/24"), Limits: counter.MustLimits("1000/d"), Until: time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)},
				{Network: netip.MustParsePrefix("2001:db8::/32"), Denied: true},
			},
		},
		{Event: "signup", Kind: "ip", Limits: counter.MustLimits("10/h"), Soft: true, Percent: 10},
		{
			Event: "signup", Kind: "email", Limits: counter.MustLimits("3/d"), Ban: limiter.Bans{24 * time.Hour}, Ladder: must(tiers.Parse("1s:7d,1m:7d,1h:7d")), Former: former,
			Overrides: []limiter.Override{{Domain: "example.org", Exempt: true}},
		},
		{
			Event: "mail", Kind: "user", Limits: counter.MustLimits("20/d"), Plans: []counter.Limits{counter.MustLimits("20/d"), counter.MustLimits("2000/d,50000 per month from 15 in Europe/Berlin")},
			Else: "ip", ElseLimits: counter.MustLimits("5 per day in UTC"), IfMissing: limiter.MissingSkip,
		},
	}, set.Rules)
	require.Equal(t, counter.MustLimits("2000/d,50000 per month from 15 in Europe/Berlin"), set.Plan("mail", "user", "pro"))
	require.Nil(t, set.Plan("mail", "user", "other"))
	require.Equal(t, 4, set.Line(0))
	require.Equal(t, 19, set.Line(2))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestGoodFiles(t *testing.T) {
	for _, file := range examples(t, "good", 3) {
		require.NoError(t, try.Err(rules.Load(file)), file)
	}
}

// Each bad file begins with its errors, as comments.
func TestBadFiles(t *testing.T) {
	for _, file := range examples(t, "bad", 5) {
		data := try.To(os.ReadFile(file))(t)
		_, err := rules.Load(file)
		require.Error(t, err, file)
		var want, got []string
		for line := range strings.Lines(string(data)) {
			if text, found := strings.CutPrefix(line, "# "); found && '0' <= text[0] && text[0] <= '9' {
				want = append(want, strings.TrimSpace(text))
			}
		}
		for line := range strings.Lines(err.Error()) {
			got = append(got, strings.TrimSpace(strings.TrimPrefix(line, file+":")))
		}
		require.Equal(t, want, got, "%s:\n%s", file, strings.Join(got, "\n"))
	}
}

// Faults of which a file cannot have another besides, or that a comment would mend.
func TestUnreadable(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "f:1: the file is empty, want rules under the key events",
		" \n\n":                              "f:1: the file is empty, want rules under the key events",
		"# nothing\n":                        "f:1: the file has comments only, want rules under the key events",
		"---\n":                              "f:2: the value is empty, want a mapping with the key events",
		"events:\n":                          "f:1: events: the value is empty, want events by name",
		"events: {}\n":                       "f:1: events: the mapping is empty, want events by name",
		"{}":                                 "f:1: the mapping is empty, want a mapping with the key events",
		"events:\n  a:\n\tip: x\n":           "f:3: a tab in the indentation, want spaces",
		"events:\n  a:\n    b: 1\n   c: 2\n": "f:4: YAML: did not find expected key",
		"events:\n  a: 'x\n  b: y\n":         "f:2: YAML: found unexpected end of stream",
		"events:\n  a: {ip: {limits: \"5/m\"\n  b: 1\n":              "f:2: YAML: did not find expected ',' or '}'",
		"events:\n  a: b: c\n  d: e\n":                               "f:2: YAML: mapping values are not allowed in this context",
		"events: *x\nb: 1\n":                                         "f:1: YAML: unknown anchor 'x' referenced",
		"events:\n  a: 1\n---\nevents: {}\n":                         "f:3: a second document begins here, want one document",
		"events: {}}\n":                                              "f:1: YAML: did not find expected key",
		"events:\n  a: \xff\n":                                       "f:2: a byte that is not UTF-8, want a file in UTF-8",
		"\xff\xfee\x00":                                              "f:1: a byte that is not UTF-8, want a file in UTF-8",
		"events:\n  a: \x00\n":                                       "f:2: YAML: control characters are not allowed",
		"events: " + strings.Repeat("[", 20_000):                     "f:1: YAML: exceeded max depth of 10000",
		"a: 1\n" + strings.Repeat("#", rules.MaxSize):                "f:1: the file has more than 1048576 bytes, want at most as many",
		"events: {a: {b: {limits: 99999999999999999999/m}}}":         `f:1: events.a.b.limits: limit "99999999999999999999/m": max 99999999999999999999, want 0 to 9007199254740991`,
		"events: {a: {b: {limits: 9007199254740992/m}}}":             "f:1: events.a.b.limits: limit 9007199254740992/m: max 9007199254740992, want 0 to 9007199254740991",
		"<<: {events: {}}\n":                                         "f:1: the value is <<, not text, want a key as text; in quotes \"<<\" is text",
		"events: {a: {ip: {limits: 5/m, soft: true, percent: 010}}}": "f:1: events.a.ip.percent: the value is the number 010, want a whole number of percent, 1 to 100",
		"events: {a: {ip: {limits: 5/m, overrides: [{value: 192.0.2.1, denied: true, until: 0001-01-01T00:00:00Z}]}}}": `f:1: events.a.ip.overrides[0].until: the value is "0001-01-01T00:00:00Z", want a time with its zone, such as 2027-01-31T00:00:00Z`,
		"!!map {events: {}}": "f:1: the tag !!map is not supported, want a mapping with the key events without a tag",
	} {
		require.EqualError(t, try.Err(rules.Parse("f", []byte(text))), want, "%.60q", text)
	}
}

// Some writers of JSON escape all slashes, and all but ASCII.
func TestEscapesOfJSON(t *testing.T) {
	set := try.To(rules.Parse("f", []byte(`{"events": {"a": {"user": {"limits": "5\/m", "overrides": [
		{"value": "\ud83d\uDE00\u00e4\\/\\\/\"", "exempt": true, "comment": "\t"}]}}}}`)))(t)
	require.Equal(t, counter.MustLimits("5/m"), set.Rules[0].Limits)
	require.Equal(t, "\U0001F600ä\\/\\/\"", set.Rules[0].Overrides[0].Value)
	_, err := rules.Parse("f", []byte(`{"events":`+"\n"+`{"a": {"b": {"limits": "5\/m",`+"\n"+`"ban": "1\/"}}}}`))
	require.EqualError(t, err, `f:3: events.a.b.ban: duration "1/": want a number and a unit (ms, s, m, h, d, w), such as 30s, 24h or 7d`)
}

// A program finds the faults one by one.
func TestErrorsAreValues(t *testing.T) {
	_, err := rules.Parse("f", []byte("events:\n  a:\n    ip: {limits: 5}\n    user: {limits: 1/x}\n"))
	var joined interface{ Unwrap() []error }
	require.ErrorAs(t, err, &joined)
	require.Len(t, joined.Unwrap(), 2)
	var first *rules.Error
	require.True(t, errors.As(err, &first))
	require.Equal(t, "f", first.File)
	require.Equal(t, 3, first.Line)
	require.Equal(t, "events.a.ip.limits", first.Path)
}

func TestLoadWantsAFile(t *testing.T) {
	require.ErrorContains(t, try.Err(rules.Load(t.TempDir())), "is not a regular file")
	require.ErrorIs(t, try.Err(rules.Load("testdata/nowhere.yaml")), os.ErrNotExist)
}

func FuzzParse(f *testing.F) {
	for _, file := range append(examples(f, "good", 3), examples(f, "bad", 5)...) {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := rules.Parse("f", data)
		if err == nil {
			count := try.To(counter.New(memory.New(memory.Config{}), counter.Config{}))(t)
			lim := try.To(limiter.New(count, limiter.Config{Rules: set.Rules, Local: count}))(t)
			require.NoError(t, lim.Close(t.Context()))
			return
		}
		require.Nil(t, set)
		// Each fault has a line of the file.
		lines := 1 + strings.Count(string(data), "\n") + strings.Count(string(data), "\r")
		var joined interface{ Unwrap() []error }
		require.ErrorAs(t, err, &joined)
		for _, err := range joined.Unwrap() {
			var fault *rules.Error
			require.ErrorAs(t, err, &fault)
			require.True(t, 1 <= fault.Line && fault.Line <= lines+1, "%v", err)
		}
	})
}

// The example of docs/rules.md is a file of rules.
func TestExampleOfTheDocumentation(t *testing.T) {
	page := try.To(os.ReadFile("../docs/rules.md"))(t)
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	require.True(t, found)
	example, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	set := try.To(rules.Parse("docs/rules.md", []byte(example)))(t)
	require.Len(t, set.Rules, 5)
	require.Len(t, set.Rules[0].Overrides, 3)
}

// A plan holds for the features of its rule: neither for the kind of else nor for a soft
// rule, and an unknown plan is the limits of the rule. The Set stays as it is.
func TestPlansBy(t *testing.T) {
	set := try.To(rules.Parse("rules.yaml", []byte(`
events:
  mail:
    user:
      - limits: 1/h
        plans: {pro: 3/h}
        else: {kind: ip, limits: 2/h}
      - limits: 1/h
        soft: true
  login:
    user:
      - {limits: 5/h, plans: {pro: 9/h}}
      - {limits: 20/d}
`)))(t)
	c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{}))(t)
	planOf := func(_ context.Context, c limiter.Call) string {
		if c.Feature.Of("ip") { // else
			return "pro"
		}
		return strings.TrimPrefix(c.Feature.Value(), "of ")
	}
	all := set.PlansBy(planOf)
	_, err := limiter.New(c, limiter.Config{Rules: all})
	require.EqualError(t, err, `limiter: rule "login" by "user": Config.Rules[3].LimitsOf is set here or in Config.Rules[2], want a single rule for the event and kind then`)
	lim := try.To(limiter.New(c, limiter.Config{Rules: all[:2]}))(t)
	for _, row := range []struct {
		feature feature.Feature
		limit   string
		soft    int // denials by the soft rule
	}{
		{feature.New("user", "of pro"), "3/h", 2},
		{feature.New("user", "of others"), "1/h", 0},
		{feature.New("ip", "192.0.2.1"), "2/h", 0},
	} {
		limit, soft := counter.MustLimits(row.limit)[0], 0
		for n := range limit.Max + 1 {
			v := try.To(lim.Allow(t.Context(), "mail", row.feature))(t)
			require.Equal(t, n < limit.Max, v.Allowed, row.limit)
			require.Equal(t, limit, v.Limit)
			for _, s := range v.Soft {
				if s.Denied && row.feature.Of("user") {
					soft++
				}
			}
		}
		require.Equal(t, row.soft, soft, row.limit)
	}
	for _, r := range set.Rules {
		require.Nil(t, r.LimitsOf)
	}
}
