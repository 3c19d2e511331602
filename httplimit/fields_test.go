package httplimit_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// item is a member of a list field: a string and its parameters, which are
// integers.
type item struct {
	name   string
	params map[string]int64
}

// requireItems reads a field, which must be a list of such members.
func requireItems(t testing.TB, h http.Header, name string) (items []item) {
	for _, member := range try.To(httpsfv.UnmarshalList(h.Values(name)))(t) {
		got := member.(httpsfv.Item)
		params := map[string]int64{}
		for _, key := range got.Params.Names() {
			value, _ := got.Params.Get(key)
			params[key] = value.(int64)
		}
		items = append(items, item{got.Value.(string), params})
	}
	return items
}

func TestFields(t *testing.T) {
	const form = "email=a%40b.example&n=1"
	for _, row := range []struct {
		name  string
		rules []limiter.Rule
		with  func(*httplimit.Config)
		hits  int    // before the one that is looked at, a second apart
		last  string // its form, if it is another one

		policies, limits string
		others           string // Retry-After, X-RateLimit-Limit and X-RateLimit-Remaining
	}{
		{name: "one limit", rules: []limiter.Rule{by("ip", "100/d")},
			policies: `"100/d";q=100;w=86400`, limits: `"100/d";r=99;t=86401`},
		{name: "a second later", rules: []limiter.Rule{by("ip", "100/d")}, hits: 1,
			policies: `"100/d";q=100;w=86400`, limits: `"100/d";r=98;t=86401`},
		{name: "several limits", rules: []limiter.Rule{by("ip", "2/m, 10/h, 100/7d")}, hits: 1,
			policies: `"2/m";q=2;w=60, "10/h";q=10;w=3600, "100/7d";q=100;w=604800`,
			limits:   `"2/m";r=0;t=60, "10/h";r=8;t=3601, "100/7d";r=98;t=604801`},
		{name: "denied by one of them", rules: []limiter.Rule{by("ip", "2/m, 10/h")}, hits: 2,
			policies: `"2/m";q=2;w=60, "10/h";q=10;w=3600`, limits: `"2/m";r=0;t=59, "10/h";r=8;t=3600`, others: "59"},
		{name: "kinds with equal limits", rules: []limiter.Rule{by("ip", "5/h, 9/d"), by("email", "5/h")},
			policies: `"ip:5/h";q=5;w=3600, "9/d";q=9;w=86400, "email:5/h";q=5;w=3600`,
			limits:   `"ip:5/h";r=4;t=3601, "9/d";r=8;t=86401`},
		{name: "a kind of odd signs", rules: []limiter.Rule{by("ip", "5/h"), skipped(by(`"k\`, "5/h"))},
			policies: `"ip:5/h";q=5;w=3600, "\"k\\:5/h";q=5;w=3600`, limits: `"ip:5/h";r=4;t=3601`},
		{name: "the mail's rule denies", rules: []limiter.Rule{by("ip", "100/d"), by("email", "1/d")}, hits: 1,
			policies: `"100/d";q=100;w=86400, "1/d";q=1;w=86400`, limits: `"100/d";r=99;t=86400`, others: "86400"},
		{name: "shown by name", rules: []limiter.Rule{by("ip", "100/d"), by("email", "7/d")},
			with:     func(c *httplimit.Config) { c.Show = []string{"email"} },
			policies: `"100/d";q=100;w=86400, "7/d";q=7;w=86400`, limits: `"7/d";r=6;t=86401`},
		{name: "nothing shown", rules: []limiter.Rule{by("ip", "100/d")},
			with:     func(c *httplimit.Config) { c.Show = []string{}; c.LegacyHeaders = true },
			policies: `"100/d";q=100;w=86400`},
		{name: "no headers", rules: []limiter.Rule{by("ip", "1/d")}, hits: 1,
			with: func(c *httplimit.Config) { c.NoHeaders = true }, others: "86400"},
		{name: "legacy headers only", rules: []limiter.Rule{by("ip", "3/h, 100/d")},
			with: func(c *httplimit.Config) { c.NoHeaders, c.LegacyHeaders = true, true }, others: "3 2"},
		{name: "the calendar", rules: []limiter.Rule{by("ip", "2 per month from 15 in Europe/Berlin, 9 per day in UTC, 9/d"), by("email", "9 per day in UTC")}, hits: 1,
			policies: `"2 per month from 15 in Europe/Berlin";q=2, "ip:9 per day in UTC";q=9, "9/d";q=9;w=86400, "email:9 per day in UTC";q=9`,
			limits:   `"2 per month from 15 in Europe/Berlin";r=0;t=1205999, "ip:9 per day in UTC";r=7;t=86399, "9/d";r=7;t=86401`},
		{name: "denied until the month ends", rules: []limiter.Rule{by("ip", "2 per month from 15 in Europe/Berlin")}, hits: 2,
			policies: `"2 per month from 15 in Europe/Berlin";q=2`, limits: `"2 per month from 15 in Europe/Berlin";r=0;t=1205998`, others: "1205998"},
		{name: "windows of parts of a second", rules: []limiter.Rule{by("ip", "5/500ms, 6/1500ms, 7/2s")},
			policies: `"5/500ms";q=5, "6/1.5s";q=6, "7/2s";q=7;w=2`,
			limits:   `"5/500ms";r=4;t=1, "6/1.5s";r=5;t=2, "7/2s";r=6;t=3`},
		{name: "more than a structured field holds", rules: []limiter.Rule{by("ip", "9007199254740991/h, 999999999999999/d")},
			policies: `"9007199254740991/h";q=999999999999999;w=3600, "999999999999999/d";q=999999999999999;w=86400`,
			limits:   `"9007199254740991/h";r=999999999999999;t=3601, "999999999999999/d";r=999999999999998;t=86401`},
		{name: "nothing is allowed", rules: []limiter.Rule{by("ip", "0/h")}, policies: `"0/h";q=0;w=3600`},
		// The Counter does not look at the store then, and reports all as left.
		{name: "more than a limit at once", rules: []limiter.Rule{by("ip", "5/h, 9/d")}, hits: 2,
			with: func(c *httplimit.Config) {
				c.LegacyHeaders = true
				c.Cost = func(r *http.Request) (int64, error) { return strconv.ParseInt(r.FormValue("n"), 10, 64) }
			},
			last: "email=a%40b.example&n=6", policies: `"5/h";q=5;w=3600, "9/d";q=9;w=86400`},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newClock()
			var limits counter.Limits
			for _, r := range row.rules {
				limits = append(limits, r.Limits...)
			}
			cfg := httplimit.Config{Features: []httplimit.Source{byIP}, Limiter: newLimiterOn(t, memory.New(memory.Config{}),
				counter.Config{Now: c.Now, Ladder: limits.Ladder()}, limiter.Config{Rules: row.rules})}
			if slices.ContainsFunc(row.rules, func(r limiter.Rule) bool { return r.Kind == "email" }) {
				cfg.Features = append(cfg.Features, byEmail)
			}
			if row.with != nil {
				row.with(&cfg)
			}
			s := newSite(t, newLimit(t, cfg)(welcome))
			for range row.hits {
				s.do("POST", "/", form, asForm)
				c.Advance(time.Second)
			}
			h := s.do("POST", "/", cmp.Or(row.last, form), asForm).header
			require.Equal(t, row.policies, strings.Join(h.Values("RateLimit-Policy"), " and "))
			require.Equal(t, row.limits, strings.Join(h.Values("RateLimit"), " and "))
			others := slices.Concat(h.Values("Retry-After"), h.Values("X-RateLimit-Limit"), h.Values("X-RateLimit-Remaining"))
			require.Equal(t, row.others, strings.Join(others, " "))
			require.Equal(t, len(h.Values("X-RateLimit-Limit")), len(h.Values("X-RateLimit-Reset")))
			requireItems(t, h, "RateLimit-Policy")
			requireItems(t, h, "RateLimit")
		})
	}
}

func TestRetryAfterIsWholeSecondsRoundedUp(t *testing.T) {
	for _, row := range []struct {
		after time.Duration // the hit, which began its second, and leaves after 61 s
		want  string
	}{
		{0, "61"},
		{time.Nanosecond, "61"},
		{time.Second - time.Nanosecond, "61"},
		{time.Second, "60"},
		{1800 * time.Millisecond, "60"}, // 59.2 s
		{60*time.Second - time.Nanosecond, "2"},
		{60 * time.Second, "1"},
		{61*time.Second - time.Nanosecond, "1"}, // 1 ns, and never 0
	} {
		c := newClock()
		s := newSite(t, newLimit(t, httplimit.Config{Limiter: newLimiter(t, c, by("ip", "1/m")), Features: []httplimit.Source{byIP}})(welcome))
		require.Equal(t, 200, s.get().status)
		c.Advance(row.after)
		got := s.get()
		require.Equal(t, 429, got.status)
		require.Equal(t, []string{row.want}, got.header.Values("Retry-After"), row.after)
		require.Equal(t, `"1/m";r=0;t=`+row.want, got.header.Get("RateLimit"))
		c.Advance(61*time.Second - row.after)
		require.Equal(t, 200, s.get().status, "it is what was promised")
	}
}

// Of several features of a kind the feature is shown for which the client
// waits.
func TestSeveralFeaturesOfAKind(t *testing.T) {
	c := newClock()
	s := newSite(t, newLimit(t, httplimit.Config{
		Limiter:  newLimiter(t, c, by("user", "2/m, 2/h")),
		Features: []httplimit.Source{byUser, httplimit.NewSource("user", httplimit.Header("Friend"))},
		Show:     []string{"user"}, LegacyHeaders: true,
	})(welcome))
	require.Equal(t, `"2/m";r=1;t=61, "2/h";r=1;t=3601`, s.get("User: 7").header.Get("RateLimit"))
	require.Equal(t, `"2/m";r=0;t=61, "2/h";r=0;t=3601`, s.get("User: 8", "Friend: 7").header.Get("RateLimit"))
	c.Advance(30 * time.Second)
	require.Equal(t, `"2/m";r=0;t=31, "2/h";r=0;t=3571`, s.get("User: 8", "Friend: 9").header.Get("RateLimit"))
	for _, lines := range [][]string{{"User: 7", "Friend: 8"}, {"User: 8", "Friend: 7"}} {
		got := s.get(lines...)
		require.Equal(t, 429, got.status)
		require.Equal(t, "3571", got.header.Get("Retry-After"))
		require.Equal(t, `"2/m";r=0;t=31, "2/h";r=0;t=3571`, got.header.Get("RateLimit"))
		require.Equal(t, "2", got.header.Get("X-RateLimit-Limit"))
		require.Contains(t, got.body, `"violated-policies":["2/m","2/h"]`, "by both, but each once")
	}
}

func TestLegacyHeaders(t *testing.T) {
	for _, row := range []struct {
		limits    string
		hits      int
		limit     string // X-RateLimit-Limit
		remaining string
		reset     time.Duration // from now
	}{
		{"5/m, 9/h", 0, "5", "4", 61 * time.Second},
		{"5/m, 3/h", 0, "3", "2", 3601 * time.Second},
		{"2/m, 2/h", 1, "2", "0", 3601 * time.Second}, // of two without a remaining count the limit with the longer wait
		{"2/h, 2/m", 1, "2", "0", 3601 * time.Second},
		{"1/m, 5/h", 1, "1", "0", 61 * time.Second}, // denied
	} {
		s := newSite(t, newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", row.limits)), Features: []httplimit.Source{byIP}, LegacyHeaders: true})(welcome))
		for range row.hits {
			s.get()
		}
		before := time.Now()
		got := s.get()
		after := time.Now()
		require.Equal(t, []string{row.limit}, got.header.Values("X-RateLimit-Limit"), row)
		require.Equal(t, []string{row.remaining}, got.header.Values("X-RateLimit-Remaining"), row)
		reset := try.To(strconv.ParseInt(got.header.Get("X-RateLimit-Reset"), 10, 64))(t)
		require.False(t, time.Unix(reset, 0).Before(before.Add(row.reset)), row)
		require.True(t, time.Unix(reset-1, 0).Before(after.Add(row.reset)), row)
	}
}

// TestWhatIsCountedForOthersIsNotShown sends random requests through middlewares
// of random rules: the fields say what the verdict says of the kinds that are
// shown, and nothing else; and no answer repeats an address, a mail or a name.
func TestWhatIsCountedForOthersIsNotShown(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	kinds := []string{"ip", "email", "user"}
	denied := 0
	for range 25 {
		c := newClock()
		var rules []limiter.Rule
		for _, kind := range kinds {
			limits := fmt.Sprintf("%d/m, %d/h, %d/d", 1+rng.IntN(4), 2+rng.IntN(4), 3+rng.IntN(4))
			rules = append(rules, skipped(by(kind, limits)))
		}
		rng.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
		show := kinds[:1]
		cfg := httplimit.Config{
			Limiter: newLimiter(t, c, rules...),
			Features: []httplimit.Source{
				httplimit.IP(httplimit.ClientIP{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}), byEmail, byUser,
			},
			Refuse: httplimit.Refusal(rng.IntN(2)), VerdictInContext: true, LegacyHeaders: rng.IntN(2) == 0, WritesOnly: rng.IntN(2) == 0,
			Cost: func(r *http.Request) (int64, error) { return strconv.ParseInt(r.FormValue("n"), 10, 64) },
		}
		if rng.IntN(2) == 0 {
			show = nil
			for _, kind := range kinds {
				if rng.IntN(2) == 0 {
					show = append(show, kind)
				}
			}
			cfg.Show = append([]string{}, show...)
		}
		var verdict limiter.Verdict
		s := newSite(t, newLimit(t, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			verdict, _ = httplimit.VerdictOf(r.Context(), "signup")
		})))
		for range 20 {
			c.Advance(time.Duration(rng.Int64N(int64(40 * time.Second))))
			ip, email, user := fmt.Sprintf("198.51.100.%d", 250+rng.IntN(3)), fmt.Sprintf("somebody%d@mail.example", rng.IntN(3)), fmt.Sprintf("person%d", rng.IntN(3))
			n := 1 + rng.Int64N(3)
			// A denial counts nothing: the middleware gets such a verdict.
			peeked := try.To(cfg.Limiter.Peek(t.Context(), "signup", n, feature.IP(netip.MustParseAddr(ip)), feature.Email(email), feature.New("user", user)))(t)
			// The rules by address and user are asked first, and for one hit: mail and cost need the body.
			first := try.To(cfg.Limiter.Peek(t.Context(), "signup", 1, feature.IP(netip.MustParseAddr(ip)), feature.Unknown("email"), feature.New("user", user)))(t)
			if !first.Allowed {
				peeked = first
			}
			got := s.do("POST", "/", url.Values{"email": {email}, "n": {fmt.Sprint(n)}}.Encode(), "X-Forwarded-For: "+ip, "User: "+user, asForm)
			require.Equal(t, peeked.Allowed, got.status == 200)
			if !peeked.Allowed {
				verdict = peeked
				denied++
			}
			next := try.To(cfg.Limiter.Peek(t.Context(), "signup", 1, feature.IP(netip.MustParseAddr(ip)), feature.Email(email), feature.New("user", user)))(t)
			requireFields(t, got, &verdict, &next, rules, show)
			all := fmt.Sprint(got)
			for _, text := range []string{ip, "somebody", "mail.example", "person", "127.0.0.1"} {
				require.NotContains(t, all, text)
			}
		}
	}
	require.Greater(t, denied, 30, "the test is worth something")
}

// requireFields holds the fields of an answer against the verdict and the next verdict
// on a single hit, whose rules have three limits each.
func requireFields(t *testing.T, got answer, v, next *limiter.Verdict, rules []limiter.Rule, show []string) {
	names, policies := map[string]string{}, requireItems(t, got.header, "RateLimit-Policy")
	require.Len(t, policies, 9)
	for i, p := range policies {
		rule := rules[i/3]
		limit := rule.Limits[i%3]
		require.True(t, p.name == limit.String() || p.name == rule.Kind+":"+limit.String())
		require.Equal(t, map[string]int64{"q": limit.Max, "w": int64(limit.Per / time.Second)}, p.params)
		require.NotContains(t, names, p.name, "names are distinct")
		names[p.name] = rule.Kind + " " + limit.String()
	}
	want, denying := map[string]map[string]int64{}, 0
	for i, state := range v.All() {
		if state.RetryAfter > 0 {
			denying++
		}
		if v.Allowed && state.Remaining == 0 {
			state.RetryAfter = next.All()[i].RetryAfter
		}
		if kind := feature.KindOf(state.Key.Feature); slices.Contains(show, kind) && v.RetryAfter != counter.Never {
			until := state.ResetAfter.Seconds()
			if state.RetryAfter > 0 {
				until = state.RetryAfter.Seconds()
			}
			want[kind+" "+state.Limit.String()] = map[string]int64{"r": state.Remaining, "t": int64(math.Ceil(until))}
		}
	}
	shown := map[string]map[string]int64{}
	for _, limit := range requireItems(t, got.header, "RateLimit") {
		shown[names[limit.name]] = limit.params
	}
	require.Equal(t, want, shown)
	if v.Allowed || v.RetryAfter == counter.Never {
		require.Empty(t, got.header.Values("Retry-After"))
	} else {
		require.Equal(t, fmt.Sprint(int64(math.Ceil(v.RetryAfter.Seconds()))), got.header.Get("Retry-After"))
	}
	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	if !v.Allowed {
		require.NoError(t, json.Unmarshal([]byte(got.body), &problem))
	}
	require.Len(t, problem.Violated, denying)
	for _, name := range problem.Violated {
		require.Contains(t, names, name)
	}
}

// Another generation of the rules has fields of its own. A soft rule is no policy, and
// the limit of an Override is that of its clients.
func TestFieldsOfReplacedRules(t *testing.T) {
	soft, percent, two, vip := by("ip", "1/h"), by("ip", "1/h"), by("ip", "5/h, 7/d"), by("ip", "5/h, 7/d")
	soft.Soft = true
	percent.Soft, percent.Percent = true, 10
	vip.Overrides = []limiter.Override{{Value: "127.0.0.1", Limits: counter.MustLimits("90/h")}}
	lim := newLimiter(t, newClock(), by("ip", "9/h"))
	s := newSite(t, newLimit(t, httplimit.Config{Limiter: lim, Features: []httplimit.Source{byIP}})(welcome))
	for _, row := range []struct {
		rules        []limiter.Rule
		policy, left string
	}{
		{[]limiter.Rule{by("ip", "9/h")}, `"9/h";q=9;w=3600`, `"9/h";r=8;t=3601`},
		{[]limiter.Rule{two, soft}, `"5/h";q=5;w=3600, "7/d";q=7;w=86400`, `"5/h";r=3;t=3601, "7/d";r=6;t=86401`},
		{[]limiter.Rule{vip}, `"90/h";q=90;w=3600`, `"90/h";r=87;t=3601`},
		{[]limiter.Rule{by("ip", "5/h"), percent}, `"5/h";q=5;w=3600`, `"5/h";r=1;t=3601`},
	} {
		require.NoError(t, lim.Replace(row.rules...))
		got := s.get()
		require.Equal(t, row.policy, got.header.Get("RateLimit-Policy"))
		require.Equal(t, row.left, got.header.Get("RateLimit"))
	}

	// Two kinds may have equal limits by call as well.
	both := newLimiter(t, newClock(), vip, skipped(by("user", "90/h")))
	s = newSite(t, newLimit(t, httplimit.Config{Limiter: both, Features: []httplimit.Source{byIP, byUser}})(welcome))
	require.Equal(t, `"ip:90/h";q=90;w=3600, "user:90/h";q=90;w=3600`, s.get("User: 7").header.Get("RateLimit-Policy"))
}

// The values of an answer share an allocation. A handler that appends to a field,
// or changes a value in place, changes nothing else: neither another field nor
// another answer. An outer middleware has fields of its own.
func TestFieldsOfAnAnswerAreItsOwn(t *testing.T) {
	keep := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "1/h, 100/d")), Features: []httplimit.Source{byIP}, Denied: keep})(keep)
	policy := []string{`"1/h";q=1;w=3600, "100/d";q=100;w=86400`}
	for i, want := range []http.Header{
		{"Ratelimit-Policy": policy, "Ratelimit": {`"outer";r=1`, `"1/h";r=0;t=3601, "100/d";r=99;t=86401`}},
		{"Ratelimit-Policy": policy, "Ratelimit": {`"1/h";r=0;t=3601, "100/d";r=99;t=86401`}, "Retry-After": {"3601"}},
		{"Ratelimit-Policy": policy, "Ratelimit": {`"1/h";r=0;t=3601, "100/d";r=99;t=86401`}, "Retry-After": {"3601"}},
	} {
		w := httptest.NewRecorder()
		if i == 0 {
			w.Header()["Ratelimit"] = []string{`"outer";r=1`}
		}
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		got := w.Header()
		require.Equal(t, want, got)
		for name := range want {
			changed := got.Clone()
			changed[name] = append([]string{"changed"}, append(changed[name][1:], "added")...)
			got[name][0] = "changed"
			got.Add(name, "added")
			require.Equal(t, changed, got, name)
		}
	}
}

type planKey struct{}

// The fields tell the limits of the request, not those of the rule: of a plan, and
// of who is counted by the address for want of a user.
func TestFieldsOfLimitsByCall(t *testing.T) {
	rule := limiter.Rule{Event: "signup", Kind: "user", Limits: counter.MustLimits("2/h"), Else: "ip", ElseLimits: counter.MustLimits("1/h"),
		LimitsOf: func(ctx context.Context, c limiter.Call) counter.Limits {
			if zone := ctx.Value(planKey{}).(string); strings.Contains(zone, "/") {
				return counter.MustLimits("9 per day in " + zone)
			}
			if most, _ := strconv.Atoi(ctx.Value(planKey{}).(string)); most > 0 && c.Feature.Kind() == "user" {
				return counter.Limits{{Max: int64(most), Per: counter.MustLimits("1/h")[0].Per}, counter.MustLimits("900/d")[0]}
			}
			return nil
		}}
	rule.Plans = []counter.Limits{counter.MustLimits("1/d, 9 per day in Asia/Tokyo")}
	limit := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), rule), Features: []httplimit.Source{byUser, byIP}, Show: []string{"user", "ip"}, LegacyHeaders: true})
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit(welcome).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), planKey{}, r.Header.Get("Plan"))))
	}))
	get := func(user, plan string) answer { return s.do("GET", "/", "", "User: "+user, "Plan: "+plan) }
	for range 2 { // made, and remembered
		got := get("ada", "")
		require.Equal(t, `"2/h";q=2;w=3600`, got.header.Get("RateLimit-Policy"))
	}
	denied := get("ada", "")
	require.Equal(t, 429, denied.status)
	require.Contains(t, denied.body, `"violated-policies":["2/h"]`)
	got := get("ada", "3")
	require.Equal(t, 200, got.status)
	require.Equal(t, `"3/h";q=3;w=3600, "900/d";q=900;w=86400`, got.header.Get("RateLimit-Policy"))
	require.Regexp(t, `^"3/h";r=0;t=\d+, "900/d";r=897;t=\d+$`, got.header.Get("RateLimit"))
	require.Equal(t, "3", got.header.Get("X-RateLimit-Limit"))
	denied = get("ada", "3")
	require.Equal(t, 429, denied.status)
	require.Contains(t, denied.body, `"violated-policies":["3/h"]`)
	require.Regexp(t, `^"3/h";r=0;t=\d+, "900/d";r=897;t=\d+$`, denied.header.Get("RateLimit"))
	for range 2 {
		for _, zone := range []string{"Europe/Berlin", "Asia/Tokyo"} { // not taken for each other
			got = get("eve", zone)
			require.Equal(t, `"9 per day in `+zone+`";q=9`, got.header.Get("RateLimit-Policy"))
			require.Regexp(t, `^"9 per day in `+zone+`";r=\d;t=\d+$`, got.header.Get("RateLimit"))
		}
	}
	for i := range 100 { // more than are remembered
		got := get("bob", strconv.Itoa(900-i))
		require.Regexp(t, `^"`+strconv.Itoa(900-i)+`/h";q=\d+;w=3600, "900/d"`, got.header.Get("RateLimit-Policy"))
	}
	got = get("", "")
	require.Equal(t, `"1/h";q=1;w=3600`, got.header.Get("RateLimit-Policy"))
	require.Regexp(t, `^"1/h";r=0;t=\d+$`, got.header.Get("RateLimit"))
	require.Equal(t, 429, get("", "").status)

	// A source for one of the kinds is enough.
	newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), rule), Features: []httplimit.Source{byIP}})
}

// During a ban no limit of the client has room, and Retry-After is what is left
// of the ban.
func TestFieldsOfABan(t *testing.T) {
	rule := limiter.Rule{Event: "signup", Kind: "ip", Limits: counter.MustLimits("1/m"), Ban: limiter.Bans{counter.MustLimits("1/h")[0].Per}}
	s := newSite(t, newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), rule), Features: []httplimit.Source{byIP}})(welcome))
	got := s.get()
	require.Equal(t, 200, got.status)
	require.Regexp(t, `^"1/m";r=0;t=\d\d$`, got.header.Get("RateLimit"))
	for range 2 {
		got = s.get()
		require.Equal(t, 429, got.status)
		require.Regexp(t, `^360[01]$`, got.header.Get("Retry-After"))
		require.Equal(t, `"1/m";r=0;t=`+got.header.Get("Retry-After"), got.header.Get("RateLimit"))
		require.Contains(t, got.body, `"violated-policies":["1/m"]`)
	}
}
