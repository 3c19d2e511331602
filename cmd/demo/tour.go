package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/demo/internal/attack"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

type tourCmd struct{}

// Run prints a screen. All numbers on the screen are computed during the run.
func (*tourCmd) Run(e *cli.Env) error {
	var b bytes.Buffer
	b.WriteString("abacus: at most Max in any window, counted on a few rods of time\n\n")
	for _, part := range []func(*bytes.Buffer) error{tourCover, tourAttack, tourSpeed} {
		if err := part(&b); err != nil {
			return err
		}
	}
	b.WriteString("\nSee it move: go run ./cmd/demo serve     a log of yours: ... replay FILE\nAll commands: go run ./cmd/demo --help\n")
	_, err := e.Stdout.Write(b.Bytes())
	return err
}

// tourCover is the example of the textbooks.
func tourCover(b *bytes.Buffer) error {
	now := time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC)
	textbook, err := classic.TextbookCover(tiers.Default, now, dur.Day)
	if err != nil {
		return err
	}
	cover, err := tiers.Default.Cover(now, dur.Day, 0)
	if err != nil {
		return err
	}
	fmt.Fprintln(b, "1. HOW MANY IN THE LAST 24 HOURS?")
	fmt.Fprintf(b, "   Every hit adds one to its second, its minute and its hour. At %s that\n", now.Format("15:04:05"))
	fmt.Fprintf(b, "   is %s reads second by second, %s by the textbook, and %s here at\n   most: a call on memcached reads 24 first, and then usually none.\n\n",
		words.Commas(int64(dur.Day/time.Second)), words.Commas(textbook.Reads()), words.Commas(cover.Reads()))
	for _, line := range drawCovers(drawn{"textbook", textbook}, drawn{"abacus", cover}) {
		fmt.Fprintln(b, line)
	}
	return nil
}

// tourAttack plays a burst around midnight against a fixed window and abacus.
func tourAttack(b *bytes.Buffer) error {
	attempts := attack.Attempts()
	ours, err := attack.Abacus(memory.New(memory.Config{}))
	if err != nil {
		return err
	}
	rows := []struct {
		name  string
		allow func(time.Time) (bool, error)
		tally attack.Tally
	}{
		{name: "tried", allow: attack.Everything},
		{name: "fixed window", allow: attack.FixedWindow(attack.Limit)},
		{name: "abacus", allow: ours},
	}
	fmt.Fprintf(b, "\n2. A SIGN-UP ATTACK under %s.  Three days, a column is an hour.\n", attack.Limit)
	fmt.Fprintf(b, "   %d attempts within %s before midnight, %d within %s after it, then one\n   every %s.\n\n",
		attack.BurstEach, dur.Format(attack.BurstLen), attack.BurstEach, dur.Format(attack.BurstLen), dur.Format(attack.DripEvery))
	fmt.Fprintf(b, "%-8s%-24s%-24s%s\n", "", "day 1", "day 2", "day 3")
	for i := range rows {
		row := &rows[i]
		if row.tally, err = attack.Tell(attempts, row.allow); err != nil {
			return err
		}
		label, _, _ := strings.Cut(row.name, " ")
		fmt.Fprintf(b, "%-8s%s\n", label, hours(row.tally))
	}
	fmt.Fprintf(b, "\n%-16s%8s%8s%8s%8s   %s\n", "", "in all", "day 1", "day 2", "day 3", "worst 24 hours")
	for _, row := range rows {
		t := row.tally
		fmt.Fprintf(b, "%-16s%8s%8s%8s%8s   %6s = %.2f x Max\n", row.name, words.Commas(t.Admitted),
			words.Commas(t.PerDay[0]), words.Commas(t.PerDay[1]), words.Commas(t.PerDay[2]), words.Commas(t.Worst), float64(t.Worst)/float64(attack.Limit.Max))
	}
	r, err := attack.ComeBack(memory.New(memory.Config{}), attempts)
	if err != nil {
		return err
	}
	answer := map[bool]string{true: "admitted", false: "denied"}
	fmt.Fprintf(b, "   The first one denied was told to come back in %s:\n   then it is %s, a second sooner it is %s.\n",
		dur.Format(r.RetryAfter.Round(time.Millisecond)), answer[r.Then], answer[r.Early])
	return nil
}

// hours is a column for every hour: nothing, a number, or # for more than nine.
func hours(t attack.Tally) string {
	var line strings.Builder
	for _, n := range t.PerHour {
		line.WriteByte(".123456789#"[min(n, 10)])
	}
	return line.String()
}

// tourSpeed times a Take on this machine.
func tourSpeed(b *bytes.Buffer) error {
	const keys, takes = 10_000, 200_000
	limits := counter.MustLimits("10/m, 50/h, 100/d")
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{Ladder: tiers.For(limits.Windows()...)})
	if err != nil {
		return err
	}
	features := make([]string, keys)
	for i := range features {
		features[i] = "ip:" + strconv.Itoa(i)
	}
	ctx, admitted := context.Background(), int64(0)
	began := time.Now()
	for i := range takes {
		v, err := c.Take(ctx, counter.Key{Event: "signup", Feature: features[i%keys]}, 1, limits)
		if err != nil {
			return err
		}
		if v.Allowed {
			admitted++
		}
	}
	spent := time.Since(began)
	fmt.Fprintf(b, "\n3. WHAT A CALL COSTS here, in memory, under %s on %s keys:\n", limits, words.Commas(keys))
	fmt.Fprintf(b, "   %s of %s admitted, %d ns each, checked and counted in one step.\n", words.Commas(admitted), words.Commas(takes), spent.Nanoseconds()/takes)
	return nil
}
