package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar of the bytes that were read or the events that were decided.
// It shows nothing unless to is a terminal.
type progress struct {
	to  *os.File
	bar *progressbar.ProgressBar
}

// show begins a bar up to total, which is -1 if nobody knows.
func (b *progress) show(what string, total int64, inBytes bool) {
	if !term.IsTerminal(int(b.to.Fd())) {
		return
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(b.to),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionSetSpinnerChangeInterval(0), // it moves with the log, not by a goroutine
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionClearOnFinish(),
	}
	if inBytes {
		options = append(options, progressbar.OptionShowBytes(true))
	}
	b.bar = progressbar.NewOptions64(total, options...)
}

// set shows how far it has come. What the terminal makes of it is not worth an
// error.
func (b *progress) set(n int64) {
	if b.bar != nil {
		_ = b.bar.Set64(n)
	}
}

func (b *progress) update(name string, events int64) {
	if b.bar != nil {
		b.bar.Describe(fmt.Sprintf("%-28s", printable(name, 28)))
		b.set(events)
	}
}

// clear takes the bar away, to leave the place to the report.
func (b *progress) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}
