package limiter_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// A hit counts for the address and for the user, or for neither, and the verdict
// names the kind that binds.
func TestAllOrNothing(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "3/h"), by("user", "2/h")}})
	for i, row := range []struct {
		ip, user  string
		allowed   bool
		kind      string // the limit that binds
		remaining int64
		byIP      int64 // counted afterwards
		byUser    int64
	}{
		{"192.0.2.1", "ada", true, "user", 1, 1, 1},
		{"192.0.2.1", "ada", true, "user", 0, 2, 2},
		{"192.0.2.1", "ada", false, "user", 0, 2, 2},
		{"192.0.2.2", "ada", false, "user", 0, 0, 2},
		{"192.0.2.1", "bob", true, "ip", 0, 3, 1},
		{"192.0.2.1", "bob", false, "ip", 0, 3, 1},
		{"192.0.2.1", "eve", false, "ip", 0, 3, 0},
		{"192.0.2.2", "bob", true, "user", 0, 1, 2},
	} {
		v := allow(t, lim, ip(row.ip), user(row.user))
		require.Equal(t, []any{row.allowed, row.kind, row.kind, row.remaining, !row.allowed, 2},
			[]any{v.Allowed, v.Kind(), feature.KindOf(v.Key.Feature), v.Remaining, v.RetryAfter > 0, len(v.All())}, "row %d", i)
		require.Equal(t, []int64{row.byIP, row.byUser}, []int64{counted(t, c, "ip:"+row.ip), counted(t, c, "user:"+row.user)}, "row %d", i)
	}
}

// Each feature counts once by its rule, whatever the order of the rules and of the
// features, and features of other kinds are ignored.
func TestSeveralOfOneKind(t *testing.T) {
	store := newCountingStore()
	c := newCounter(t, store, counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", "2/h"), by("ip", "9/h")}})
	home := ip("192.0.2.1")
	others := featuresOf(feature.New("ip:x", "1"), feature.Feature{}, feature.New("", "1"), feature.Email("a@b.org"), feature.New("IP", "1"))
	v := allow(t, lim, append(others, user("ada"), home, user("bob"))...)
	steps, demands := store.asked()
	require.Equal(t, []any{true, 3, 1, 3}, []any{v.Allowed, len(v.All()), steps, demands})
	require.True(t, allow(t, lim, user("bob"), home).Allowed)
	v = allow(t, lim, home, user("ada"), user("bob"))
	require.Equal(t, []any{false, "user:bob", int64(1)}, []any{v.Allowed, v.Key.Feature, counted(t, c, "user:ada")})
	require.Equal(t, []int64{2, 2}, []int64{counted(t, c, "user:bob"), counted(t, c, "ip:192.0.2.1")})
}

func TestAllowN(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h"), by("user", "9/h")}})
	for _, n := range []int64{0, -1, math.MinInt64, counter.MaxCount + 1} {
		v, err := lim.AllowN(ctx, "signup", n, ip("192.0.2.1"), user("7"))
		require.EqualError(t, err, fmt.Sprintf(`limiter: event "signup": n is %d, want 1 to 9007199254740991`, n))
		require.Equal(t, limiter.Verdict{}, v)
	}
	for i, row := range []struct {
		n              int64
		allowed, never bool
		counted        int64
	}{
		{3, true, false, 3},
		{3, false, false, 3},
		{6, false, true, 3}, // more than the address ever has
		{2, true, false, 5},
		{1, false, false, 5},
		{counter.MaxCount, false, true, 5},
	} {
		v := allowN(t, lim, row.n, ip("192.0.2.1"), user("7"))
		require.Equal(t, row.allowed, v.Allowed, "row %d", i)
		require.Equal(t, row.never, v.RetryAfter == counter.Never, "row %d", i)
		for _, feature := range []string{"ip:192.0.2.1", "user:7"} {
			require.Equal(t, row.counted, counted(t, c, feature), "row %d", i)
		}
	}
}

// Peek says what the next call is told, counts nothing, and cannot be refunded.
func TestPeek(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "3/h, 9/d"), by("user", "2/h")}})
	features := featuresOf(ip("192.0.2.1"), user("7"))
	for call := range 4 {
		before := counted(t, c, "user:7")
		peeked := peek(t, lim, 1, features...)
		states := peeked.All()
		again := peek(t, lim, 1, features...)
		require.Equal(t, states, again.All(), "call %d", call)
		require.NoError(t, lim.Refund(ctx, &again))
		require.Equal(t, before, counted(t, c, "user:7"))
		v := allow(t, lim, features...)
		require.Equal(t, v.String(), peeked.String(), "call %d", call)
		require.Equal(t, []any{v.Key, call < 2}, []any{peeked.Key, v.Allowed}, "call %d", call)
	}
	v := peek(t, lim, 3, features...)
	require.Equal(t, counter.Never, v.RetryAfter)
	require.ErrorContains(t, try.Err(lim.Peek(ctx, "signup", -1, features...)), "n is -1")
	v = peek(t, lim, 1, user("7"))
	require.Equal(t, "ip", v.Missing)
}

func TestErrorsAreTheCallersAndDeny(t *testing.T) {
	store := newCountingStore()
	lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{
		by("ip", "9/h"), {Event: "login", Kind: "user", Limits: counter.MustLimits("9/h"), IfMissing: limiter.MissingSkip},
	}})
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	expired, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	for _, row := range []struct {
		name     string
		ctx      context.Context
		event    string
		features []feature.Feature
		want     string
		is       error
	}{
		{"an event without rules", ctx, "logout", featuresOf(ip("192.0.2.1")), `limiter: event "logout" has no rules; there are rules for "login" and "signup"`, nil},
		{"no event", ctx, "", featuresOf(ip("192.0.2.1")), `limiter: event "" has no rules; there are rules for "login" and "signup"`, nil},
		{"no address", ctx, "signup", featuresOf(ip("192.0.2.1"), feature.Email("nobody")), `limiter: feature "email" is not an e-mail address, want local-part@domain, event "signup"`, func() error { e := feature.Email("nobody"); return e.Err() }()},
		{"the caller is gone", canceled, "signup", featuresOf(ip("192.0.2.1")), `limiter: event "signup": context canceled`, context.Canceled},
		{"the caller is late", expired, "signup", featuresOf(ip("192.0.2.1")), `limiter: event "signup": context deadline exceeded`, context.DeadlineExceeded},
		{"gone, and nothing to ask", canceled, "login", nil, `limiter: event "login": context canceled`, context.Canceled},
		{"gone, and something missing", canceled, "signup", nil, `limiter: event "signup": context canceled`, context.Canceled},
	} {
		for name, call := range map[string]func() (limiter.Verdict, error){
			"allow":  func() (limiter.Verdict, error) { return lim.Allow(row.ctx, row.event, row.features...) },
			"allowN": func() (limiter.Verdict, error) { return lim.AllowN(row.ctx, row.event, 2, row.features...) },
			"peek":   func() (limiter.Verdict, error) { return lim.Peek(row.ctx, row.event, 1, row.features...) },
			"wait":   func() (limiter.Verdict, error) { return lim.Wait(row.ctx, row.event, row.features...) },
		} {
			v, err := call()
			require.EqualError(t, err, row.want, "%s, %s", row.name, name)
			require.NotErrorIs(t, err, counter.ErrStore, row.name)
			require.Equal(t, limiter.Verdict{}, v, "%s, %s", row.name, name)
			if row.is != nil {
				require.ErrorIs(t, err, row.is, row.name)
			}
		}
	}
	steps, _ := store.asked()
	require.Zero(t, steps)
}

// A joined feature is counted by all of its parts together.
func TestJoinedFeaturesAreCountedTogether(t *testing.T) {
	lim := onMemory(t, by("ip+email", "1/d"))
	pair := func(addr, mail string) feature.Feature { return feature.Join(ip(addr), feature.Email(mail)) }
	require.True(t, allow(t, lim, pair("192.0.2.1", "ada@example.org")).Allowed)
	require.True(t, allow(t, lim, pair("192.0.2.1", "bob@example.org")).Allowed)
	require.True(t, allow(t, lim, pair("192.0.2.2", "ada@example.org")).Allowed)
	require.False(t, allow(t, lim, pair("192.0.2.1", "ADA@example.org")).Allowed)
	require.NoError(t, lim.Forget(ctx, "signup", feature.New("ip+email", "192.0.2.1,ada@example.org")))
	require.True(t, allow(t, lim, pair("192.0.2.1", "ada@example.org")).Allowed)
	require.False(t, allow(t, lim, pair("192.0.2.2", "ada@example.org")).Allowed)
}

// All texts of a mailbox and of its networks, by the Forms of the Config.
func TestFormsAreTheConfigs(t *testing.T) {
	forms := feature.Forms{IPv4Bits: 24, IPv6Bits: 48, EmailIgnoreTags: true, EmailProviders: []feature.EmailProvider{feature.Gmail()}}
	for want, f := range map[string]feature.Feature{
		"ip:192.0.2.0/24":      ip("192.0.2.9"),
		"ip:2001:db8::/48":     ip("2001:db8:0:1::1"),
		"email:a.da@books.org": feature.Email("A.da+1@books.org"),
		"email:ada@gmail.com":  feature.Email("A.da+1@googlemail.com"),
	} {
		c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Forms: forms, Rules: []limiter.Rule{by(f.Kind(), "9/d")}})
		require.Equal(t, key(want), allow(t, lim, f).Key)
	}
	_, err := limiter.New(newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{
		Rules: []limiter.Rule{by("ip", "9/d")}, Forms: feature.Forms{IPv4Bits: 40},
	})
	require.EqualError(t, err, "feature: Forms.IPv4Bits is 40, want 1 to 32, or 0 for 32")
}

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
		{"skipped", []limiter.Rule{by("user", "9/h"), skip}, featuresOf(user("7")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1}},
		{"all skipped", []limiter.Rule{skip}, featuresOf(user("7")), limiter.OutcomeSkipped, "", nil},
		{"shared", []limiter.Rule{by("user", "9/h"), share}, featuresOf(user("7")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1, "ip:": 1}},
		{"unknown: the rule is left out", []limiter.Rule{by("user", "9/h"), deny}, featuresOf(user("7"), feature.Unknown("ip")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1}},
		{"unknown, not shared", []limiter.Rule{by("user", "9/h"), share}, featuresOf(feature.Unknown("ip"), user("7")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1, "ip:": 0}},
		{"unknown beside a known one", []limiter.Rule{deny}, featuresOf(feature.Unknown("ip"), ip("192.0.2.1")), limiter.OutcomeAdmitted, "", map[string]int64{"ip:192.0.2.1": 1}},
		{"unknown, and another is missing", []limiter.Rule{by("user", "9/h"), deny}, featuresOf(feature.Unknown("user")), limiter.OutcomeMissing, "ip", nil},
		{"unknown, though Else is known", []limiter.Rule{userElseIP}, featuresOf(feature.Unknown("user"), ip("192.0.2.1")), limiter.OutcomeSkipped, "", map[string]int64{"ip:192.0.2.1": 0, "user:": 0}},
		{"Else unknown", []limiter.Rule{userElseIP}, featuresOf(feature.Unknown("ip")), limiter.OutcomeSkipped, "", map[string]int64{"user:": 0}},
		{"Else unknown, and not asked for", []limiter.Rule{userElseIP}, featuresOf(user("7"), feature.Unknown("ip")), limiter.OutcomeAdmitted, "", map[string]int64{"user:7": 1}},
		{"joined with an unknown one", []limiter.Rule{by("ip", "9/h"), by("ip+email", "9/h")}, featuresOf(ip("192.0.2.1"), feature.Join(ip("192.0.2.1"), feature.Unknown("email"))), limiter.OutcomeAdmitted, "", map[string]int64{"ip:192.0.2.1": 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := newCountingStore()
			c := newCounter(t, store, counter.Config{})
			lim := newLimiter(t, c, limiter.Config{Rules: row.rules})
			v := allow(t, lim, row.features...)
			steps, _ := store.asked()
			require.Equal(t, []any{row.want, row.missing}, []any{v.Outcome(), v.Missing})
			require.Equal(t, row.want == limiter.OutcomeAdmitted || row.want == limiter.OutcomeSkipped, v.Allowed)
			switch row.want {
			case limiter.OutcomeMissing:
				require.Equal(t, []any{counter.Never, row.missing}, []any{v.RetryAfter, v.Kind()})
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

func allowUpTo(t testing.TB, lim *limiter.Limiter, n int64, features ...feature.Feature) limiter.Verdict {
	return try.To(lim.AllowUpTo(ctx, "signup", n, features...))(t)
}

// A batch takes what there is room for under all rules, on every store.
func TestAllowUpTo(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		ban := by("user", "20/h")
		ban.Ban = limiter.Bans{time.Hour}
		clock := newClock()
		lim, _ := withClock(t, store, clock, by("ip", "10/h"), ban, soft(0, by("ip", "3/h")))
		home, ada, eve := ip("192.0.2.1"), user("ada"), user("eve")
		v := allowUpTo(t, lim, 4, home, ada)
		require.EqualValues(t, 4, v.N())
		require.Zero(t, v.RetryAfter)
		require.True(t, v.Soft[0].Denied, "no room for 4")
		part := allowUpTo(t, lim, 9, home, eve)
		require.Equal(t, limiter.OutcomeAdmitted, part.Outcome())
		require.EqualValues(t, 6, part.N())
		require.Equal(t, "ip", part.Kind())
		require.Greater(t, part.RetryAfter, 50*time.Minute)
		remains(t, lim, 0, home)
		remains(t, lim, 14, eve)
		none := allowUpTo(t, lim, 9, home, limiter.Times(eve, 0))
		require.Equal(t, limiter.OutcomeOverLimit, none.Outcome())
		require.Zero(t, none.N())
		require.NoError(t, lim.Refund(ctx, &part))
		remains(t, lim, 6, home)
		remains(t, lim, 20, eve)
		require.EqualValues(t, 20, allowUpTo(t, lim, 900, user("bob"), ip("192.0.2.2"), limiter.Under(home, counter.MustLimits("100/h"))).N()+10, "the second address has 10")
		_, err := lim.AllowUpTo(ctx, "signup", 9, home, limiter.Times(eve, 2))
		require.ErrorContains(t, err, `limiter: event "signup": Times of a feature of kind "user" is 2, want 0 in AllowUpTo`)
		require.ErrorContains(t, try.Err(lim.AllowUpTo(ctx, "signup", 0, home)), "n is 0, want 1 to")
	})
}

// While the store fails, a batch takes what there is room for in the share of this
// process, and the hits are carried; an open rule lets all of it through, and counts
// nothing.
func TestAllowUpToWithoutTheStore(t *testing.T) {
	var seen []int64
	s := newLocalStage(t, limiter.Config{Share: 0.5, Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "10/h"))}, Observe: func(d limiter.Decision) { seen = append(seen, d.N) }})
	home := ip("192.0.2.1")
	require.EqualValues(t, 2, allowUpTo(t, s.lim, 2, home).N())
	s.store.broken.Store(true)
	v := allowUpTo(t, s.lim, 9, home)
	require.Equal(t, limiter.OutcomeLocalAdmitted, v.Outcome())
	require.EqualValues(t, 3, v.N(), "of a share of 5, 2 are mirrored")
	require.Positive(t, v.RetryAfter)
	require.Equal(t, limiter.OutcomeLocalOverLimit, allowUpTo(t, s.lim, 9, home).Outcome())
	other := ip("192.0.2.2")
	back := allowUpTo(t, s.lim, 4, other)
	require.EqualValues(t, 4, back.N())
	require.NoError(t, s.lim.Refund(ctx, &back))
	require.EqualValues(t, 5, allowUpTo(t, s.lim, 90, other).N(), "n above Max is no mistake")
	s.store.broken.Store(false)
	require.NoError(t, s.lim.Close(ctx))
	require.EqualValues(t, 5, counted(t, s.c, "ip:192.0.2.1"))
	require.EqualValues(t, 5, counted(t, s.c, "ip:192.0.2.2"))
	require.Equal(t, []int64{2, 3, 9, 4, 5}, seen)

	store := &flakyStore{Store: memory.New(memory.Config{})}
	store.broken.Store(true)
	lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailOpen, by("ip", "3/h"))}})
	v = allowUpTo(t, lim, 9, home)
	require.Equal(t, limiter.OutcomeFailedOpen, v.Outcome())
	require.EqualValues(t, 9, v.N())
}

// Hits that wait to be carried leave the rest of a limit to a batch.
func TestAllowUpToNextToPendingHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stuckStore{flakyStore: flakyStore{Store: memory.New(memory.Config{})}}
		c := newCounter(t, struct{ backend.Atomic }{store}, counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "10/h"))}, Local: localCounter(t)})
		home := ip("192.0.2.1")
		store.broken.Store(true)
		store.stuck = true
		require.EqualValues(t, 4, allowUpTo(t, lim, 4, home).N())
		store.broken.Store(false)
		v := allowUpTo(t, lim, 90, home)
		require.Equal(t, limiter.OutcomeAdmitted, v.Outcome())
		require.EqualValues(t, 6, v.N())
		require.Equal(t, []int64{6, 4}, []int64{counted(t, c, "ip:192.0.2.1"), lim.Stats().Pending})
		require.ErrorContains(t, lim.Close(over), "limiter: Close: 4 hits")
	})
}
