package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/abacus-go/abacus/internal/testkit/page"
)

// progress returns a function that shows how far a campaign of the given length
// is: on a terminal by a bar, otherwise by a line each minute.
func progress(w *os.File, length time.Duration) (show func(c *campaign), clear func()) {
	if !term.IsTerminal(int(w.Fd())) {
		next := time.Minute
		return func(c *campaign) {
			if spent := time.Since(c.began); spent >= next {
				next += time.Minute
				fmt.Fprintf(w, "%s of %s: %s\n", spent.Round(time.Second), length, c.summary())
			}
		}, func() {}
	}
	bar := progressbar.NewOptions64(int64(length/time.Second),
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(time.Second),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionClearOnFinish(),
	)
	return func(c *campaign) {
		bar.Describe(c.summary())
		_ = bar.Set64(min(int64(time.Since(c.began)/time.Second), int64(length/time.Second)-1))
	}, func() { _ = bar.Clear() }
}

// summary says in a few words how far it is.
func (c *campaign) summary() string {
	return fmt.Sprintf("%s calls, %s faults, %d breaks", page.Thousands(c.calls()), page.Thousands(c.faults("")), c.bad())
}
