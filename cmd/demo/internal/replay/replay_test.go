package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func config(t *testing.T, limits string) Config {
	l := try.To(counter.ParseLimits(limits))(t)
	return Config{Store: memory.New(memory.Config{}), Limits: l, Ladder: l.Ladder()}
}

func csvLog(lines ...string) *eventlog.Log {
	return &eventlog.Log{Source: strings.NewReader("time_us,event,feature\n" + strings.Join(lines, "\n")), Name: "log", Format: eventlog.Auto}
}

func run(t *testing.T, cfg Config, log *eventlog.Log) (*Report, error) {
	r := try.To(New(cfg))(t)
	return r.Run(t.Context(), log)
}

// reported is the report of a replay of lines, to the end.
func reported(t *testing.T, cfg Config, lines ...string) *Report {
	return try.To(run(t, cfg, csvLog(lines...)))(t)
}

func TestReport(t *testing.T) {
	cfg := config(t, "2/s, 3/m")
	var decisions []string
	cfg.Decided = func(e eventlog.Event, allowed bool) error {
		decisions = append(decisions, fmt.Sprintf("%d %s %s %t", e.At.UnixMilli(), e.Event, e.Feature, allowed))
		return nil
	}
	progress := 0
	log := csvLog(
		"10000000,login,ann",
		"10100000,login,ann",
		"10200000,login,ann", // the third in a second
		`10200000,login,"b,b"`,
		"20000000,login,ann",
		"19000000,login,ann", // the fourth in a minute, and late
		"69999999,login,ann",
		"70000000,login,ann", // the first is a minute back: still in the closed window
		"72000000,login,ann",
	)
	log.Progress = func() { progress++ }
	got := try.To(run(t, cfg, log))(t)
	require.Equal(t, []string{
		"10000 login ann true", "10100 login ann true", "10200 login ann false", "10200 login b,b true", "20000 login ann true",
		"19000 login ann false", "69999 login ann false", "70000 login ann false", "72000 login ann true",
	}, decisions)
	require.Positive(t, progress)
	require.Positive(t, got.Seconds)
	require.InDelta(t, 9/got.Seconds, got.Rate, 1e-6)
	got.Seconds, got.Rate = 0, 0
	require.Equal(t, &Report{
		Seen: eventlog.Seen{Format: eventlog.CSV, Events: 9, First: time.Unix(10, 0).UTC(), Last: time.Unix(72, 0).UTC(), Back: time.Second}, Limits: "2/s, 3/m", Ladder: "50ms:1s, 1s:1m, 10s:1m", Skew: "0s",
		Keys: 2, First: time.Unix(10, 0).UTC(), Last: time.Unix(72, 0).UTC(), RunsBack: "1s", Told: []string{"the stamps run back by up to 1s: --skew 1s allows for that"},
		Admitted: 5, Denied: 4,
		Worst: []Worst{
			{Limit: "2/s", Max: 2, Admitted: 2, Ratio: 1, Event: "login", Feature: "ann"},
			{Limit: "3/m", Max: 3, Admitted: 3, Ratio: 1, Event: "login", Feature: "ann"},
		},
		BucketsRead: got.BucketsRead, BucketsWritten: 5 * 3.0 / 9,
		MostDenied: []DeniedKey{{"login", "ann", 4, 4}},
	}, got)
}

// The mean of the covers' reads, by the ladder's own account.
func TestBucketsRead(t *testing.T) {
	cfg := config(t, "5/m, 9/d")
	cfg.Skew = 3 * time.Second
	stamps := []string{"1000000", "86399999999", "86400000000", "90061500000"}
	var want float64
	for _, ms := range []int64{1_000, 86_399_999, 86_400_000, 90_061_500} {
		for _, limit := range cfg.Limits {
			cover := try.To(cfg.Ladder.Cover(time.UnixMilli(ms), limit.Per, cfg.Skew))(t)
			want += float64(cover.Reads()) / 4
		}
	}
	for i := range stamps {
		stamps[i] += ",a,b"
	}
	got := reported(t, cfg, stamps...)
	require.InDelta(t, want, got.BucketsRead, 1e-9)
}

// Where buckets are a minute wide, the first of two hits is out of the window
// after a minute, and out of the buckets a minute later: a denial in between is
// told as the price of the grid.
func TestDeniedWithinGrid(t *testing.T) {
	cfg := config(t, "1/m")
	cfg.Ladder = try.To(tiers.Parse("1m:1m"))(t)
	got := reported(t, cfg, "30000000,a,b", "91000000,a,b", "119999999,a,b", "120000000,a,b")
	require.EqualValues(t, 2, got.Admitted)
	require.EqualValues(t, 2, got.GridDenied)
	require.Zero(t, got.WrongDenied)

	// A skew makes every window longer.
	cfg.Store, cfg.Skew = memory.New(memory.Config{}), 40*time.Second
	got = reported(t, cfg, "30000000,a,b", "120000000,a,b", "159999999,a,b", "160000000,a,b")
	require.EqualValues(t, 2, got.Admitted)
	require.EqualValues(t, 2, got.GridDenied)
}

func TestMostDenied(t *testing.T) {
	var lines []string
	for i := range 12 {
		for range 2 + i/2 {
			lines = append(lines, "0,e,k"+string(rune('a'+i)))
		}
	}
	got := reported(t, config(t, "1/s"), lines...)
	var features string
	for _, k := range got.MostDenied {
		features += k.Feature
		require.EqualValues(t, 1, k.Admitted)
	}
	require.Equal(t, "kkklkikjkgkhkekfkckd", features, "most denied first, equals by name, ten of them")
	require.Equal(t, "ka", got.Worst[0].Feature)
}

// liar is a store whose answer is fixed, or an error.
type liar struct {
	backend.Store
	answer bool
	err    error
}

var _ backend.Atomic = (*liar)(nil)

func (l *liar) Do(context.Context, *backend.Request) error         { return l.err }
func (l *liar) Together([]backend.TakeKey) bool                    { return true }
func (l *liar) Keeps() bool                                        { return false }
func (l *liar) Bind(backend.Store, *backend.TakeKey) backend.Quota { return nil }
func (l *liar) Take(_ context.Context, t *backend.TakeRequest) error {
	t.Allowed = l.answer
	return l.err
}

// remote is a store outside of this process: counter's default skew and budget
// for such a store must not apply to a log's clock.
type remote struct {
	backend.Store
	takings []backend.TakeRequest
}

func (*remote) Do(context.Context, *backend.Request) error { return nil }
func (*remote) Together([]backend.TakeKey) bool            { return true }
func (r *remote) Take(_ context.Context, t *backend.TakeRequest) error {
	step := *t
	step.Keys = slices.Clone(t.Keys)
	r.takings = append(r.takings, step)
	t.Allowed = true
	return nil
}

func TestSkewAndBudgetAreTheLogs(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Minute} {
		cfg := config(t, "9/h")
		store := &remote{}
		cfg.Store, cfg.Skew = store, skew
		got := reported(t, cfg, "0,a,b", "3600000000,a,b")
		require.EqualValues(t, 2, got.Admitted)
		require.Len(t, store.takings, 2)
		for i, taking := range store.takings {
			require.Equal(t, time.Hour+skew, taking.Keys[0].Windows[0].Reach)
			require.Zero(t, taking.Deadline)
			require.EqualValues(t, i*3600, taking.Now.Unix())
		}
	}
}

func TestWrongDecisionsAreFound(t *testing.T) {
	for answer, want := range map[bool]Report{
		true:  {WrongAdmitted: 3, Worst: []Worst{{Limit: "2/s", Max: 2, Admitted: 4, Ratio: 2, Event: "a", Feature: "b"}}},
		false: {WrongDenied: 5, Worst: []Worst{{Limit: "2/s", Max: 2}}},
	} {
		cfg := config(t, "2/s")
		cfg.Store = &liar{answer: answer}
		got := reported(t, cfg, "0,a,b", "0,a,b", "0,a,b", "1,a,b", "1000001,a,b")
		require.Equal(t, want, Report{WrongAdmitted: got.WrongAdmitted, WrongDenied: got.WrongDenied, Worst: got.Worst})
	}
}

func TestOutOfSkew(t *testing.T) {
	cfg := config(t, "2/s")
	got := reported(t, cfg, "5000000,a,b", "2000000,x,y", "3000000,a,b")
	require.Equal(t, "3s", got.RunsBack)
	require.Equal(t, []string{"the stamps run back by up to 3s: --skew 3s allows for that"}, got.Notes(3*time.Second - 1)[1:])
	require.Len(t, got.Notes(3*time.Second), 1)
	require.Equal(t, time.Unix(2, 0).UTC(), got.First)
	require.Equal(t, time.Unix(5, 0).UTC(), got.Last)
}

func TestNothingToReplay(t *testing.T) {
	got := reported(t, config(t, "0/s"))
	require.Zero(t, got.Rate)
	require.Equal(t, []Worst{{Limit: "0/s"}}, got.Worst)
	require.Equal(t, []DeniedKey{}, got.MostDenied)
}

func TestBadLines(t *testing.T) {
	lines := []string{"0,a,b", "zero,a,b", "1,a", "0,a,c"}
	got, err := run(t, config(t, "2/s"), csvLog(lines...))
	require.EqualError(t, err, `log:3: time_us "zero" is not a whole number, want microseconds since 1970`)
	require.EqualValues(t, 1, got.Events)
	require.Zero(t, got.BadLines)

	cfg := config(t, "2/s")
	skipping := csvLog(lines...)
	skipping.SkipBad = true
	got = try.To(run(t, cfg, skipping))(t)
	require.EqualValues(t, 2, got.Events)
	require.EqualValues(t, 2, got.BadLines)
	require.Equal(t, `log:3: time_us "zero" is not a whole number, want microseconds since 1970`, got.FirstBad)

	// An error of the whole file is not skipped.
	got, err = run(t, cfg, &eventlog.Log{Source: strings.NewReader("a,b\n"), Name: "log", Format: eventlog.CSV, SkipBad: true})
	require.ErrorContains(t, err, "column time_us is missing")
	require.Zero(t, got.BadLines)
}

func TestFailures(t *testing.T) {
	cfg := config(t, "2/s")
	cfg.Store = &liar{err: errors.New("out of beads")}
	got, err := run(t, cfg, csvLog("0,a,b"))
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorContains(t, err, "event 1: ")
	require.ErrorContains(t, err, "out of beads")
	require.Zero(t, got.Events)

	full := errors.New("disk full")
	cfg = config(t, "2/s")
	cfg.Decided = func(eventlog.Event, bool) error { return full }
	got, err = run(t, cfg, csvLog("0,a,b", "0,a,b"))
	require.Equal(t, full, err)
	require.EqualValues(t, 1, got.Events)
}

func TestWrongConfig(t *testing.T) {
	cfg := config(t, "2/s, 3/d")
	cfg.Ladder = tiers.For(time.Hour)
	require.ErrorContains(t, try.Err(New(cfg)), "limit 3/d: tiers: a window of 1d")
	cfg = config(t, "2/s")
	cfg.Skew = 25 * time.Hour
	require.ErrorContains(t, try.Err(New(cfg)), "counter: Config.Skew is 1d1h")
}

// An interrupt does not wait for the next line of a pipe, and all lines before
// the interrupt are decided by then.
func TestInterrupt(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := config(t, "2/s")
	cfg.Decided = func(e eventlog.Event, _ bool) error {
		if e.Feature == "last" {
			cancel()
		}
		return nil
	}
	go func() { _, _ = out.Write([]byte("time_us,event,feature\n0,a,b\n0,a,b\n0,a,last\n")) }()
	r := try.To(New(cfg))(t)
	got, err := r.Run(ctx, &eventlog.Log{Source: in, Name: "pipe", Format: eventlog.Auto})
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 3, got.Events)
}
