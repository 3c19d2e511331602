package limiter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

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
		name     string
		ctx      context.Context
		event    string
		n        int64
		broken   bool
		features []feature.Feature
		kind     string
		limit    string
		want     limiter.Outcome
		says     string // how the line of the Verdict begins
		silent   bool
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
		{"no n", ctx, "signup", 0, false, featuresOf(home, user("9")), "", "", 0, "", true},
		{"no address", ctx, "signup", 1, false, featuresOf(home, user("9"), feature.Email("x")), "", "", 0, "", true},
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
	v, err := lim.Allow(ctx, "mail", ip("192.0.2.9"))
	require.NoError(t, err)
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
	text, err := json.Marshal(told[0])
	require.NoError(t, err)
	require.Contains(t, string(text), `"Key":"hidden"`)
	told[0].Key = limiter.HiddenKey{}
	require.Equal(t, []limiter.Decision{{Event: "login", Kind: "ip", Outcome: limiter.OutcomeForgotten}}, told[:1])
	require.Contains(t, fmt.Sprintf("%+v", told[0]), " Key:}")
}

// Observe runs in the goroutine of the caller, before the caller has the
// answer.
func TestObserveByManyAtOnce(t *testing.T) {
	var mu sync.Mutex
	told := map[limiter.Outcome]int{}
	lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{
		Rules:   []limiter.Rule{by("ip", "50/h")},
		Observe: func(d limiter.Decision) { mu.Lock(); defer mu.Unlock(); told[d.Outcome]++ },
	})
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			for range 10 {
				if _, err := lim.Allow(ctx, "signup", ip("192.0.2.1")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	require.Equal(t, map[limiter.Outcome]int{limiter.OutcomeAdmitted: 50, limiter.OutcomeOverLimit: 150}, told)
}
