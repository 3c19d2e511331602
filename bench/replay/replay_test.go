//go:build unix

// Package replay_test measures the demo program as a whole process, on real
// traffic.
//
//	cd bench && go test ./replay                                            a test, on an invented log
//	cd bench && go test -v -count=1 ./replay -size short -data LOG.csv.gz  a benchmark
package replay_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// The data is beside the repository, if at all, and no part of the repository.
var data = flag.String("data", "../../../shared/data/ciscoasa_vpn_2025.csv.gz", "the `log` to replay, CSV with time_us,event,feature, gzip'ed")

const limits = "10/m,50/h,100/d"

type event struct {
	at  int64 // microseconds
	key counter.Key
}

// report is the used part of demo replay --json.
type report struct {
	Events, Admitted, Denied int64
	Keys                     int
	WrongDenied              int64 `json:"wrongly_denied"`
	WrongAdmitted            int64 `json:"wrongly_admitted"`
}

func TestReplay(t *testing.T) {
	rounds := measure.Pick(1, 2, 5)
	s := measure.Open(t, "A whole process: demo replay")
	path := *data
	if _, err := os.Stat(path); err != nil || measure.Tiny() {
		path = madeUp(t, measure.Pick(1_500, 200_000, 200_000))
		s.Say("The log of real traffic was not there: this one is made up.")
	}
	demo := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.Command("go", "build", "-C", "../..", "-ldflags=-w", "-o", demo, "./cmd/demo").CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/demo: %v\n%s", err, out)
	}
	events := read(t, path)
	admitted, keys := takes(t, events)
	s.Say("`demo replay --limits %s` of a log with %s events and %s keys, %s of them admitted. A process reads a gzip'ed file, takes, and checks every decision against a log of all hits. Seconds from its start to its end, "+
		"and the most memory that it had (`getrusage`); medians, and the spread. For comparison the parts alone, in one process and on one core: reading (gunzip, splitting lines), and Takes of events that are in memory. "+
		"All rows that take admitted as many: that is checked.", limits, measure.Count(int64(len(events))), measure.Count(int64(keys)), measure.Count(admitted))

	var names []string
	var runs []func() (seconds, megabytes float64)
	add := func(name string, run func() (float64, float64)) { names, runs = append(names, name), append(runs, run) }
	add("reading alone", func() (float64, float64) {
		began := time.Now()
		require.Len(t, read(t, path), len(events))
		return time.Since(began).Seconds(), 0
	})
	add("Takes alone, in memory", func() (float64, float64) {
		runtime.GC()
		began := time.Now()
		again, _ := takes(t, events)
		require.Equal(t, admitted, again)
		return time.Since(began).Seconds(), 0
	})
	process := func(args ...string) func() (float64, float64) {
		return func() (float64, float64) {
			r, seconds, megabytes := replay(t, demo, append(args, path)...)
			require.EqualValues(t, len(events), r.Events)
			require.Equal(t, admitted, r.Admitted)
			require.Equal(t, r.Events, r.Admitted+r.Denied)
			if path != *data { // any other log may be a quiet one
				require.NotZero(t, r.Denied)
			}
			require.Equal(t, keys, r.Keys)
			require.Zero(t, r.WrongDenied+r.WrongAdmitted)
			return seconds, megabytes
		}
	}
	add("demo replay, memory", process("--store", "memory"))
	network := len(names)
	add("demo replay, Redis", process("--store", "redis://"+servertest.Redis(t)))
	add("demo replay, memcached", process("--store", "memcached://"+servertest.Memcached(t, "-m", "2048")))

	seconds, megabytes := make([]measure.Series, len(names)), make([]measure.Series, len(names))
	measure.Turns(rounds, len(names), func(i, round int) {
		if i >= network && round > 0 {
			return // a minute each: once is enough
		}
		sec, mb := runs[i]()
		seconds[i], megabytes[i] = append(seconds[i], sec), append(megabytes[i], mb)
	})
	table := measure.Table{Head: []string{"", "runs", "seconds", "events/s", "peak memory, MB"}}
	for i, name := range names {
		peak := ""
		if megabytes[i].Median() > 0 {
			peak = megabytes[i].Spread()
		}
		table.Row(name, fmt.Sprint(len(seconds[i])), seconds[i].Spread(), measure.Count(int64(float64(len(events))/seconds[i].Median())), peak)
	}
	s.Table("", table)
}

// replay runs the program, to its end.
func replay(t *testing.T, demo string, args ...string) (r report, seconds, megabytes float64) {
	exe := try.To(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), exe, append([]string{demo, "replay", "--json", "--limits", limits}, args...)...)
	cmd.Env = append(os.Environ(), parentEnv+"=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	var u usage
	require.NoError(t, json.Unmarshal(out, &u))
	require.NoError(t, json.Unmarshal(u.Output, &r))
	if !measure.Tiny() { // a program with next to no work is no larger than its parent
		require.Less(t, u.Parent, u.Peak, "the memory of its parent was measured")
	}
	return r, u.Seconds, float64(u.Peak) / 1e6
}

// parentEnv makes this binary run the program in its arguments, and print the
// usage. For getrusage a process inherits the peak of its parent: so the parent
// must be small, and the test is not.
const parentEnv = "BENCH_REPLAY_PARENT"

type usage struct {
	Output       json.RawMessage
	Seconds      float64
	Peak, Parent int64 // bytes
}

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stderr = os.Stderr
	u := usage{Parent: own()}
	began := time.Now()
	out, err := cmd.Output()
	u.Output, u.Seconds = out, time.Since(began).Seconds()
	if err == nil {
		u.Peak = peak(cmd.ProcessState.SysUsage().(*syscall.Rusage))
		err = json.NewEncoder(os.Stdout).Encode(u)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// own returns the peak memory of this process, if the system has the number.
func own() (bytes int64) {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	return 0
}

func peak(u *syscall.Rusage) int64 {
	if runtime.GOOS == "darwin" { // counts in bytes
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}

// takes decides all events, as the program does, and nothing else.
func takes(t *testing.T, events []event) (admitted int64, keys int) {
	t.Helper()
	parsed := counter.MustLimits(limits)
	var now time.Time
	store := memory.New(memory.Config{})
	c := try.To(counter.New(store, counter.Config{Ladder: parsed.Ladder(), Now: func() time.Time { return now }}))(t)
	for i := range events {
		now = time.UnixMicro(events[i].at)
		if v := try.To(c.Take(context.Background(), events[i].key, 1, parsed))(t); v.Allowed {
			admitted++
		}
	}
	return admitted, store.Stats().Keys
}

func read(t *testing.T, path string) (events []event) {
	file := try.To(os.Open(path))(t)
	defer file.Close()
	plain := try.To(gzip.NewReader(file))(t)
	lines := bufio.NewScanner(plain)
	for lines.Scan() {
		at, rest, _ := strings.Cut(lines.Text(), ",")
		name, feature, _ := strings.Cut(rest, ",")
		if us, err := strconv.ParseInt(at, 10, 64); err == nil { // not the head
			events = append(events, event{us, counter.Key{Event: name, Feature: feature}})
		}
	}
	require.NoError(t, lines.Err())
	return events
}

// madeUp is a log of some busy and many idle clients.
func madeUp(t *testing.T, n int) string {
	path := filepath.Join(t.TempDir(), "log.csv.gz")
	file := try.To(os.Create(path))(t)
	defer file.Close()
	packed := gzip.NewWriter(file)
	try.To(io.WriteString(packed, "time_us,event,feature\n"))(t)
	random := rand.New(rand.NewPCG(1, 2))
	at := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC).UnixMicro()
	for range n {
		at += random.Int64N(2_000_000)
		try.To(fmt.Fprintf(packed, "%d,login,client%d\n", at, random.IntN(1+random.IntN(1+random.IntN(400)))))(t)
	}
	require.NoError(t, packed.Close())
	return path
}
