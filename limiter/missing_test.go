package limiter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

func TestMissingFeatures(t *testing.T) {
	userElseIP := limiter.Rule{Event: "signup", Kind: "user", Limits: counter.MustLimits("9/h"), Else: "ip", ElseLimits: counter.MustLimits("5/h"), IfMissing: limiter.MissingShare}
	deny, skip, share := by("ip", "9/h"), ifMissing(limiter.MissingSkip, by("ip", "9/h")), ifMissing(limiter.MissingShare, by("ip", "9/h"))
	for _, row := range []struct {
		name     string
		rules    []limiter.Rule
		features []feature.Feature
		want     limiter.Outcome
		missing  string
		counted  map[string]int64
	}{
		{"denied", []limiter.Rule{by("user", "9/h"), deny}, featuresOf(user("7")), limiter.OutcomeMissing, "ip", map[string]int64{"user:7": 0}},
		{"the first that is missing is named", []limiter.Rule{by("user", "9/h"), deny}, nil, limiter.OutcomeMissing, "user", nil},
		{"no address is no feature", []limiter.Rule{deny}, featuresOf(feature.New("ip", "")), limiter.OutcomeMissing, "ip", nil},
		{"an empty one beside a good one", []limiter.Rule{deny}, featuresOf(feature.New("ip", ""), ip("192.0.2.1")), limiter.OutcomeAdmitted, "", map[string]int64{"ip:192.0.2.1": 1}},
		{"no one who skips helps", []limiter.Rule{ifMissing(limiter.MissingSkip, by("user", "9/h")), deny}, featuresOf(user("7")), limiter.OutcomeMissing, "ip", map[string]int64{"user:7": 0}},
		{"nor one who shares", []limiter.Rule{ifMissing(limiter.MissingShare, by("user", "9/h")), deny}, nil, limiter.OutcomeMissing, "ip", map[string]int64{"user:": 0}},
		{"skipped", []limiter.Rule{by("user", "9/h"), skip}, featuresOf(user("7")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1}},
		{"all skipped", []limiter.Rule{skip}, featuresOf(user("7")), limiter.OutcomeSkipped, "", nil},
		{"shared", []limiter.Rule{by("user", "9/h"), share}, featuresOf(user("7")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1, "ip:": 1}},
		{"nothing but shared", []limiter.Rule{share}, nil, limiter.OutcomeAdmitted, "", map[string]int64{"ip:": 1}},
		{"unknown: the rule is left out", []limiter.Rule{by("user", "9/h"), deny}, featuresOf(user("7"), feature.Unknown("ip")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1}},
		{"unknown, not shared", []limiter.Rule{by("user", "9/h"), share}, featuresOf(feature.Unknown("ip"), user("7")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1, "ip:": 0}},
		{"unknown beside a known one", []limiter.Rule{deny}, featuresOf(feature.Unknown("ip"), ip("192.0.2.1")), limiter.OutcomeAdmitted, "", map[string]int64{"ip:192.0.2.1": 1}},
		{"unknown, and another is missing", []limiter.Rule{by("user", "9/h"), deny}, featuresOf(feature.Unknown("user")), limiter.OutcomeMissing, "ip", nil},
		{"unknown, though Else is known", []limiter.Rule{userElseIP}, featuresOf(feature.Unknown("user"), ip("192.0.2.1")), limiter.OutcomeSkipped, "", map[string]int64{"ip:192.0.2.1": 0, "user:": 0}},
		{"Else unknown", []limiter.Rule{userElseIP}, featuresOf(feature.Unknown("ip")), limiter.OutcomeSkipped, "", map[string]int64{"user:": 0}},
		{"Else unknown, and not asked for", []limiter.Rule{userElseIP}, featuresOf(user("7"), feature.Unknown("ip")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1}},
		{"joined with an unknown one", []limiter.Rule{by("ip", "9/h"), by("ip+email", "9/h")}, featuresOf(ip("192.0.2.1"), feature.Join(ip("192.0.2.1"), feature.Unknown("email"))), limiter.OutcomeAdmitted, "", map[string]int64{"ip:192.0.2.1": 1}},
		{"not shared when there", []limiter.Rule{share}, featuresOf(ip("192.0.2.1")), limiter.OutcomeAdmitted, "", map[string]int64{"ip:": 0, "ip:192.0.2.1": 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := newCountingStore()
			c := newCounter(t, store, counter.Config{})
			lim := newLimiter(t, c, limiter.Config{Rules: row.rules})
			v := allow(t, lim, row.features...)
			steps, _ := store.asked()
			require.Equal(t, row.want, v.Outcome())
			require.Equal(t, row.missing, v.Missing)
			require.Equal(t, row.want == limiter.OutcomeAdmitted || row.want == limiter.OutcomeSkipped, v.Allowed)
			switch row.want {
			case limiter.OutcomeMissing:
				require.Equal(t, counter.Never, v.RetryAfter)
				require.Equal(t, row.missing, v.Kind())
			case limiter.OutcomeSkipped:
				require.Zero(t, v.RetryAfter)
				require.Empty(t, v.Kind())
			}
			if row.want != limiter.OutcomeAdmitted {
				require.Zero(t, steps, "the store is not asked")
				require.Empty(t, v.All())
			}
			for feature, n := range row.counted {
				require.Equal(t, n, counted(t, c, feature), feature)
			}
			require.NoError(t, lim.Refund(ctx, &v))
		})
	}
}

// Calls without an address share a key: not with an address, and not with calls
// that lack another kind.
func TestShare(t *testing.T) {
	lim := onMemory(t, ifMissing(limiter.MissingShare, by("ip", "2/h")), ifMissing(limiter.MissingShare, by("user", "3/h")))
	for i, row := range []struct {
		features []feature.Feature
		want     bool
		kind     string
	}{
		{featuresOf(user("ada")), true, "ip"},
		{featuresOf(user("bob")), true, "ip"},
		{featuresOf(user("eve")), false, "ip"},
		{featuresOf(ip("192.0.2.1")), true, "ip"}, // the user is shared, with a count of one in three
		{featuresOf(ip("192.0.2.1")), true, "ip"},
		{featuresOf(ip("192.0.2.2")), true, "user"},
		{featuresOf(ip("192.0.2.3")), false, "user"},
		{featuresOf(ip("192.0.2.3"), user("eve")), true, "ip"},
		{featuresOf(ip("192.0.2.3"), user(":")), true, "ip"},
		{nil, false, "ip"},
	} {
		v := allow(t, lim, row.features...)
		require.Equal(t, row.want, v.Allowed, "row %d", i)
		require.Equal(t, row.kind, v.Kind(), "row %d", i)
	}
}
