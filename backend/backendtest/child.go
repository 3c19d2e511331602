package backendtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/parse"
)

// A child is told its job by the environment, and gets its orders, a line each,
// from standard input. The answers go to standard output, where the testing package
// and the author of the test write too: answers are the lines that begin with
// answerMark.

const (
	jobVariable = "BACKENDTEST_PROCESS"
	answerMark  = "backendtest: answer: "
)

// job is the purpose of a child.
type job struct {
	Where  string
	Prefix string
	Ahead  time.Duration // how far its clock is
}

// order is one task of a child.
type order struct {
	Race   string        // racers for this key; or, if the key is empty,
	For    time.Duration // one caller after the other, for so long
	Limits string

	// The racers of a child begin at Start, or at once, and up to Within later, on a
	// clock ahead of the true time by Shift and the child's own error.
	Start   time.Time
	Within  time.Duration
	Shift   time.Duration
	Timeout time.Duration
}

// report is the result of an order.
type report struct {
	Admitted []admission
	Denied   int
	Failed   int
	Failure  string        // of the last call that failed
	Told     time.Time     // the latest instant, in true time, to which a loser was told to wait
	Slowest  time.Duration // call
	Error    string
}

func isJob(variable string) bool { return strings.HasPrefix(variable, jobVariable+"=") }

// child is a process, seen from its parent.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	said   bytes.Buffer // output besides the answers
	errors bytes.Buffer
}

// begin starts the running binary again, for one test.
func begin(test string, j job) (*child, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	told, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(binary, "-test.run="+exactly(test), "-test.count=1", "-test.timeout=5m")}
	c.cmd.Env = append(os.Environ(), jobVariable+"="+string(told))
	c.cmd.Stderr = &c.errors
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

// exactly is a pattern for -test.run that matches one test, or subtest.
func exactly(test string) string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^") + "$"
}

// ask gives an order and waits for the report.
func (c *child) ask(o order) (r report, err error) {
	line, err := json.Marshal(o)
	if err != nil {
		return r, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return r, c.failed(err)
	}
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			return r, c.failed(err)
		}
		answer, found := strings.CutPrefix(line, answerMark)
		if !found {
			c.said.WriteString(line)
			continue
		}
		if err := json.Unmarshal([]byte(answer), &r); err != nil {
			return r, c.failed(err)
		}
		if r.Error != "" {
			return r, c.failed(errors.New(r.Error))
		}
		return r, nil
	}
}

func (c *child) failed(err error) error {
	return fmt.Errorf("process %d: %w\n%s%s", c.cmd.Process.Pid, err, &c.said, &c.errors)
}

// end lets the child go, and waits for it.
func (c *child) end() error {
	c.in.Close()
	rest, _ := io.ReadAll(c.out)
	c.said.Write(rest)
	if err := c.cmd.Wait(); err != nil {
		return c.failed(err)
	}
	return nil
}

// serveChild does the orders of this process, and ends the test.
func serveChild(t *testing.T, open func(string) (backend.Store, error)) {
	defer t.SkipNow() // the first process judges
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(jobVariable)), &j); err != nil {
		t.Fatal(err)
	}
	store, err := open(j.Where)
	if err != nil {
		t.Fatal(err)
	}
	orders := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := orders.Decode(&o); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		var r report
		if err := caught(func() { j.do(store, o, &r) }); err != nil {
			r.Error = err.Error()
		}
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\n%s%s\n", answerMark, line) // on a line of its own, whatever stands before
	}
}

// do fills in the report on an order, or stops at what no order may meet.
func (j job) do(store backend.Store, o order, r *report) {
	ahead, limits := o.Shift+j.Ahead, counter.MustLimits(o.Limits)
	cfg := counter.Config{Prefix: j.Prefix, Skew: crewSkew, Patience: o.Timeout, Now: func() time.Time { return time.Now().Add(ahead) }}
	if o.Race == "" {
		cfg.Ladder, cfg.Settle = parse.Ladder("100ms:3s, 1s:3s"), time.Second
		c := value(counter.New(store, cfg))
		for began := time.Now(); time.Since(began) < o.For; time.Sleep(5 * time.Millisecond) {
			v, err := c.Take(context.Background(), counter.Key{Event: "window", Feature: "x"}, 1, limits)
			r.count(v, err, ahead)
		}
		return
	}
	c := value(counter.New(store, cfg))
	var mu sync.Mutex
	together(racers/crew, func(int) {
		time.Sleep(time.Until(o.Start) + rand.N(o.Within+1))
		from := time.Now()
		v, err := c.Take(context.Background(), counter.Key{Event: "race", Feature: o.Race}, 1, limits)
		to := time.Now()
		mu.Lock()
		defer mu.Unlock()
		r.Slowest = max(r.Slowest, to.Sub(from))
		r.count(v, err, ahead)
		if told := to.Add(v.RetryAfter); err == nil && !v.Allowed && told.After(r.Told) {
			r.Told = told
		}
	})
}

// count adds a call by a clock ahead of the true time by so much. A call may fail for
// the store's sake.
func (r *report) count(v counter.Verdict, err error, ahead time.Duration) {
	switch {
	case errors.Is(err, backend.ErrStore):
		r.Failed++
		r.Failure = err.Error()
	case err != nil:
		must(err)
	case v.Allowed:
		r.Admitted = append(r.Admitted, admission{v.At(), v.At().Add(-ahead)})
	default:
		r.Denied++
	}
}
