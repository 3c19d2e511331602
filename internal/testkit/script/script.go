// Package script makes tests of a Counter into data: a [Script] holds the calls of
// serial callers with clocks of their own, a call a line. [Random] makes a Script,
// [Script.Play] runs a Script on a store and holds every answer to a log of all
// hits; a Script that fails is printed, shrunk, and played again.
//
//	ladder 1s:1d, 1m:1d, 1h:1d
//	skew 100ms
//	settle 50ms
//	0 take 1 a/x=7/m,10/h
//	1500000000 takeall 2 a/x=7/m b/y=9/h
//	1500000001 refund 1
//	1500000002 takeall 1 a/x=7/m +b/y=9/h
//	1500000003 charge -2 b/y=9/h
//	1500000004 settle 1 5
//
// A key with a plus is charged. A charge below zero gives back. The settle has five hits
// instead of those of the second call. The spaces of a limit by the calendar are tildes:
// a/x=9~per~day~in~UTC,3/m.
// Scripts run on a virtual clock, and take as long as the store takes.
package script

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Script is a sequence of calls on a single Counter.
type Script struct {
	Ladder tiers.Ladder
	Skew   time.Duration // of the Counter's Config; below zero: none

	// Settle is Config.Settle of the Counter; below zero: none. Without an atomic
	// step Settle is part of the arithmetic.
	Settle time.Duration

	Exact bool // of the Counter's Config
	Year  int  // of the first reading of the clock; 0: 2026

	Calls []Call
}

// Call is one line of a [Script].
type Call struct {
	At     int64         // the caller's clock, in nanoseconds after the first reading
	Verb   string        // take, peek, charge, takeall, add, addat, count, series, refund, settle, forget
	N      int64         // weight; of a refund or a settle the place, from 0, of the call whose verdict it is about
	Used   int64         // of a settle
	Asks   []counter.Ask // a single ask, for a peek, a charge and a takeall at least one, for a refund and a settle none
	Window time.Duration // of a count; of a series the width of a point
	Back   time.Duration // of an addat: the age of the hits; of a series: the age of the first point
}

// start is the first reading of the clock.
func (s Script) start() time.Time {
	return time.Date(cmp.Or(s.Year, 2026), 2, 28, 21, 0, 0, 0, time.UTC)
}

// String is the form that [Parse] reads.
func (s Script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ladder %s\nskew %s\nsettle %s\n", s.Ladder, s.Skew, s.Settle)
	if s.Exact {
		b.WriteString("exact\n")
	}
	if s.Year != 0 {
		fmt.Fprintf(&b, "year %d\n", s.Year)
	}
	for _, c := range s.Calls {
		b.WriteString(c.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// spaces makes limits one word.
var spaces = strings.NewReplacer(", ", ",", " ", "~")

// forms are the words behind each verb: fields of a Call, an ask, or any number of asks.
var forms = map[string]string{
	"take": "N ask", "peek": "N asks", "charge": "N asks", "takeall": "N asks", "add": "N ask", "addat": "N ask Back", "count": "ask Window",
	"series": "ask Back Window", "refund": "N", "settle": "N Used", "forget": "ask",
}

// field is the number or the time of a name; nil: asks.
func (c *Call) field(name string) any {
	switch name {
	case "N":
		return &c.N
	case "Used":
		return &c.Used
	case "Back":
		return &c.Back
	case "Window":
		return &c.Window
	}
	return nil
}

// String is the line of a script.
func (c Call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", c.At, c.Verb)
	for name := range strings.FieldsSeq(forms[c.Verb]) {
		switch field := c.field(name).(type) {
		case *int64:
			fmt.Fprintf(&b, " %d", *field)
		case *time.Duration:
			fmt.Fprintf(&b, " %s", *field)
		default:
			for _, a := range c.Asks {
				b.WriteByte(' ')
				if a.Charge {
					b.WriteByte('+')
				}
				fmt.Fprintf(&b, "%s/%s", a.Key.Event, a.Key.Feature)
				if len(a.Limits) > 0 {
					fmt.Fprintf(&b, "=%s", spaces.Replace(a.Limits.String()))
				}
			}
		}
	}
	return b.String()
}

// ofCall reports whether c is about the verdict of an earlier call.
func (c Call) ofCall() bool { return c.Verb == "refund" || c.Verb == "settle" }

// Parse reads a script. Its keys are words without "/" and "=". The error
// shows the line.
func Parse(text string) (s Script, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "ladder":
			s.Ladder, err = tiers.Parse(rest)
		case "skew":
			s.Skew, err = time.ParseDuration(rest)
		case "settle":
			s.Settle, err = time.ParseDuration(rest)
		case "exact":
			s.Exact = true
		case "year":
			s.Year, err = strconv.Atoi(rest)
		default:
			var c Call
			c, err = parseCall(strings.Fields(lines.Text()))
			if err == nil && c.ofCall() && (c.N < 0 || c.N >= int64(len(s.Calls))) {
				err = fmt.Errorf("a %s of call %d, want one before", c.Verb, c.N)
			}
			s.Calls = append(s.Calls, c)
		}
		if err != nil {
			return s, fmt.Errorf("script: %q: %w", lines.Text(), err)
		}
	}
	return s, lines.Err()
}

func parseCall(words []string) (c Call, err error) {
	if len(words) < 3 {
		return c, fmt.Errorf("%d words, want a time, a verb, and whom it is about", len(words))
	}
	if c.At, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return c, err
	}
	c.Verb, words = words[1], words[2:]
	form := strings.Fields(forms[c.Verb])
	if len(form) == 0 {
		return c, fmt.Errorf("no verb %q", c.Verb)
	}
	if i := slices.Index(form, "asks"); i >= 0 {
		form = slices.Insert(form, i, slices.Repeat([]string{"ask"}, max(0, len(words)-len(form)))...)
	}
	if len(words) != len(form) {
		return c, fmt.Errorf("%d words after the verb, want %s", len(words), forms[c.Verb])
	}
	for i, word := range words {
		switch field := c.field(form[i]).(type) {
		case *int64:
			*field, err = strconv.ParseInt(word, 10, 64)
		case *time.Duration:
			*field, err = time.ParseDuration(word)
		default:
			var a counter.Ask
			a, err = parseAsk(word)
			c.Asks = append(c.Asks, a)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

func parseAsk(word string) (a counter.Ask, err error) {
	key, limits, limited := strings.Cut(word, "=")
	key, a.Charge = strings.CutPrefix(key, "+")
	a.Key.Event, a.Key.Feature, _ = strings.Cut(key, "/")
	if limited {
		a.Limits, err = counter.ParseLimits(strings.ReplaceAll(limits, "~", " "))
	}
	return a, err
}
