package world

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
)

const (
	// FrameEvery is the time between two frames of a Race that runs.
	FrameEvery = 50 * time.Millisecond

	maxSpeed = 10_000

	// patternParts is the number of bars that draw a pattern.
	patternParts = 24
)

// Race is a World with the buttons of a page. A Race is for one goroutine at a time.
type Race struct {
	world   *World
	limit   counter.Limit
	speed   float64 // of the world's time
	playing bool
}

// RaceFrame is a Frame, and the state of the buttons.
type RaceFrame struct {
	*Frame
	Speed   float64 `json:"speed"`
	Playing bool    `json:"playing"`
}

// NewRace makes a Race under one of the Limits, with a burst on its way. It stands
// still until someone plays. The seed is that of the crowd.
func NewRace(limit string, seed uint64) (*Race, error) {
	i := slices.IndexFunc(Limits, func(l counter.Limit) bool { return l.String() == limit })
	if i < 0 {
		return nil, fmt.Errorf("limit: got %q, want one of %s", limit, Limits)
	}
	w, err := New(Limits[i], seed)
	if err != nil {
		return nil, err
	}
	w.Burst()
	return &Race{world: w, limit: Limits[i], speed: 1}, nil
}

// Frame moves the world on if the race runs, after a time of the caller's clock has
// passed, and returns the state. It returns nil if the race stands still, unless the
// caller says that a button was pressed.
func (r *Race) Frame(ctx context.Context, passed time.Duration, pressed bool) (*RaceFrame, error) {
	if !r.playing && !pressed {
		return nil, nil
	}
	if r.playing {
		// A standstill of the caller is none of the race's time.
		passed = min(passed, 2*FrameEvery)
		if err := r.world.Advance(ctx, r.world.Now().Add(time.Duration(float64(passed)*r.speed))); err != nil {
			return nil, err
		}
	}
	f, err := r.world.Frame(ctx)
	if err != nil {
		return nil, err
	}
	return &RaceFrame{f, r.speed, r.playing}, nil
}

// Do presses a button. The value is that of speed and pattern.
func (r *Race) Do(ctx context.Context, do, value string) error {
	switch do {
	case "play":
		r.playing = true
	case "pause":
		r.playing = false
	case "step":
		r.playing = false
		return r.world.Step(ctx)
	case "speed":
		speed, err := strconv.ParseFloat(value, 64)
		if err != nil || !(speed >= 1 && speed <= maxSpeed) {
			return fmt.Errorf("speed: got %q, want a number from 1 to %d", value, maxSpeed)
		}
		r.speed = speed
		r.world.Pace(time.Duration(speed * float64(FrameEvery)))
	case "hit":
		return r.world.Hit(ctx)
	case "burst":
		r.world.Burst()
	case "crowd":
		r.world.Crowd()
	case "pattern":
		return r.pattern(value)
	default:
		return fmt.Errorf("do: got %q, want play, pause, step, speed, hit, burst, crowd or pattern", do)
	}
	return nil
}

// pattern plays the heights of the bars, separated by spaces: each from 0 to twice
// the limit.
func (r *Race) pattern(value string) error {
	var counts []int64
	for _, word := range strings.Fields(value) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 || n > 2*r.limit.Max {
			return fmt.Errorf("pattern: got %.40q, want %d numbers from 0 to %d, separated by spaces", word, patternParts, 2*r.limit.Max)
		}
		counts = append(counts, n)
	}
	if len(counts) != patternParts {
		return fmt.Errorf("pattern: got %d numbers, want %d", len(counts), patternParts)
	}
	r.world.Pattern(counts)
	return nil
}
