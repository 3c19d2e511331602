package limiter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// A time has its unit in every format of a log.
func TestLoggerInJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		stage := newLocalStage(t, limiter.Config{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Rules: []limiter.Rule{by("ip", "1000/h")}})
		for _, broken := range []bool{true, true, false} {
			stage.store.broken.Store(broken)
			try.To(stage.lim.Allow(ctx, "signup", ip("192.0.2.1")))(t)
			time.Sleep(1500 * time.Second)
		}
		require.Contains(t, log.String(), `"lasted":"25m0s"`)
	})
}

// A Logger has a line for each change, however many calls there are, and none with
// a feature.
func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		stage := newLocalStage(t, limiter.Config{Logger: logTo(&log), Rules: []limiter.Rule{
			onFailure(limiter.FailLocal, by("ip", "1000/h")), {Event: "login", Kind: "user", Limits: counter.MustLimits("1000/h"), IfMissing: limiter.MissingSkip},
		}})
		lim, broken := stage.lim, &stage.store.broken
		call := func(event string, features ...feature.Feature) {
			try.To(lim.Allow(ctx, event, features...))(t)
		}
		lines := func() []string {
			said := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
			log.Reset()
			require.NotContains(t, said, "192.0.2")
			return said
		}
		none := []string{""}
		call("signup", ip("192.0.2.1"))
		require.Equal(t, none, lines())

		broken.Store(true)
		for range 20 {
			call("login", user("ada"))
			time.Sleep(time.Second)
		}
		require.Equal(t, []string{`level=WARN msg="limiter: decisions are made without the store" error="counter: event \"login\": flaky: broken"`}, lines())
		for range 20 {
			call("signup", ip("192.0.2.1"))
			time.Sleep(time.Second)
		}
		require.Equal(t, []string{`level=WARN msg="limiter: decisions are made by Config.Local"`}, lines())

		// A store that comes and goes is one episode, and a call that asks no store
		// tells nothing about the store.
		for range 20 {
			broken.Store(false)
			call("signup", ip("192.0.2.1"))
			time.Sleep(8 * time.Second)
			call("signup", ip("192.0.2.1"))
			broken.Store(true)
			call("signup", ip("192.0.2.1"))
		}
		time.Sleep(time.Minute)
		call("login")
		require.Equal(t, none, lines())

		broken.Store(false)
		call("signup", ip("192.0.2.1"))
		require.Equal(t, []string{
			`level=INFO msg="limiter: decisions are made by the store again" lasted=3m20s decisions=60`,
			`level=INFO msg="limiter: decisions are no longer made by Config.Local" lasted=3m0s decisions=40`,
		}, lines())
		call("signup", ip("192.0.2.1"))
		require.Equal(t, none, lines())
		require.NoError(t, lim.Replace(append(lim.Rules("signup"), lim.Rules("login")...)...))
		require.Equal(t, []string{`level=INFO msg="limiter: the rules were replaced" rules=2`}, lines())
		time.Sleep(time.Minute) // all hits are carried
		require.NoError(t, lim.Close(ctx))
	})
}

// Without a Logger the lines go to slog.Default, each at most once a minute however
// often the store comes and goes, and slog.DiscardHandler turns them off.
func TestLoggerByDefault(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(logTo(&log))
	defer slog.SetDefault(before)
	for _, logger := range []*slog.Logger{nil, slog.New(slog.DiscardHandler)} {
		synctest.Test(t, func(t *testing.T) {
			store := &flakyStore{Store: memory.New(memory.Config{})}
			c := newCounter(t, struct{ backend.Atomic }{store}, counter.Config{})
			lim, broken := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "10000/h")}, Logger: logger}), &store.broken
			for range 20 { // nine minutes
				broken.Store(true)
				for range 200 {
					allow(t, lim, ip("192.0.2.1"))
				}
				time.Sleep(15 * time.Second)
				broken.Store(false)
				allow(t, lim, ip("192.0.2.1"))
				time.Sleep(12 * time.Second)
			}
			if logger == nil {
				require.Equal(t, 7, strings.Count(log.String(), `level=WARN msg="limiter: decisions are made without the store" error="counter: event \"signup\": flaky: broken"`), log.String())
				require.Equal(t, 7, strings.Count(log.String(), `level=INFO msg="limiter: decisions are made by the store again"`), log.String())
			} else {
				require.Empty(t, log.String())
			}
			log.Reset()
		})
	}
}

// logTo is a Logger of lines.
func logTo(log *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: fixed}))
}

// fixed leaves out what differs from run to run.
func fixed(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "pending" {
		return slog.Attr{}
	}
	return a
}

// Check has a line when clocks are apart, and when they agree again.
func TestLoggerOfClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &clockedStore{Store: memory.New(memory.Config{})}
		c := newCounter(t, store, counter.Config{Skew: 100 * time.Millisecond})
		var log bytes.Buffer
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h")}, Logger: logTo(&log)})
		for _, ahead := range []time.Duration{0, -51 * time.Millisecond, -60 * time.Millisecond, -80 * time.Millisecond, 0, 20 * time.Millisecond} {
			store.ahead = ahead
			_ = lim.Check(ctx)
			time.Sleep(time.Minute)
		}
		require.Equal(t, `level=WARN msg="limiter: the clocks of the store and of this process are apart by more than half of Config.Skew" ahead=-60ms within=1ms skew=100ms
level=INFO msg="limiter: the clocks of the store and of this process agree again" ahead=0s within=1ms
`, log.String())
	})
}

// clockedStore is a store over a network with a clock.
type clockedStore struct {
	backend.Store
	ahead time.Duration
}

func (s *clockedStore) CheckServers(_ context.Context, r *backend.CheckRequest) error {
	r.Servers = []backend.Server{{Name: "a", Run: "1", Ahead: s.ahead, Within: time.Millisecond}}
	return nil
}

func (s *clockedStore) Report() backend.Report { return backend.Report{} }

// A limiter is ready while its store is, and says so within DecideWithin.
func TestCheck(t *testing.T) {
	rules := []limiter.Rule{{Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/h")}}
	l := try.To(limiter.New(newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: rules}))(t)
	require.NoError(t, l.Check(t.Context()))

	server := servertest.StartRedis(t)
	store := try.To(redis.Open("redis://"+server.Addr, redis.Config{}))(t)
	t.Cleanup(func() { store.Close() })
	const within = 300 * time.Millisecond
	c := derivingCounter(t, store, counter.Config{Patience: 30 * time.Second})
	l = try.To(limiter.New(c, limiter.Config{Rules: rules, DecideWithin: within}))(t)
	require.Eventually(t, func() bool { return l.Check(t.Context()) == nil }, 30*time.Second, time.Millisecond)
	require.NotZero(t, c.Stats().Checked)
	server.Pause()
	began := time.Now()
	err := l.Check(t.Context())
	long.Less(t, time.Since(began), within+5*time.Second)
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorContains(t, err, "redis: server "+server.Addr+": no answer in time")
}

// Every decision is observed once, with all its fields; an error is not
// observed.
func TestObserve(t *testing.T) {
	store := &flakyStore{Store: memory.New(memory.Config{})}
	var told []limiter.Decision
	lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{
		Rules: []limiter.Rule{
			by("ip", "5/h"), by("user", "3/h"),
			{Event: "mail", Kind: "ip", Limits: counter.MustLimits("9/h"), OnFailure: limiter.FailOpen, IfMissing: limiter.MissingSkip},
		},
		Observe: func(d limiter.Decision) { told = append(told, d) },
	})
	home := ip("192.0.2.1")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for _, row := range []struct {
		name        string
		ctx         context.Context
		event       string
		n           int64
		broken      bool
		features    []feature.Feature
		kind, limit string
		want        limiter.Outcome
		says        string // how the line of the Verdict begins
		silent      bool
	}{
		{"admitted", ctx, "signup", 1, false, featuresOf(home, user("7")), "user", "3/h", limiter.OutcomeAdmitted, `admitted "signup" by "user": 3/h, 2 left`, false},
		{"admitted twice", ctx, "signup", 2, false, featuresOf(home, user("7")), "user", "3/h", limiter.OutcomeAdmitted, `admitted "signup" by "user": 3/h, 0 left`, false},
		{"denied", ctx, "signup", 1, false, featuresOf(home, user("7")), "user", "3/h", limiter.OutcomeOverLimit, `over-limit "signup" by "user": 3/h, 0 left, retry in `, false},
		{"denied by another kind", ctx, "signup", 3, false, featuresOf(home, user("8")), "ip", "5/h", limiter.OutcomeOverLimit, `over-limit "signup" by "ip": 5/h, 2 left, retry in `, false},
		{"missing", ctx, "signup", 4, false, featuresOf(home), "user", "", limiter.OutcomeMissing, `missing "signup" by "user", no wait will do`, false},
		{"skipped", ctx, "mail", 5, false, featuresOf(user("7")), "", "", limiter.OutcomeSkipped, `skipped "mail"`, false},
		{"failed-closed", ctx, "signup", 1, true, featuresOf(home, user("7")), "", "", limiter.OutcomeFailedClosed, `failed-closed "signup", retry in `, false},
		{"failed-open", ctx, "mail", 2, true, featuresOf(home), "", "", limiter.OutcomeFailedOpen, `failed-open "mail"`, false},
		{"nothing to ask of a store that fails", ctx, "mail", 1, true, nil, "", "", limiter.OutcomeSkipped, `skipped "mail"`, false},
		{"an unknown event", ctx, "logout", 1, false, featuresOf(home), "", "", 0, "", true},
		{"nobody there", gone, "signup", 1, false, featuresOf(home, user("9")), "", "", 0, "", true},
	} {
		told = nil
		store.broken.Store(row.broken)
		peek(t, lim, 1, home, user("9"))
		require.Empty(t, told, "%s: a peek", row.name)

		v, err := lim.AllowN(row.ctx, row.event, row.n, row.features...)
		if row.silent {
			require.Error(t, err, row.name)
			require.Empty(t, told, row.name)
			continue
		}
		require.NoError(t, err, row.name)
		require.Len(t, told, 1, row.name)
		d := told[0]
		require.Positive(t, d.Latency, row.name)
		d.Latency = 0
		var limit counter.Limit
		require.NoError(t, limit.UnmarshalText([]byte(row.limit)))
		require.Equal(t, row.want == limiter.OutcomeOverLimit, d.Key == limiter.HiddenKey(v.Key) && v.Key != counter.Key{}, row.name)
		require.NotRegexp(t, `192|:7|:8`, fmt.Sprintf("%v %+v %#v %q", d, d, d, d.Key), "%s: features are not for logs", row.name)
		d.Key = limiter.HiddenKey{}
		require.Equal(t, limiter.Decision{Event: row.event, Kind: row.kind, Limit: limit, Outcome: row.want, N: row.n, Degraded: v.Degraded}, d, row.name)
		require.Equal(t, row.broken && row.features != nil, v.Degraded != nil, row.name)
		require.Equal(t, row.want, v.Outcome(), row.name)

		line := fmt.Sprint(v)
		require.True(t, strings.HasPrefix(line, row.says), "%s: %s", row.name, line)
		require.Equal(t, v.RetryAfter != 0 && v.RetryAfter != counter.Never, strings.HasSuffix(line, ", retry in "+v.RetryAfter.String()), line)
		require.NotRegexp(t, `192|:7|:8|broken|\n`, strings.TrimSuffix(line, v.RetryAfter.String()), "features and errors are not for logs")
		if row.kind == "" {
			require.Empty(t, v.Rule(), row.name)
		} else {
			require.Equal(t, limiter.Rule{Event: row.event, Kind: row.kind}.String(), v.Rule(), row.name)
		}
	}
	require.Equal(t, "denied", limiter.Verdict{}.String())

	store.broken.Store(false)
	told = nil
	v := try.To(lim.Allow(ctx, "mail", ip("192.0.2.9")))(t)
	require.NoError(t, lim.Refund(ctx, &v))
	require.Len(t, told, 1, "a refund is no decision")
}

// Each key that was emptied is observed, and neither printed nor encoded.
func TestForgottenKeysAreObserved(t *testing.T) {
	var told []limiter.Decision
	login := limiter.Rule{Event: "login", Kind: "ip", Limits: counter.MustLimits("5/h")}
	lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{
		Rules:   []limiter.Rule{by("ip", "5/h"), by("user", "3/h"), login},
		Observe: func(d limiter.Decision) { told = append(told, d) },
	})
	forgotten := func(event, kind, text string) limiter.Decision {
		return limiter.Decision{Event: event, Kind: kind, Outcome: limiter.OutcomeForgotten, Key: limiter.HiddenKey{Event: event, Feature: text}}
	}
	require.NoError(t, lim.Forget(ctx, "signup", ip("192.0.2.1"), user("7")))
	require.Equal(t, []limiter.Decision{forgotten("signup", "ip", "ip:192.0.2.1"), forgotten("signup", "user", "user:7")}, told)
	told = nil
	require.NoError(t, lim.Erase(ctx, ip("192.0.2.1")))
	require.Equal(t, []limiter.Decision{forgotten("login", "ip", "ip:192.0.2.1"), forgotten("signup", "ip", "ip:192.0.2.1")}, told)
	require.Contains(t, string(try.To(json.Marshal(told[0]))(t)), `"Key":"hidden"`)
	told[0].Key = limiter.HiddenKey{}
	require.Equal(t, []limiter.Decision{{Event: "login", Kind: "ip", Outcome: limiter.OutcomeForgotten}}, told[:1])
	require.Contains(t, fmt.Sprintf("%+v", told[0]), " Key:}")
}
