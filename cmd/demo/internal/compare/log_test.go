package compare

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// lines is a log in text.
func lines(rows ...string) *eventlog.Log {
	return &eventlog.Log{Source: strings.NewReader("time_us,event,feature\n" + strings.Join(rows, "\n")), Name: "log", Format: eventlog.Auto}
}

func TestLoad(t *testing.T) {
	log := try.To(Load(t.Context(), lines("1000,a,x", "3000,a,y", "2000,b,x", "1000,a,y", "5000,a,x")))(t)
	require.EqualValues(t, 5, log.Events)
	require.Equal(t, []counter.Key{{Event: "a", Feature: "x"}, {Event: "a", Feature: "y"}, {Event: "b", Feature: "x"}}, log.keys)
	require.Equal(t, []uint32{0, 4}, log.of(0))
	require.Equal(t, []uint32{1, 3}, log.of(1))
	require.Equal(t, []uint32{2}, log.of(2))
	require.EqualValues(t, 1000, log.First.UnixMicro())
	require.EqualValues(t, 5000, log.Last.UnixMicro())
	require.Equal(t, 2*time.Millisecond, log.Back)
	require.Equal(t, sample{keys: []int{0, 1, 2}, worst: 0, events: []uint32{2, 3, 4}}, log.sample(10))
	require.Equal(t, sample{keys: []int{0}, worst: 0, events: []uint32{4}}, log.sample(1))

	require.EqualError(t, try.Err(Load(t.Context(), lines())), "log: no events, want at least one to compare by")
	_, err := Load(t.Context(), lines("1,a,b", "x,a,b"))
	require.EqualError(t, err, `log:3: time_us "x" is not a whole number, want microseconds since 1970`)
	skipping := lines("x,a,b", "y,a,b", "z,a,b", "1,a,b", "2,a")
	skipping.SkipBad = true
	log = try.To(Load(t.Context(), skipping))(t)
	require.EqualValues(t, 1, log.Events)
	require.EqualValues(t, 4, log.BadLines)
	require.Equal(t, `log:2: time_us "x" is not a whole number, want microseconds since 1970`, log.FirstBad)
}

// An interrupt does not wait for a log that has ceased to grow.
func TestLoadIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	silent, out := io.Pipe()
	defer silent.Close()
	go out.Write([]byte("time_us,event,feature\n1,a,b\n"))
	require.ErrorIs(t, try.Err(Load(ctx, &eventlog.Log{Source: silent, Name: "log", Format: eventlog.Auto, Progress: cancel})), context.Canceled)
}

// same reports whether two logs hold the same hits.
func same(a, b *Log) bool { return slices.Equal(a.events, b.events) && slices.Equal(a.keys, b.keys) }

func TestGenerate(t *testing.T) {
	for _, text := range []string{"10/h,100/d", "3/100ms", "1000/7d", "50000/m", "1/366d"} {
		t.Run(text, func(t *testing.T) {
			limits := counter.MustLimits(text)
			log := try.To(Generate(7, limits))(t)
			require.True(t, same(log, try.To(Generate(7, limits))(t)))
			require.False(t, same(log, try.To(Generate(8, limits))(t)))
			require.Contains(t, log.Name, "seed 7: ")
			require.Equal(t, limits[0].Max == 50_000, strings.HasSuffix(log.Name, "; of a large Max no more than 20000 at an edge and 1000 at once"))

			require.Zero(t, log.Back)
			require.Less(t, int(log.Events), 200_000)
			require.GreaterOrEqual(t, log.First.UnixMicro(), genBegin.UnixMicro())
			span := max(dur.Day, 2*limits[len(limits)-1].Per)
			require.Less(t, log.Last.UnixMicro(), genBegin.Add(span).UnixMicro())
			require.Greater(t, log.Last.Sub(log.First), span-span/50)
		})
	}
}

// The generated log has each part of the model.
func TestGeneratedModel(t *testing.T) {
	limit := counter.MustLimits("10/h")[0]
	log := try.To(Generate(1, counter.Limits{limit}))(t)
	hours, users, kinds := map[int]int{}, map[string]int{}, map[string]int{}
	for key := range log.keys {
		of := log.of(key)
		feature := log.keys[key].Feature
		first, last := log.at(of[0]), log.at(of[len(of)-1])
		kind, _, _ := strings.Cut(feature, ":")
		kinds[kind]++
		switch kind {
		case "user":
			users[feature] = len(of)
			for _, event := range of {
				hours[log.at(event).Hour()]++
			}
		case "edge-of-1h":
			edge := last.Truncate(time.Hour)
			require.Len(t, of, 20)
			require.True(t, log.at(of[9]).Before(edge) && !log.at(of[10]).Before(edge), "%s: %s is not the edge", feature, edge)
			require.Less(t, last.Sub(first), 2*limit.Per/50)
		case "flood-10/h":
			require.InDelta(t, 50, float64(len(of))/last.Sub(first).Hours(), 5)
		case "pulse-10/h":
			require.Less(t, log.at(of[9]).Sub(first), time.Millisecond)
			require.Less(t, log.at(of[10]).Sub(first), time.Hour)
		case "early-10/h":
			require.Len(t, of, 20)
			require.Equal(t, limit.Per-time.Second/2, log.at(of[10]).Sub(first))
		default:
			t.Fatalf("who is %s?", feature)
		}
	}
	require.Greater(t, kinds["user"], genUsers/2)
	delete(kinds, "user")
	require.Equal(t, map[string]int{"edge-of-1h": 20, "flood-10/h": 2, "pulse-10/h": 2, "early-10/h": 2}, kinds)
	require.Len(t, hours, 24)
	require.Greater(t, hours[genPeak], 4*hours[(genPeak+12)%24])
	require.Greater(t, users["user:0"], 10*users["user:30"])
}
