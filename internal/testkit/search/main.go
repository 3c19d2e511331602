// Command search plays random scripts on all stores and holds every answer to a log
// of all hits, as the tests do with fewer scripts: see package script.
//
//	go run ./internal/testkit/search --for 1h                             what make oracle FOR=1h does
//	go run ./internal/testkit/search --only memcached --seed 7 --for 1s   the scripts from seed 7 on
//
// The stores are memory, Redis with both layouts, and memcached, side by side. Each
// has servers of its own, whose programs must be installed. The clock of the callers
// is virtual: a script lasts for weeks of that clock, and milliseconds of a server's
// clock. So no bucket of a server expires while a script runs. The search finds wrong
// answers about buckets that are there, too old ones among them. Whether a server
// keeps a bucket for long enough is up to other tests and to the command faults.
//
// The exit code is 0 if all answers were right, 1 for a wrong answer or a search that
// could not be made, 2 for wrong arguments, and 130 after an interrupt, with the
// numbers so far printed. For a wrong answer the search prints the seed and the
// script, shortened to the calls that the failure needs.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/internal/testkit/page"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/internal/testkit/program"
	"github.com/abacus-go/abacus/internal/testkit/script"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/tiers"
)

type cli struct {
	all []*trial

	For  time.Duration `default:"10m" help:"How long to search. Default: ${default}."`
	Seed uint64        `help:"Seed of the first script of each store; the next script has the next seed. Default: one by chance, printed."`
	Only string        `enum:"${names}" default:"" help:"The one store to search. Default: all."`
}

// trial is the search on one store.
type trial struct {
	name  string
	fresh bool // a store for each script
	open  func(stage *servertest.Stage) (backend.Store, func() error, error)

	scripts, answers, wrong atomic.Int64
}

const (
	// perStore bounds the scripts of a store and its server, since scripts leave
	// buckets behind.
	perStore = 100

	ioTimeout = 30 * time.Second // the machine may be busy

	shrinking = time.Minute // the longest time to shorten a script
	shown     = 3           // wrong scripts of a store that are printed
)

func trials() []*trial {
	onRedis := func(l redis.Layout) func(*servertest.Stage) (backend.Store, func() error, error) {
		return func(stage *servertest.Stage) (backend.Store, func() error, error) {
			return program.Opened(redis.Open("redis://"+servertest.Redis(stage)+"/0", redis.Config{Layout: l, IOTimeout: ioTimeout}))
		}
	}
	return []*trial{
		{name: "memory", fresh: true, open: func(*servertest.Stage) (backend.Store, func() error, error) {
			return memory.New(memory.Config{}), func() error { return nil }, nil
		}},
		{name: "redis", open: onRedis(redis.Sums)},
		{name: "redis plain", open: onRedis(redis.Plain)},
		{name: "memcached", open: func(stage *servertest.Stage) (backend.Store, func() error, error) {
			return program.Opened(memcache.New(memcache.Config{IOTimeout: ioTimeout}, servertest.Memcached(stage, "-m", "512")))
		}},
	}
}

// ladders are kept for a minute and more, which is longer than a script runs.
var ladders = parsed("1s:1d, 1m:1d, 1h:1d", "100ms:1m, 1s:1h, 1m:1d, 1h:7d, 1d:7d", "1m:1d, 1h:1d", "10s:1h", "1s:1m, 1h:7d",
	"1m:1d, 1h:30d", "1s:1h, 1m:1d, 1h:30d", "50ms:1m, 1s:30d, 1m:30d, 1h:30d, 1d:30d", "10s:10m, 10m:1d, 2h:30d",
	"1s:1h, 15m:32d, 1h:32d, 1d:32d", "1m:2d", "1h:8d, 1d:31d")

func parsed(texts ...string) (all []tiers.Ladder) {
	for _, text := range texts {
		all = append(all, parse.Ladder(text))
	}
	return all
}

func main() { os.Exit(run(trials(), os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit code.
func run(all []*trial, args []string, stdout, stderr io.Writer) int {
	var names []string
	for _, t := range all {
		names = append(names, t.name)
	}
	return program.Run("search", "Play random scripts on all stores, and check every answer.", &cli{all: all}, names, args, stdout, stderr)
}

// Run is the method of [program.Options].
func (c *cli) Run(ctx context.Context, stderr io.Writer) (numbers string, broken, err error) {
	if c.Seed == 0 {
		c.Seed = uint64(mrand.Uint32()) << 16
	}
	fmt.Fprintln(stderr, "search: seed", c.Seed)
	ctx, cancel := context.WithTimeout(ctx, c.For)
	defer cancel()
	tried := slices.DeleteFunc(slices.Clone(c.all), func(t *trial) bool { return c.Only != "" && c.Only != t.name })
	err = c.searchAll(ctx, tried, stderr)
	table := [][]string{{"store", "scripts", "answers", "wrong scripts"}}
	wrong := int64(0)
	for _, t := range tried {
		wrong += t.wrong.Load()
		table = append(table, []string{t.name, page.Thousands(t.scripts.Load()), page.Thousands(t.answers.Load()), page.Thousands(t.wrong.Load())})
	}
	if wrong > 0 {
		broken = fmt.Errorf("%d wrong scripts", wrong)
	}
	return page.Table(table), broken, err
}

// File is empty: the numbers are printed.
func (c *cli) File() string { return "" }

// Again is the command line that does the same again.
func (c *cli) Again() string {
	return fmt.Sprintf("go run ./internal/testkit/search --only %q --seed %d --for %s", c.Only, c.Seed, c.For)
}

// Validate refuses what cannot be run.
func (c *cli) Validate() error {
	if c.For <= 0 {
		return fmt.Errorf("--for is %v, want more than zero", c.For)
	}
	return nil
}

// searchAll runs the trials side by side until ctx is done, and writes findings and the
// progress to stderr. The error is that of stores that cannot be opened.
func (c *cli) searchAll(ctx context.Context, all []*trial, stderr io.Writer) error {
	errs := make([]error, len(all))
	var mu sync.Mutex // guards stderr
	var searches sync.WaitGroup
	for i, t := range all {
		searches.Go(func() {
			errs[i] = t.search(ctx, c.Seed, func(finding string) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprint(stderr, finding)
			})
		})
	}
	done := make(chan struct{})
	go func() { searches.Wait(); close(done) }()
	progress := program.NewProgress(stderr, int(c.For/time.Second))
	defer progress.Clear()
	for began, tick := time.Now(), time.Tick(time.Second); ; {
		select {
		case <-tick:
			mu.Lock()
			progress.Time(time.Since(began), c.For, func() string { return summary(all) })
			mu.Unlock()
		case <-done:
			return errors.Join(errs...)
		}
	}
}

// summary says in a few words how far it is.
func summary(tried []*trial) string {
	var all []string
	for _, t := range tried {
		all = append(all, fmt.Sprintf("%s %s answers, %d wrong", t.name, page.Thousands(t.answers.Load()), t.wrong.Load()))
	}
	return strings.Join(all, "; ")
}

// search plays scripts until ctx is done, one at least, and passes findings to tell.
// The error is the error of a store that cannot be opened.
func (t *trial) search(ctx context.Context, seed uint64, tell func(string)) (err error) {
	for first := true; err == nil && (first || ctx.Err() == nil); first = false {
		stage := &servertest.Stage{}
		ended := make(chan struct{})
		go func() { // which a failure of the stage ends
			defer close(ended)
			var store backend.Store
			var closeStore func() error
			if store, closeStore, err = t.open(stage); err != nil {
				return
			}
			defer closeStore()
			play := func(s script.Script) ([]script.Answer, error) {
				if !t.fresh {
					return s.Play(store, strings.ToLower(rand.Text()[:16]))
				}
				store, _, err := t.open(stage)
				if err != nil {
					return nil, err
				}
				return s.Play(store, "")
			}
			for i := 0; i < perStore && (i == 0 && first || ctx.Err() == nil); i++ {
				t.try(play, seed, tell)
				seed++
			}
		}()
		<-ended
		err = errors.Join(err, stage.Err())
		stage.End()
	}
	return err
}

// try plays the script of a seed.
func (t *trial) try(play func(script.Script) ([]script.Answer, error), seed uint64, tell func(string)) {
	s := script.Any(seed, ladders...)
	answers, err := play(s)
	t.scripts.Add(1)
	t.answers.Add(int64(len(answers)))
	if err == nil {
		return
	}
	if t.wrong.Add(1) > shown {
		tell(fmt.Sprintf("\n%s, seed %d: %v\n", t.name, seed, err))
		return
	}
	began, last := time.Now(), err
	short := s.Shrink(func(s script.Script) bool {
		if time.Since(began) > shrinking {
			return false
		}
		_, err := play(s)
		if err != nil {
			last = err
		}
		return err != nil
	})
	tell(fmt.Sprintf("\n%s, seed %d: %v\nagain: go run ./internal/testkit/search --only %q --seed %d --for 1s\n%d of %d calls are left, %v:\n%s\n",
		t.name, seed, err, t.name, seed, len(short.Calls), len(s.Calls), last, short))
}
