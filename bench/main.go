// Command bench sets this library next to its peers and writes docs/reports/bench.md, with
// charts next to it.
//
//	go run . -size short                                  prints, minutes
//	go run . -size full -write ../docs/reports/bench.md   make bench-peers
//	go run . -render ../docs/reports/bench.md             draws its charts again, measures nothing
//
// The program builds the benchmarks, which are Go tests, and runs each in a process
// of its own, in turn. A part that fails, because of a wrong count, ends the
// program, and nothing is written.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/abacus-go/abacus/bench/internal/measure"
)

// parts are the sections of the page, in its order.
var parts = []struct{ pkg, test string }{
	{"memory", "TestBesidePeers"},
	{"memory", "TestCallsInMemory"},
	{"memory", "TestMiddlewareBesidePeers"},
	{"redis", "TestOnRedis"},
	{"redis", "TestThreeKeysOnRedis"},
	{"redis", "TestMemoryOnRedis"},
	{"redis", "TestRedisOnALink"},
	{"memcache", "TestOnMemcached"},
	{"memcache", "TestCostOnMemcached"},
	{"memcache", "TestADenialOnMemcached"},
	{"memcache", "TestMemcachedOnALink"},
	{"memory", "TestManyKeys"},
	{"memory", "TestFloodOfFreshKeys"},
	{"memory", "TestLongWindows"},
	{"redis", "TestWindowsOnRedis"},
	{"memcache", "TestWindowsOnMemcached"},
	{"redis", "TestManyCallersOnRedis"},
	{"redis", "TestOneKeyOnRedis"},
	{"memcache", "TestManyCallersOnMemcached"},
	{"memcache", "TestOneKeyOnMemcached"},
	{"replay", "TestReplay"},
}

type options struct {
	size, write, render, data string
	only                      *regexp.Regexp
}

func main() {
	flag.CommandLine = flag.NewFlagSet("bench", flag.ExitOnError) // without the flags of the parts
	var o options
	flag.StringVar(&o.size, "size", "short", "tiny: whether it works; short: a few minutes; full: as in docs/reports/bench.md")
	flag.StringVar(&o.write, "write", "", "write the page to this `file`, and its charts to charts next to it; default: print its sections")
	flag.StringVar(&o.render, "render", "", "only draw the charts of this `page`, from its tables")
	flag.StringVar(&o.data, "data", "", "the `log` to replay; default: ../shared/data beside the repository, if it is there")
	only := flag.String("only", "", "only the parts whose names match this `regexp`, such as Redis")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil || flag.NArg() > 0 || !slices.Contains([]string{"tiny", "short", "full"}, o.size) {
		fmt.Fprintln(os.Stderr, "bench: want -size tiny, short or full, -only a regular expression, and no arguments")
		flag.Usage()
		os.Exit(2)
	}
	if o.render != "" {
		err = render(o.render)
	} else {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.data != "" {
		if o.data, err = filepath.Abs(o.data); err != nil {
			return err
		}
	}
	machine, err := look(o)
	if err != nil {
		return err
	}
	built := map[string]bool{}
	for _, p := range parts {
		if o.only.MatchString(p.test) && !built[p.pkg] {
			built[p.pkg] = true
			if out, err := exec.Command("go", "test", "-c", "-o", filepath.Join(dir, p.pkg+".test"), "./"+p.pkg).CombinedOutput(); err != nil {
				return fmt.Errorf("build %s: %w\n%s", p.pkg, err, out)
			}
		}
	}
	// An interrupt ends the running part; the program lives to clean up.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	machine.begin()
	var sections []string
	for _, p := range parts {
		if !o.only.MatchString(p.test) {
			continue
		}
		began := time.Now()
		section, err := runPart(o, dir, p.pkg, p.test)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s %s: %s\n", p.pkg, p.test, time.Since(began).Round(100*time.Millisecond))
		if o.write == "" {
			fmt.Printf("%s\n", section)
		}
		sections = append(sections, section)
		select {
		case <-interrupted:
			return errors.New("interrupted")
		default:
		}
	}
	machine.end()
	if o.write == "" {
		return nil
	}
	if err := os.WriteFile(o.write, []byte(page(machine, sections)), 0o644); err != nil {
		return err
	}
	return render(o.write)
}

// colours is the style that defines the colours of the charts, seen from here.
const colours = "../cmd/internal/web/base.css"

// render draws the charts of a page, next to it.
func render(page string) error {
	text, err := os.ReadFile(page)
	css, noCSS := os.ReadFile(colours)
	if err := errors.Join(err, noCSS); err != nil {
		return err
	}
	drawn, err := measure.Draw(string(text), string(css))
	for path, chart := range drawn {
		path = filepath.Join(filepath.Dir(page), path)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, chart, 0o644))
	}
	return err
}

// runPart runs a part and returns the section.
func runPart(o options, dir, pkg, test string) (string, error) {
	args := []string{"-test.run", "^" + test + "$", "-test.timeout", "60m", "-size", o.size, "-out", dir}
	if pkg == "replay" && o.data != "" {
		args = append(args, "-data", o.data)
	}
	cmd := exec.Command(filepath.Join(dir, pkg+".test"), args...)
	cmd.Dir = pkg
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", pkg, test, err, out)
	}
	section, err := os.ReadFile(filepath.Join(dir, test+".md"))
	return string(section), err
}
