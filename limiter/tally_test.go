package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// All decisions are counted by rule and outcome, and the keys of denials.
func TestTally(t *testing.T) {
	var faults limitertest.Faults
	lim, _ := limitertest.NewOn(t, faults.Wrap(memory.New(memory.Config{})), limiter.Config{Tally: true, Rules: []limiter.Rule{
		by("ip", "5/h"),
		by("user", "3/h"),
		{Event: "search", Kind: "ip", Limits: counter.MustLimits("1/h"), OnFailure: limiter.FailOpen, IfMissing: limiter.MissingSkip},
	}})
	home, other := ip("192.0.2.1"), ip("192.0.2.2")
	for range 5 {
		allow(t, lim, home, user("7"))
	}
	for range 4 {
		allow(t, lim, home, user("8"))
	}
	allow(t, lim, home)
	_, err := lim.Peek(ctx, "signup", 1, home, user("7"))
	require.NoError(t, err)
	_, err = lim.Allow(ctx, "logout", home)
	require.Error(t, err)
	_, err = lim.Allow(ctx, "search", user("7"))
	require.NoError(t, err)
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	_, err = lim.Allow(ctx, "search", other)
	require.NoError(t, err)
	allow(t, lim, other, user("9"))
	faults.Set(limitertest.Fault{})
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = lim.Wait(short, "signup", other, user("7"))
	require.ErrorIs(t, err, limiter.ErrWaitTooLong)

	tally := lim.Tally(10)
	require.WithinDuration(t, time.Now(), tally.Since, time.Minute)
	require.Equal(t, tally.Since, tally.DeniedSince)
	require.Equal(t, []limiter.DecisionCount{
		{Event: "search", Outcome: limiter.OutcomeSkipped, Count: 1},
		{Event: "search", Outcome: limiter.OutcomeFailedOpen, Count: 1},
		{Event: "signup", Outcome: limiter.OutcomeFailedClosed, Count: 1},
		{Event: "signup", Kind: "ip", Outcome: limiter.OutcomeOverLimit, Count: 2},
		{Event: "signup", Kind: "ip", Outcome: limiter.OutcomeAdmitted, Count: 2},
		{Event: "signup", Kind: "user", Outcome: limiter.OutcomeOverLimit, Count: 3},
		{Event: "signup", Kind: "user", Outcome: limiter.OutcomeMissing, Count: 1},
		{Event: "signup", Kind: "user", Outcome: limiter.OutcomeAdmitted, Count: 3},
	}, tally.Decisions)
	denied := []limiter.DeniedKey{
		{Key: key("user:7"), Kind: "user", Denied: counter.Count{Low: 3, High: 3}},
		{Key: key("ip:192.0.2.1"), Kind: "ip", Denied: counter.Count{Low: 2, High: 2}},
	}
	require.Equal(t, denied, tally.MostDenied)
	require.Equal(t, denied[:1], lim.Tally(1).MostDenied)
	require.Empty(t, lim.Tally(0).MostDenied)

	require.NoError(t, lim.Forget(ctx, "signup", user("7")))
	require.Equal(t, denied[1:], lim.Tally(10).MostDenied)
	require.NoError(t, lim.Erase(ctx, home))
	require.Empty(t, lim.Tally(10).MostDenied)

	require.Zero(t, onMemory(t, by("ip", "5/h")).Tally(10), "without Config.Tally")
}

// With a Secret a key is shown as the digest of its stored key, and never as text.
func TestTallyWithASecret(t *testing.T) {
	var stored string
	store := backend.Wrap(memory.New(memory.Config{}), func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error { return do(ctx) })
	keys := &keySpy{Store: store, see: func(key string) { stored = key }}
	long := strings.Repeat("x", 300)
	for _, secret := range []string{"", "of the shop"} {
		c := newCounter(t, keys, counter.Config{Secret: []byte(secret)})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", "0/h")}, Tally: true})
		for _, feature := range []string{"ada", long} {
			allow(t, lim, user(feature))
			require.NoError(t, c.Add(ctx, key("user:"+feature), 1))
			shown := lim.Tally(10).MostDenied
			require.Len(t, shown, 1)
			require.Equal(t, "user", shown[0].Kind)
			require.Equal(t, key("user:"+feature).Redact([]byte(secret)), shown[0].Key)
			require.True(t, strings.HasSuffix(stored, ":"+shown[0].Key.Feature), "stored as %s, shown as %s", stored, shown[0].Key.Feature)
			require.Equal(t, secret == "" && feature == "ada", strings.Contains(shown[0].Key.Feature, feature))
			require.Less(t, len(shown[0].Key.Feature), 50)
			require.NoError(t, lim.Forget(ctx, "signup", user(feature)))
			require.Empty(t, lim.Tally(10).MostDenied)
		}
	}
}

// keySpy is a store that tells the keys of its calls.
type keySpy struct {
	backend.Store
	see func(key string)
}

func (s *keySpy) Do(ctx context.Context, r *backend.Request) error {
	if len(r.Add) > 0 && r.N > 0 {
		s.see(string(r.Key))
	}
	return s.Store.Do(ctx, r)
}

// Denials count for the hour under way and the hour before.
func TestDenialsOfLongAgoAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
		require.NoError(t, err)
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", "0/h")}, Tally: true})
		began := time.Now()
		deny := func(value string) { allow(t, lim, user(value)) }
		told := func() (features []string) {
			for _, k := range lim.Tally(10).MostDenied {
				features = append(features, k.Key.Feature)
			}
			return features
		}
		deny("a")
		time.Sleep(time.Hour)
		deny("b")
		deny("b")
		require.Equal(t, []string{"user:b", "user:a"}, told())
		require.Equal(t, began, lim.Tally(0).DeniedSince)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"user:b"}, told())
		require.Equal(t, began.Add(time.Hour), lim.Tally(0).DeniedSince)
		deny("c")
		time.Sleep(3 * time.Hour)
		require.Empty(t, told())
		require.Equal(t, int64(4), lim.Tally(0).Decisions[0].Count, "decisions are not forgotten")
	})
}

// A Logger has a line for each change, however many calls there are, and none with
// a feature.
func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults limitertest.Faults
		c, err := counter.New(faults.Wrap(memory.New(memory.Config{})), counter.Config{})
		require.NoError(t, err)
		here, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Config().Skew + limiter.DefaultDecideWithin})
		require.NoError(t, err)
		var log bytes.Buffer
		lim := newLimiter(t, c, limiter.Config{
			Rules:  []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "1000/h")), {Event: "login", Kind: "user", Limits: counter.MustLimits("1000/h"), IfMissing: limiter.MissingSkip}},
			Local:  here,
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: fixed})),
		})
		call := func(event string, features ...feature.Feature) {
			t.Helper()
			_, err := lim.Allow(ctx, event, features...)
			require.NoError(t, err)
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

		faults.Set(limitertest.Fault{Err: errors.New("down")})
		for range 20 {
			call("login", user("ada"))
			time.Sleep(time.Second)
		}
		require.Equal(t, []string{`level=WARN msg="limiter: decisions are made without the store" error="counter: event \"login\": down"`}, lines())
		for range 20 {
			call("signup", ip("192.0.2.1"))
			time.Sleep(time.Second)
		}
		require.Equal(t, []string{`level=WARN msg="limiter: decisions are made by Config.Local"`}, lines())

		// A store that comes and goes is one episode, and a call that asks no store
		// tells nothing about the store.
		for range 20 {
			faults.Set(limitertest.Fault{})
			call("signup", ip("192.0.2.1"))
			time.Sleep(8 * time.Second)
			call("signup", ip("192.0.2.1"))
			faults.Set(limitertest.Fault{Err: errors.New("down")})
			call("signup", ip("192.0.2.1"))
		}
		time.Sleep(time.Minute)
		call("login")
		require.Equal(t, none, lines())

		faults.Set(limitertest.Fault{})
		call("signup", ip("192.0.2.1"))
		require.Equal(t, []string{
			`level=INFO msg="limiter: decisions are made by the store again" after=3m20s decisions=60`,
			`level=INFO msg="limiter: decisions are no longer made by Config.Local" after=3m0s decisions=40`,
		}, lines())
		call("signup", ip("192.0.2.1"))
		require.Equal(t, none, lines())
		time.Sleep(time.Minute) // all hits are carried
		require.NoError(t, lim.Close(ctx))
	})
}

// Without a Logger the lines go to slog.Default, each at most once a minute however
// often the store comes and goes, and slog.DiscardHandler turns them off.
func TestLoggerByDefault(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: fixed})))
	defer slog.SetDefault(before)
	for _, logger := range []*slog.Logger{nil, slog.New(slog.DiscardHandler)} {
		synctest.Test(t, func(t *testing.T) {
			var faults limitertest.Faults
			c, err := counter.New(faults.Wrap(memory.New(memory.Config{})), counter.Config{})
			require.NoError(t, err)
			lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "10000/h")}, Logger: logger})
			for range 20 { // nine minutes
				faults.Set(limitertest.Fault{Err: errors.New("down")})
				for range 200 {
					allow(t, lim, ip("192.0.2.1"))
				}
				time.Sleep(15 * time.Second)
				faults.Set(limitertest.Fault{})
				allow(t, lim, ip("192.0.2.1"))
				time.Sleep(12 * time.Second)
			}
			if logger == nil {
				require.Equal(t, 7, strings.Count(log.String(), `level=WARN msg="limiter: decisions are made without the store" error="counter: event \"signup\": down"`), log.String())
				require.Equal(t, 7, strings.Count(log.String(), `level=INFO msg="limiter: decisions are made by the store again"`), log.String())
			} else {
				require.Empty(t, log.String())
			}
			log.Reset()
		})
	}
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
		c, err := counter.New(store, counter.Config{Skew: 100 * time.Millisecond})
		require.NoError(t, err)
		var log bytes.Buffer
		lim := newLimiter(t, c, limiter.Config{
			Rules:  []limiter.Rule{by("ip", "5/h")},
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: fixed})),
		})
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
