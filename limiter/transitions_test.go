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

// Replace has a line.
func TestLoggerOfRules(t *testing.T) {
	var log bytes.Buffer
	lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{
		Rules:  []limiter.Rule{by("ip", "5/h")},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, lim.Replace(by("ip", "6/h"), by("user", "7/h")))
	require.Regexp(t, `^\S+ level=INFO msg="limiter: the rules were replaced" rules=2\n$`, log.String())
}
