package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/history"
)

// job is the first line of a process's input.
type job struct {
	World   string
	Process int
	Seed    uint64
	Servers []string // of the store, or the sentinels that know its Master
	Master  string
	Cluster bool
	Links   map[string]string // addresses to dial in the place of those that the store names
	Prefix  string            // of all keys
	Rate    float64           // calls a second
	Plant   string            // a break to plant into the store; see the tests
	Callers int               // clocks, each with counters of its own
	Each    int               // goroutines of each caller
	Skew    time.Duration     // what clocks may be apart

	NoForget bool // no key is forgotten
}

// order is a later line of a process's input.
type order struct {
	Caller    int           `json:"c,omitempty"`
	Offset    time.Duration `json:"o,omitempty"` // of its clock
	PerSecond time.Duration `json:"p,omitempty"` // a drift; 0: a step
	Beyond    bool          `json:"b,omitempty"` // the caller keeps to keys that are there for clocks beyond the skew
	Stop      bool          `json:"s,omitempty"`
}

// line is a line of a process's output. A process writes a line by a single write
// to a pipe, shorter than the pipe's atomic size: a kill loses whole lines, never a
// part of a line.
type line struct {
	At    int64         `json:"t"`           // true time: no call that the process tells of later began before
	Begin *call         `json:"b,omitempty"` // of this call, all that is known at its begin
	End   *history.Call `json:"e,omitempty"` // the same, and all that its caller knows at its end
	Done  *leftovers    `json:"d,omitempty"` // the process has ended all it had begun
}

// call is a call as it begins, and the knowledge of its caller that no rule needs. The
// limits come from [menu].
type call struct {
	history.Call
	Ladder  int
	Timeout time.Duration
	Ahead   time.Duration `json:",omitempty"` // of the true time was the clock, apart from its error
}

// leftovers counts the resources of a process after all stores are closed.
type leftovers struct {
	Pauses int64
	Stacks string // of the goroutines that are left
}

// teller writes lines.
type teller struct {
	mu  sync.Mutex
	out *os.File
}

// tell writes l, and returns the instant of l.
func (t *teller) tell(l *line) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Within the lock: instants of the lines never go back.
	l.At = time.Now().UnixNano()
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // there is nothing in a line that cannot be written
	}
	if _, err := t.out.Write(append(text, '\n')); err != nil {
		os.Exit(1) // nobody listens any more
	}
	return l.At
}
