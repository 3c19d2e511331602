package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	goredis "github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"demo": main,
		"ask":  ask,
		"dump": dump,
		// The demo on a store that admits everything.
		"demo-lenient": func() {
			open = func(stores.Name, time.Duration) (*stores.Opened, error) {
				return &stores.Opened{Store: newLenient()}, nil
			}
			main()
		},
	})
}

// raceEnv spares every process built with -race the second of sleep before the
// exit.
const raceEnv = "atexit_sleep_ms=0"

type lenient struct{ backend.Store }

func (lenient) Together([]backend.TakeKey) bool { return true }
func (lenient) Take(_ context.Context, t *backend.TakeRequest) error {
	t.Allowed = true
	return nil
}

func newLenient() backend.Atomic {
	return lenient{backend.FromDo(func(context.Context, *backend.Request) error { return nil })}
}

var update = flag.Bool("update", false, "write what the commands print into the scripts that compare it")

func TestScripts(t *testing.T) {
	scripts, err := os.ReadDir("testdata/script")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(scripts), 15)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", raceEnv)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"mask":     mask,
			"gzip":     zip,
			"cut":      cut,
			"longline": longLine,
			"width":    width,
			"server":   func(ts *testscript.TestScript, neg bool, args []string) { server(t, ts, neg, args) },
			"holds":    holds,
		},
	})
}

// server starts a server of its own for the script, and sets a variable to its
// host:port:
//
//	server redis|memcached variable [argument...]
func server(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: server redis|memcached variable [argument...]")
	}
	start := map[string]func(testing.TB, ...string) string{"redis": servertest.Redis, "memcached": servertest.Memcached}[args[0]]
	ts.Setenv(args[1], start(t, args[2:]...))
}

// holds checks how many keys or items the server of a store has:
//
//	[!] holds store number
func holds(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] holds store number")
	}
	n, err := stored(args[0])
	ts.Check(err)
	if got := strconv.FormatInt(n, 10); (got == args[1]) == neg {
		ts.Fatalf("%s holds %s, %s: %t", args[0], got, args[1], !neg)
	}
}

// stored is the number of keys or items on the servers of a store, whatever their
// owners.
func stored(store string) (n int64, err error) {
	name, err := stores.Parse(store)
	if err != nil {
		return 0, err
	}
	opened, err := stores.Open(name, time.Second)
	if err != nil {
		return 0, err
	}
	defer opened.Close()
	if opened.Redis != nil {
		err = opened.Redis.Masters(context.Background(), func(ctx context.Context, master *goredis.Client) error {
			keys, err := master.DBSize(ctx).Result()
			n += keys
			return err
		})
		return n, err
	}
	for _, addr := range opened.Memcached.Servers {
		stats, err := opened.Memcached.Stats(context.Background(), addr)
		if err != nil {
			return n, err
		}
		items, _ := strconv.ParseInt(stats["curr_items"], 10, 64)
		n += items
	}
	return n, nil
}

// masks are the parts of an output that differ between runs.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(events per second) +[\d,]+ +[\d.]+ s`), "${1} RATE TIME s"},
	{regexp.MustCompile(`\d+ ns each`), "TIME ns each"},
	{regexp.MustCompile(`keys begin with demo[a-z2-7]{8};`), "keys begin with PREFIX;"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`("seconds": )[\d.e+-]+`), "${1}TIME"},
	{regexp.MustCompile(`("events_per_second": )[\d.e+-]+`), "${1}RATE"},
}

// mask writes the output of the last command to a file, without its timings:
//
//	mask file
func mask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mask file")
	}
	text := ts.ReadFile("stdout")
	for _, m := range masks {
		text = m.pattern.ReplaceAllString(text, m.with)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o666))
}

// zip compresses a file:
//
//	gzip from to
func zip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: gzip from to")
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	ts.Check(w.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o666))
}

// cut leaves the last three bytes off a file:
//
//	cut file
func cut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: cut file")
	}
	text := ts.ReadFile(args[0])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text[:len(text)-3]), 0o666))
}

// longLine replaces the word LONG in a file by two million letters:
//
//	longline file
func longLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: longline file")
	}
	text := ts.ReadFile(args[0])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(text, "LONG", strings.Repeat("x", 2_000_000), 1)), 0o666))
}

// width checks that no line of the last command's output is wider than a
// terminal.
func width(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: width")
	}
	for line := range strings.SplitSeq(ts.ReadFile("stdout"), "\n") {
		if len([]rune(line)) > columns || strings.TrimRight(line, " ") != line {
			ts.Fatalf("not a line of at most %d columns: %q", columns, line)
		}
	}
}
