// Package compare sends a log through several rate limiters, and reports the
// admitted hits, the cost and the wrong decisions of each.
package compare

import (
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
)

// Report compares several algorithms on a log, under a single limit.
type Report struct {
	Log   string    `json:"log"` // name of the log, or of the model of generated traffic
	Limit string    `json:"limit"`
	Keys  int       `json:"keys"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Store string    `json:"store"` // "memory" or the URL of servers, without password

	eventlog.Seen
	RunsBack string `json:"runs_back"` // largest distance of a stamp behind the newest earlier stamp
	Skew     string `json:"skew"`      // the same distance, as abacus was configured for

	// Reference is the name of the exact algorithm: the log of every admitted
	// hit. Admitted and the decisions of the other algorithms are told relative
	// to Reference.
	Reference  string      `json:"reference"`
	Algorithms []Algorithm `json:"algorithms"` // in order of display, the exact algorithm first
	LeftOut    []LeftOut   `json:"left_out,omitempty"`

	// Sample is the number of keys in the mean Algorithm.BytesPerKey: all keys,
	// or keys evenly spaced by first hit, the same for all algorithms.
	Sample int `json:"bytes_sample"`

	Curve  Curve   `json:"curve"`
	Growth *Growth `json:"growth,omitempty"` // nil: not asked for, or not told by the server

	skew time.Duration
}

// LeftOut is an algorithm that cannot serve the limit, and why.
type LeftOut struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Algorithm is the measures of a single algorithm.
type Algorithm struct {
	Name    string `json:"name"`              // "fixed window", "abacus 1s:1d, 1m:1d, 1h:1d"
	Source  string `json:"source"`            // "classic" or "abacus"
	Default bool   `json:"default,omitempty"` // abacus on the ladder that a Config without a ladder has
	Worst   string `json:"worst"`             // promise about the worst true window, in words: "N", "2N"

	Admitted        int64   `json:"admitted"`
	Relative        float64 `json:"admitted_relative"`   // Admitted over Admitted of the exact log
	WorstWindow     float64 `json:"worst_window"`        // the fullest true window of any key, in units of the limit's Max
	WronglyAdmitted int64   `json:"wrongly_admitted"`    // admitted hits that the limit's rule, applied to the algorithm's own history, denies
	WronglyDenied   int64   `json:"wrongly_denied"`      // denied hits that the same rule admits
	Differently     int64   `json:"decided_differently"` // than the exact log fed with the same hits, whatever the history

	// Of queues, whose admitted hits happen when they leave, and are judged then.
	Delayed      int64   `json:"delayed"`         // admitted hits that waited
	MeanDelay    float64 `json:"mean_delay_s"`    // of all admitted hits, in seconds
	LongestDelay float64 `json:"longest_delay_s"` // in seconds

	BytesPerKey    float64 `json:"bytes_per_key"`   // mean over Report.Sample keys, each right after its last hit
	BytesWorstKey  int64   `json:"bytes_worst_key"` // the key with the most hits, likewise
	BytesMeasured  string  `json:"bytes_measured"`  // how: "MEMORY USAGE", "estimate of the heap"
	Counted        string  `json:"counted"`         // what reads and writes are: "commands", "states", "buckets"
	ReadsPerEvent  float64 `json:"reads_per_event"`
	WritesPerEvent float64 `json:"writes_per_event"`
	TripsPerEvent  float64 `json:"round_trips_per_event"`
	NanosPerEvent  float64 `json:"ns_per_event"` // wall time, store included: the median of chunks of 64 events
}

// Curve is the key with the largest differences between the algorithms: the
// number of admitted hits in the true window that ends at each instant, for each
// algorithm.
type Curve struct {
	Key    string      `json:"key"`
	Max    int64       `json:"max"`
	Times  []time.Time `json:"times"`
	Counts [][]int64   `json:"counts"` // Counts[i][j]: of Report.Algorithms[i], at Times[j]
}

// Growth is the memory of a key by the number of its hits in a window of the limit's
// length. All hits are admitted, and are at random instants.
type Growth struct {
	Hits  []int64      `json:"hits"`  // ascending
	Lines []GrowthLine `json:"lines"` // the exact log first, unless the store cannot have one
}

// GrowthLine is the memory of the keys of a single algorithm.
type GrowthLine struct {
	Name    string  `json:"name"`
	Source  string  `json:"source"`
	Default bool    `json:"default,omitempty"`
	Burst   bool    `json:"burst,omitempty"` // all hits are in a fiftieth of the window
	Bytes   []int64 `json:"bytes"`           // Bytes[i]: of a key with Growth.Hits[i] hits, right after the last
}
