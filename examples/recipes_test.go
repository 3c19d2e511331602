package examples

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// docs/recipes.md prints the functions of this file.

// A day of the user's zone.

func dayIn(zone string) counter.Limits {
	limits, _ := counter.ParseLimits("150/d, 100 per day in " + zone)
	return limits // of an unknown zone none: the limits of the rule hold
}

func TestDayIn(t *testing.T) {
	zone := ""
	lim, clock := limitertest.New(t, limiter.Rule{Event: "call", Kind: "user", Limits: counter.MustLimits("9 per day in UTC"),
		LimitsOf: func(context.Context, limiter.Call) counter.Limits { return dayIn(zone) }})
	for _, row := range []struct { // all at once, at midnight in UTC
		zone  string
		calls int64
		wait  time.Duration
	}{
		{"Asia/Tokyo", 100, 15 * time.Hour},
		{"Asia/Kolkata", 100, 18*time.Hour + 30*time.Minute},
		{"Mars/Olympus", 9, 24 * time.Hour},
	} {
		zone = row.zone
		user := feature.New("user", zone)
		v := try.To(lim.AllowUpTo(t.Context(), "call", 200, user))(t)
		require.Equal(t, row.calls, v.N())
		v = try.To(lim.Allow(t.Context(), "call", user))(t)
		require.Equal(t, []any{false, row.wait}, []any{v.Allowed, v.RetryAfter}, "%s", v)
	}
	clock.Advance(time.Hour)
	zone = "Etc/GMT+1" // where the day has just begun
	v := try.To(lim.AllowUpTo(t.Context(), "call", 200, feature.New("user", "Asia/Tokyo")))(t)
	require.EqualValues(t, 50, v.N(), "%s", v)
}

// As many as there is room for.

func sendBatch(ctx context.Context, lim *limiter.Limiter, tenant feature.Feature, mails []string, send func(mail string)) (rest []string, wait time.Duration, err error) {
	v, err := lim.AllowUpTo(ctx, "mail", int64(len(mails)), tenant)
	if err != nil {
		return mails, 0, err
	}
	n := v.N() // 0 if the limit is used up
	for _, mail := range mails[:n] {
		send(mail)
	}
	return mails[n:], v.RetryAfter, nil // the time until one more has room
}

func TestSendBatch(t *testing.T) {
	lim, clock := limitertest.New(t, limiter.Rule{Event: "mail", Kind: "tenant", Limits: counter.MustLimits("100/h")})
	tenant := feature.New("tenant", "7")
	rest, sent := make([]string, 130), 0
	for _, want := range []int{30, 30, 0} {
		left, wait, err := sendBatch(t.Context(), lim, tenant, rest, func(string) { sent++ })
		require.NoError(t, err)
		require.Len(t, left, want)
		if len(rest) == want {
			clock.Advance(wait)
		}
		rest = left
	}
	require.Equal(t, 130, sent)
}

// Room for important calls.

var ordinary = counter.MustLimits("80/h")

var roomForImportant = limiter.Rule{Event: "api", Kind: "user", Limits: counter.MustLimits("100/h"), Plans: []counter.Limits{ordinary}}

func allowCall(ctx context.Context, lim *limiter.Limiter, user feature.Feature, important bool) (limiter.Verdict, error) {
	if !important {
		user = limiter.Under(user, ordinary)
	}
	return lim.Allow(ctx, "api", user)
}

func TestRoomForImportantCalls(t *testing.T) {
	lim, _ := limitertest.New(t, roomForImportant)
	ada := feature.New("user", "ada")
	admitted := func(important bool) (n int) {
		for range 150 {
			v := try.To(allowCall(t.Context(), lim, ada, important))(t)
			if !v.Allowed {
				return n
			}
			n++
		}
		return n
	}
	require.Equal(t, 80, admitted(false))
	require.Equal(t, 20, admitted(true))
	require.Zero(t, admitted(false))
}

// A warning at 80 %.

var warnAt80 = []limiter.Rule{
	{Event: "mail", Kind: "user", Limits: counter.MustLimits("100/d")},
	{Event: "mail", Kind: "user", Limits: counter.MustLimits("80/d"), Soft: true},
}

func nearlyUsedUp(v limiter.Verdict) bool {
	return slices.ContainsFunc(v.Soft, func(s limiter.SoftVerdict) bool { return s.Denied })
}

func TestAWarningAt80Percent(t *testing.T) {
	lim, _ := limitertest.New(t, warnAt80...)
	for i := range 101 {
		v := try.To(lim.Allow(t.Context(), "mail", feature.New("user", "ada")))(t)
		require.Equal(t, i < 100, v.Allowed)
		require.Equal(t, 80 <= i && i < 100, nearlyUsedUp(v), "mail %d", i+1)
	}
}

// Messages of a WebSocket.

var messages = limiter.Rule{Event: "message", Kind: "user", Limits: counter.MustLimits("20/m, 200/h")}

// conn is a connection of the WebSocket package of your choice.
type conn interface {
	Read(ctx context.Context) (message string, err error)
	Close(code int, reason string) error
}

func serveMessages(ctx context.Context, lim *limiter.Limiter, user feature.Feature, c conn, handle func(message string)) error {
	for {
		message, err := c.Read(ctx)
		if err != nil {
			return err
		}
		turn, cancel := context.WithTimeout(ctx, 2*time.Minute)
		_, err = lim.Wait(turn, "message", user) // nothing is read meanwhile: TCP slows the sender down
		cancel()
		switch {
		case errors.Is(err, limiter.ErrWaitTooLong):
			return c.Close(1008, "Too many messages.") // the hour is used up
		case err != nil:
			return err
		}
		handle(message)
	}
}

type fakeConn struct {
	left int
	code int
}

func (c *fakeConn) Read(context.Context) (string, error) {
	if c.left == 0 {
		return "", io.EOF
	}
	c.left--
	return "hello", nil
}

func (c *fakeConn) Close(code int, _ string) error { c.code = code; return nil }

func TestMessagesOfAWebSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{}))(t)
		lim := try.To(limiter.New(c, limiter.Config{Rules: []limiter.Rule{messages}}))(t)
		began, handled := time.Now(), 0
		ada := feature.New("user", "ada")
		serve := func(c *fakeConn) error {
			return serveMessages(t.Context(), lim, ada, c, func(string) { handled++ })
		}
		require.Equal(t, io.EOF, serve(&fakeConn{left: 100}))
		require.Equal(t, 100, handled)
		require.Greater(t, time.Since(began), 4*time.Minute)
		require.Less(t, time.Since(began), 5*time.Minute)

		other := &fakeConn{left: 1000}
		require.NoError(t, serve(other))
		require.Equal(t, 1008, other.code)
		require.Equal(t, 200, handled, "all connections of a user together")
	})
}

// Reserve and settle.

var tokens = limiter.Rule{Event: "tokens", Kind: "user", Limits: counter.MustLimits("100000/d")}

func complete(ctx context.Context, lim *limiter.Limiter, user feature.Feature, most int64, model func(context.Context) (used int64, err error)) (limiter.Verdict, error) {
	v, err := lim.AllowN(ctx, "tokens", most, user)
	if err != nil || !v.Allowed {
		return v, err
	}
	used, err := model(ctx)
	// The tokens are used, whether or not the caller has gone.
	return v, errors.Join(err, lim.Settle(context.WithoutCancel(ctx), &v, used))
}

func TestReserveAndSettle(t *testing.T) {
	lim, _ := limitertest.New(t, tokens)
	ada := feature.New("user", "ada")
	left := func() int64 {
		v := try.To(lim.Peek(t.Context(), "tokens", 0, ada))(t)
		return v.Remaining
	}
	run := func(most, used int64, fails error) error {
		_, err := complete(t.Context(), lim, ada, most, func(context.Context) (int64, error) {
			require.LessOrEqual(t, left(), 100_000-most, "reserved meanwhile")
			return used, fails
		})
		return err
	}
	require.NoError(t, run(4000, 1500, nil))
	require.EqualValues(t, 98_500, left())
	require.NoError(t, run(4000, 5000, nil), "more than was reserved")
	require.EqualValues(t, 93_500, left())
	require.ErrorIs(t, run(4000, 0, io.ErrUnexpectedEOF), io.ErrUnexpectedEOF)
	require.EqualValues(t, 93_500, left())
	v := try.To(complete(t.Context(), lim, ada, 93_501, nil))(t)
	require.False(t, v.Allowed)
}

// Distinct values.

var recipients = []limiter.Rule{
	{Event: "recipient", Kind: "user", Limits: counter.MustLimits("50/d")},
	{Event: "recipient", Kind: "user+email", Limits: counter.MustLimits("1/d")},
}

func mayWriteTo(ctx context.Context, lim *limiter.Limiter, user, mail feature.Feature) (bool, error) {
	v, err := lim.Allow(ctx, "recipient", user, feature.Join(user, mail))
	if err != nil || v.Allowed {
		return v.Allowed, err // a new recipient, and counted
	}
	for _, s := range v.All() {
		if strings.HasPrefix(s.Key.Feature, "user+email:") && s.RetryAfter > 0 {
			return true, nil // counted within the last day; nothing was counted now
		}
	}
	return false, nil // the fifty-first recipient
}

func TestDistinctValues(t *testing.T) {
	lim, clock := limitertest.New(t, recipients...)
	ada := feature.New("user", "ada")
	may := func(i int) bool {
		ok := try.To(mayWriteTo(t.Context(), lim, ada, feature.Email(fmt.Sprintf("friend%d@example.org", i))))(t)
		return ok
	}
	for range 3 {
		for i := range 60 {
			require.Equal(t, i < 50, may(i), "friend %d", i)
		}
	}
	clock.Advance(25 * time.Hour)
	require.True(t, may(59))
}

// A ban after repeated trips.

var strikes = []limiter.Rule{
	{Event: "search", Kind: "ip", Limits: counter.MustLimits("30/m")},
	{Event: "strike", Kind: "ip", Limits: counter.MustLimits("3/h"), Ban: limiter.Bans{24 * time.Hour}},
}

func search(ctx context.Context, lim *limiter.Limiter, ip feature.Feature) (limiter.Verdict, error) {
	if v, err := lim.Peek(ctx, "strike", 0, ip); err != nil || !v.Allowed {
		return v, err // banned
	}
	v, err := lim.Allow(ctx, "search", ip)
	if err == nil && v.Outcome() == limiter.OutcomeOverLimit {
		_, err = lim.Allow(ctx, "strike", ip) // the fourth of an hour begins the ban
	}
	return v, err
}

func TestABanAfterRepeatedTrips(t *testing.T) {
	lim, clock := limitertest.New(t, strikes...)
	home := feature.IP(netip.MustParseAddr("192.0.2.1"))
	for trip := range 4 {
		for i := range 31 {
			v := try.To(search(t.Context(), lim, home))(t)
			require.Equal(t, i < 30, v.Allowed, "trip %d, search %d", trip, i)
		}
		clock.Advance(2 * time.Minute)
	}
	for _, row := range []struct {
		after   time.Duration
		allowed bool
	}{{0, false}, {12 * time.Hour, false}, {14 * time.Hour, true}} {
		clock.Advance(row.after)
		v := try.To(search(t.Context(), lim, home))(t)
		require.Equal(t, row.allowed, v.Allowed, "after %s", row.after)
		require.Equal(t, !row.allowed, v.Banned)
	}
}

// Plans behind the middleware.

type planKey struct{} // of the context; an outer middleware that knows the session sets it

var plans = map[string]counter.Limits{"pro": counter.MustLimits("1000/h"), "team": counter.MustLimits("5000/h")}

var byPlan = limiter.Rule{
	Event: "api", Kind: "user", Limits: counter.MustLimits("100/h"),
	Plans: []counter.Limits{plans["pro"], plans["team"]},
	LimitsOf: func(ctx context.Context, _ limiter.Call) counter.Limits {
		plan, _ := ctx.Value(planKey{}).(string)
		return plans[plan] // none: the limits of the rule
	},
}

func TestPlansBehindTheMiddleware(t *testing.T) {
	lim, _ := limitertest.New(t, byPlan)
	limit, err := httplimit.New(httplimit.Config{Limiter: lim, Event: "api", Features: []httplimit.Source{
		httplimit.NewSource("user", httplimit.Header("X-User")),
	}})
	require.NoError(t, err)
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	answered := func(plan string) (n int) {
		for {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-User", "ada")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), planKey{}, plan)))
			if w.Code != http.StatusOK {
				return n
			}
			n++
		}
	}
	for _, row := range []struct {
		plan string
		want int
	}{{"", 100}, {"pro", 900}, {"team", 4000}, {"none such", 0}} {
		require.Equal(t, row.want, answered(row.plan), cmp.Or(row.plan, "no plan"))
	}
}
