package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
)

// Report is the result of a replay, and the output of demo replay --json.
type Report struct {
	File     string    `json:"file"`
	Store    string    `json:"store"`
	Limits   string    `json:"limits"`
	Ladder   string    `json:"ladder"`
	Skew     string    `json:"skew"`
	Keys     int       `json:"keys"`
	First    time.Time `json:"first"` // the oldest stamp; the zero time without events
	Last     time.Time `json:"last"`  // the newest
	RunsBack string    `json:"runs_back"`

	eventlog.Seen

	Admitted int64 `json:"admitted"`
	Denied   int64 `json:"denied"`

	// Compared with the log of every hit. Denied though the log has room, even
	// with the oldest bucket counted whole; admitted though it has none: both
	// must be zero, as long as stamps run back by no more than the skew.
	WrongDenied   int64 `json:"wrongly_denied"`
	WrongAdmitted int64 `json:"wrongly_admitted"`

	// Denied though a log of every hit would have admitted: the price of
	// counting in buckets, and of the skew.
	GridDenied int64 `json:"denied_within_grid"`

	Worst []Worst `json:"worst"` // of each limit, in order

	// The mean numbers, over all events, of buckets in the covers of all limits,
	// and of buckets that hits were added to.
	BucketsRead    float64 `json:"buckets_read_per_event"`
	BucketsWritten float64 `json:"buckets_written_per_event"`

	Seconds float64 `json:"seconds"` // reading and checking included
	Rate    float64 `json:"events_per_second"`

	MostDenied []DeniedKey `json:"most_denied"` // at most ten
	Stopped    string      `json:"stopped,omitempty"`

	// Kept describes the keys left in the store. The caller fills it in; nil means
	// none, for a store in this process.
	Kept *Kept `json:"kept,omitempty"`

	Told []string `json:"-"` // what the log proves, for people
}

// Worst is the fullest true window of a limit, over all keys.
type Worst struct {
	Limit    string  `json:"limit"`
	Max      int64   `json:"max"`
	Admitted int64   `json:"admitted"`     // in that window
	Ratio    float64 `json:"ratio_to_max"` // above 1: the promise is broken
	Event    string  `json:"event,omitempty"`
	Feature  string  `json:"feature,omitempty"`
}

// Kept describes the keys left by a replay in a store on a server.
type Kept struct {
	Prefix  string `json:"prefix"`            // common beginning of all stored keys
	Within  string `json:"expire_within"`     // the longest time to live
	Removed *int64 `json:"removed,omitempty"` // number of keys removed at the end; nil without --clean
}

// DeniedKey is a key that was denied.
type DeniedKey struct {
	Event    string `json:"event"`
	Feature  string `json:"feature"`
	Denied   int64  `json:"denied"`
	Admitted int64  `json:"admitted"`
}

// mostDenied is the largest number of keys in Report.MostDenied.
const mostDenied = 10

func (r *Replay) finish(spent time.Duration) {
	p := &r.report
	p.Limits, p.Ladder, p.Skew = r.cfg.Limits.String(), r.cfg.Ladder.String(), dur.Format(r.cfg.Skew)
	p.Keys, p.First, p.Last, p.RunsBack = len(r.keys), p.Seen.First, p.Seen.Last, dur.Format(p.Back)
	p.Told = p.Notes(r.cfg.Skew)
	p.Seconds = spent.Seconds()
	if p.Events > 0 {
		n := float64(p.Events)
		p.BucketsRead = float64(r.reads) / n
		p.BucketsWritten = float64(p.Admitted*int64(r.cfg.Ladder.Len())) / n
		p.Rate = n / p.Seconds
	}
	p.Worst = make([]Worst, len(r.cfg.Limits))
	for i, limit := range r.cfg.Limits {
		p.Worst[i] = r.worst(limit)
	}
	p.MostDenied = r.mostDenied()
}

func (r *Replay) worst(limit counter.Limit) Worst {
	w := Worst{Limit: limit.String(), Max: limit.Max}
	for key, h := range r.keys {
		if h.log.Total() < w.Admitted {
			continue
		}
		// Of equal windows the first by name: a map has no order.
		n := h.log.Worst(limit.Per)
		if n > w.Admitted || n > 0 && n == w.Admitted && compareKeys(key, counter.Key{Event: w.Event, Feature: w.Feature}) < 0 {
			w.Admitted, w.Event, w.Feature = n, key.Event, key.Feature
		}
	}
	if limit.Max > 0 {
		w.Ratio = float64(w.Admitted) / float64(limit.Max)
	}
	return w
}

func (r *Replay) mostDenied() []DeniedKey {
	all := []DeniedKey{}
	for key, h := range r.keys {
		if h.denied > 0 {
			all = append(all, DeniedKey{key.Event, key.Feature, h.denied, h.log.Total()})
		}
	}
	slices.SortFunc(all, func(a, b DeniedKey) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied),
			compareKeys(counter.Key{Event: a.Event, Feature: a.Feature}, counter.Key{Event: b.Event, Feature: b.Feature}))
	})
	return all[:min(len(all), mostDenied)]
}

func compareKeys(a, b counter.Key) int {
	return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Feature, b.Feature))
}
