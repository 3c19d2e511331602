package world

import (
	"context"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/rods"
)

// Frame is the state of a World for a page. Times are milliseconds since the Unix
// epoch, lengths milliseconds.
type Frame struct {
	Now     float64    `json:"now"`
	Per     float64    `json:"per"`
	Max     int64      `json:"max"`
	Grid    float64    `json:"grid"` // from a sample to the next
	Crowd   bool       `json:"crowd"`
	Planned int        `json:"planned"` // attempts of a burst or a pattern that are still to come
	Tried   int64      `json:"tried"`
	Racers  []Racer    `json:"racers"`
	Rods    *rods.View `json:"rods"`
	Fetched Fetched    `json:"fetched"`
	Samples []Sample   `json:"samples"` // complete since the last Frame
	Present Sample     `json:"present"` // not complete yet
	Said    []string   `json:"said"`    // what has happened since the last Frame
}

// Fetched is the number of buckets that abacus fetches for an attempt from a store
// that has nothing but buckets, as memcached.
type Fetched struct {
	Last int64   `json:"last"`
	Mean float64 `json:"mean"` // of all attempts
}

// Sample is a span of the past. Admitted[i] is the hits that racer i admitted in it.
type Sample struct {
	At       float64 `json:"at"` // the end of the span
	Admitted []int64 `json:"admitted"`
	Tried    int64   `json:"tried"`
}

// Frame returns the state.
func (w *World) Frame(ctx context.Context) (*Frame, error) {
	view, err := rods.Look(ctx, w.count, Key, w.limit.Per)
	if err != nil {
		return nil, err
	}
	f := &Frame{
		Now: millis(w.now), Per: float64(w.limit.Per.Milliseconds()), Max: w.limit.Max,
		Grid: float64(w.grid) / float64(time.Millisecond), Crowd: w.crowd, Planned: len(w.planned), Tried: w.tried,
		Rods: view, Fetched: Fetched{w.fetched.last, float64(w.fetched.all) / float64(max(1, w.tried))}, Samples: w.samples, Present: w.sample, Said: w.said,
	}
	for _, r := range w.racers {
		f.Racers = append(f.Racers, *r)
	}
	w.samples, w.said = []Sample{}, []string{} // in JSON [], not null
	return f, nil
}

// samplesPerWindow is the number of samples in a window, at a slow pace.
const samplesPerWindow = 240

// Pace sets how much of the world's time passes between two frames: samples are so
// far apart that a frame has few.
func (w *World) Pace(frame time.Duration) {
	if w.sample.Tried > 0 {
		w.sample.At = millis(w.now) // ends early
		w.samples = append(w.samples, w.sample)
	}
	w.grid = max(w.limit.Per/samplesPerWindow, (frame / 40).Truncate(time.Millisecond))
	w.sample = w.newSample()
}

// newSample begins at the present.
func (w *World) newSample() Sample {
	return Sample{At: millis(w.now.Truncate(w.grid).Add(w.grid)), Admitted: make([]int64, len(w.racers))}
}

func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1e3 }
