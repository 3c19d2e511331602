package replay

import (
	"bufio"
	"encoding/csv"
	"io"
	"strconv"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
)

// Decisions writes decisions as CSV: time_us, event, feature, and allowed as 1 or
// 0, a line for each event.
type Decisions struct {
	out    *csv.Writer
	record [4]string
}

// NewDecisions writes the header to w, buffered.
func NewDecisions(w io.Writer) (*Decisions, error) {
	buffer := bufio.NewWriterSize(w, 1<<16) // reused as a buffer by csv
	d := &Decisions{out: csv.NewWriter(buffer), record: [4]string{"time_us", "event", "feature", "allowed"}}
	return d, d.out.Write(d.record[:])
}

// Decided writes a line.
func (d *Decisions) Decided(e eventlog.Event, allowed bool) error {
	d.record = [4]string{strconv.FormatInt(e.At.UnixMicro(), 10), e.Event, e.Feature, "0"}
	if allowed {
		d.record[3] = "1"
	}
	return d.out.Write(d.record[:])
}

// Flush writes what is buffered, and returns the first error of all writes.
func (d *Decisions) Flush() error {
	d.out.Flush()
	return d.out.Error()
}
