package counter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
)

// watched is a store on another machine whose servers are as told.
type watched struct {
	*memory.Store
	Bind    struct{} // hides the method, and backend.Local with it
	servers []backend.Server
	err     error
	asked   *backend.CheckRequest
	report  backend.Report
}

func (w *watched) CheckServers(_ context.Context, r *backend.CheckRequest) error {
	w.asked, r.Servers = r, w.servers
	return w.err
}
func (w *watched) Report() backend.Report { return w.report }

// Stats shows the findings of Check: the clock that is furthest apart, and
// evictions and restarts from the first Check on.
func TestCheckShowsInStats(t *testing.T) {
	w := &watched{Store: memory.New(memory.Config{}), report: backend.Report{LateAnswers: 1, HitsLeft: 2, Guesses: 3, WrongGuesses: 4}}
	c := newCounter(t, w, counter.Config{Prefix: "app", Skew: time.Second})
	require.Equal(t, counter.Stats{LateAnswers: 1, HitsLeft: 2, Guesses: 3, WrongGuesses: 4}, c.Stats())
	server := func(name, run string, evicted int64, ahead time.Duration) backend.Server {
		return backend.Server{Name: name, Run: run, Evicted: evicted, Ahead: ahead, Within: time.Millisecond}
	}
	const ms = time.Millisecond
	for _, step := range []struct {
		what                string
		servers             []backend.Server
		ahead               time.Duration
		evictions, restarts int64
	}{
		{"the first counts from here", []backend.Server{server("a", "1", 70, 5*ms), server("b", "2", 0, -9*ms)}, -9 * ms, 0, 0},
		{"evictions", []backend.Server{server("a", "1", 72, 5*ms), server("b", "2", 3, 2*ms)}, 5 * ms, 5, 0},
		{"nobody answers", nil, 5 * ms, 5, 0},
		{"one is down", []backend.Server{server("b", "2", 3, 1*ms)}, 1 * ms, 5, 0},
		{"and back, restarted", []backend.Server{server("a", "3", 0, 0), server("b", "2", 3, 0)}, 0, 5, 1},
		{"the user may no longer ask", []backend.Server{server("a", "", 0, 0), server("b", "2", 3, 0)}, 0, 5, 1},
		{"and may again", []backend.Server{server("a", "3", 1, 0), server("b", "2", 3, 0)}, 0, 6, 1},
		{"restarted, and evicts already", []backend.Server{server("a", "4", 10, 0), server("b", "2", 3, 0)}, 0, 16, 2},
		{"a failover", []backend.Server{server("a", "4", 10, 0), server("c", "5", 100, 0)}, 0, 16, 3},
		{"one more server", []backend.Server{server("a", "4", 10, 0), server("c", "5", 100, 0), server("d", "6", 0, 0)}, 0, 16, 3},
		{"one fewer", []backend.Server{server("a", "4", 10, 0), server("c", "5", 100, 0)}, 0, 16, 3},
	} {
		w.servers = step.servers
		require.NoError(t, c.Check(t.Context()), step.what)
		st := c.Stats()
		require.Equal(t, step.ahead, st.ClockAhead, step.what)
		require.Equal(t, ms, st.ClockWithin, step.what)
		require.Equal(t, step.evictions, st.Evictions, step.what)
		require.Equal(t, step.restarts, st.Restarts, step.what)
	}
	require.Equal(t, time.Second, w.asked.Skew)
	require.Regexp(t, `^app:1....\?check$`, w.asked.Key)
	require.WithinDuration(t, time.Now().Add(counter.DefaultPatience), w.asked.Deadline, counter.DefaultPatience)
}

// Each finding is an ErrStore or an ErrCondition, and keeps its text.
func TestFindings(t *testing.T) {
	lost, apart := errors.New("redis: server a: lost"), backend.Unmet("redis: server b: clock is off")
	w := &watched{Store: memory.New(memory.Config{})}
	c := newCounter(t, w, counter.Config{})
	for _, row := range []struct {
		err              error
		store, condition bool
		text             string
	}{
		{nil, false, false, ""},
		{lost, true, false, "redis: server a: lost"},
		{apart, false, true, "redis: server b: clock is off"},
		{errors.Join(apart, nil), false, true, "redis: server b: clock is off"},
		{errors.Join(errors.Join(lost, apart), nil, apart), true, true, "redis: server a: lost\nredis: server b: clock is off\nredis: server b: clock is off"},
	} {
		w.err = row.err
		err := c.Check(t.Context())
		require.Equal(t, row.store, errors.Is(err, counter.ErrStore), row.text)
		require.Equal(t, row.condition, errors.Is(err, counter.ErrCondition), row.text)
		if row.err != nil {
			require.EqualError(t, err, row.text)
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	w.asked = nil
	require.ErrorIs(t, c.Check(done), context.Canceled)
	require.Nil(t, w.asked)
}

// A Take by remembered buckets is a guess, and a wrong one if the buckets leave no
// room by now.
func TestGuessesByTicket(t *testing.T) {
	clock := time.Unix(1_772_494_233, 0)
	store := backend.FromDo(memory.New(memory.Config{}).Do)
	cfg := counter.Config{Now: func() time.Time { return clock }}
	c, other := newCounter(t, store, cfg), newCounter(t, store, cfg)
	limits := counter.MustLimits("5/d")
	key := counter.Key{Event: "e", Feature: "f"}
	for range 3 {
		require.True(t, take(t, c, key, 1, limits).Allowed)
		clock = clock.Add(time.Second)
	}
	require.EqualValues(t, 1, c.Stats().Guesses, "the second call enters the memory, the third uses it")
	require.Zero(t, c.Stats().WrongGuesses)
	for range 2 {
		require.True(t, take(t, other, key, 1, limits).Allowed)
	}
	require.False(t, take(t, c, key, 1, limits).Allowed)
	require.Positive(t, c.Stats().WrongGuesses)
	require.LessOrEqual(t, c.Stats().WrongGuesses, c.Stats().Guesses)
}
