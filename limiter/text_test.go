package limiter_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/limiter"
)

// A rule in JSON is text throughout, and what is written is read again.
func TestRulesAreText(t *testing.T) {
	written := []limiter.Rule{
		by("ip", "5/h, 20/d"),
		ifMissing(limiter.MissingSkip, onFailure(limiter.FailOpen, by("user", "5/h"))),
		ifMissing(limiter.MissingShare, onFailure(limiter.FailLocal, by("email", "5/h"))),
	}
	text, err := json.Marshal(written)
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"Event": "signup", "Kind": "ip", "Limits": "5/h, 20/d", "OnFailure": "fail-closed", "IfMissing": "deny"},
		{"Event": "signup", "Kind": "user", "Limits": "5/h", "OnFailure": "fail-open", "IfMissing": "skip"},
		{"Event": "signup", "Kind": "email", "Limits": "5/h", "OnFailure": "fail-local", "IfMissing": "share"}
	]`, string(text))
	var read []limiter.Rule
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, written, read)

	for in, want := range map[string]string{
		`{"OnFailure": "FailOpen"}`: `limiter: OnFailure is "FailOpen", want one of "fail-closed", "fail-open" and "fail-local"`,
		`{"OnFailure": ""}`:         `limiter: OnFailure is "", want one of `,
		`{"IfMissing": "allow"}`:    `limiter: IfMissing is "allow", want one of "deny", "skip" and "share"`,
	} {
		rule := written[1]
		require.ErrorContains(t, json.Unmarshal([]byte(in), &rule), want)
		require.Equal(t, written[1], rule, "%s: unchanged", in)
	}
}

// Every number has a String; only the constants have a text to be read again.
func TestConstantsAreText(t *testing.T) {
	counts := map[limiter.Outcome]int{}
	for o := limiter.OutcomeOverLimit; o <= limiter.OutcomeForgotten; o++ {
		counts[o] = int(o)
	}
	text, err := json.Marshal(counts)
	require.NoError(t, err)
	require.JSONEq(t, `{"over-limit": 0, "missing": 1, "failed-closed": 2, "admitted": 3, "skipped": 4, "failed-open": 5, "local-over-limit": 6, "local-admitted": 7, "banned": 8, "denied": 9, "exempt": 10, "forgotten": 11}`, string(text))
	var read map[limiter.Outcome]int
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, counts, read)
	require.ErrorContains(t, json.Unmarshal([]byte(`{"late": 1}`), &read), `limiter: Outcome is "late", want one of "over-limit", `)

	require.Equal(t, "OnFailure(3) IfMissing(3) Outcome(12)", limiter.OnFailure(3).String()+" "+limiter.IfMissing(3).String()+" "+limiter.Outcome(12).String())
	for want, wrong := range map[string]any{
		"limiter: OnFailure is 3, want 0 to 2": limiter.OnFailure(3),
		"limiter: IfMissing is 4, want 0 to 2": limiter.IfMissing(4),
		"limiter: Outcome is 12, want 0 to 11": limiter.Outcome(12),
	} {
		_, err := json.Marshal(wrong)
		require.ErrorContains(t, err, want)
	}
}

// A Verdict is a value: what Allow returns has all methods, in an interface too.
func TestVerdictIsAValue(t *testing.T) {
	lim := onMemory(t, by("ip", "2/h"))
	var v any = allow(t, lim, ip("192.0.2.1"))
	_, is := v.(interface {
		Kind() string
		Rule() string
		Outcome() limiter.Outcome
		String() string
	})
	require.True(t, is)
	require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, ip("192.0.2.1")).Outcome())
	require.Len(t, allow(t, lim, ip("192.0.2.1")).All(), 1)
}
