package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/abacus-go/abacus/cmd/internal/text"
)

// Progress is a bar of the bytes read or the events decided. The bar is shown
// only on a terminal.
type Progress struct {
	to  *os.File
	bar *progressbar.ProgressBar
}

// Progress returns a bar that is not shown yet.
func (e *Env) Progress() *Progress { return &Progress{to: e.Stderr} }

// Show begins a bar up to total, or -1 for an unknown total.
func (b *Progress) Show(what string, total int64, inBytes bool) {
	if !term.IsTerminal(int(b.to.Fd())) {
		return
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(b.to),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionSetSpinnerChangeInterval(0), // the bar moves with the log, not by a goroutine
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionClearOnFinish(),
	}
	if inBytes {
		options = append(options, progressbar.OptionShowBytes(true))
	}
	b.bar = progressbar.NewOptions64(total, options...)
}

// Set moves the bar to n. A failure of the terminal is not worth an error.
func (b *Progress) Set(n int64) {
	if b.bar != nil {
		_ = b.bar.Set64(n)
	}
}

// Update moves the bar to events, under a name.
func (b *Progress) Update(name string, events int64) {
	if b.bar != nil {
		b.bar.Describe(fmt.Sprintf("%-28s", text.Clean(name, 28)))
		b.Set(events)
	}
}

// Clear removes the bar before the report.
func (b *Progress) Clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}
