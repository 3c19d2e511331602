package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar of the bytes read. The zero progress shows nothing.
type progress struct {
	bar *progressbar.ProgressBar
	in  *input
}

// show begins to show how far in has been read, if w is a terminal.
func (p *progress) show(w *os.File, in *input) {
	if !term.IsTerminal(int(w.Fd())) {
		return
	}
	p.in = in
	p.bar = progressbar.NewOptions64(in.size, // -1: a spinner
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("replay"),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetSpinnerChangeInterval(0), // it moves with the log, not by a goroutine
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionClearOnFinish(),
	)
}

// update shows how far the log has been read by now. What the terminal makes
// of it is not worth an error.
func (p *progress) update() {
	if p.bar != nil {
		_ = p.bar.Set64(p.in.read.Load())
	}
}

// clear takes the bar away, to leave the place to the report.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
