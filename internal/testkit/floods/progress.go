package main

import (
	"fmt"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress returns a function that shows how far a campaign is: on a terminal by a
// bar, otherwise by a line for each trial.
func progress(w *os.File, c *campaign) (show func(done ...*trial), clear func()) {
	if !term.IsTerminal(int(w.Fd())) {
		over, of := 0, len(c.short)+len(c.long)
		return func(done ...*trial) {
			for _, t := range done {
				over++
				fmt.Fprintf(w, "%d of %d: %s\n", over, of, t.summary())
			}
		}, func() {}
	}
	bar := progressbar.NewOptions(len(c.short)+len(c.long),
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionClearOnFinish(),
	)
	return func(done ...*trial) {
		for _, t := range done {
			bar.Describe(t.summary())
			_ = bar.Add(1)
		}
	}, func() { _ = bar.Clear() }
}
