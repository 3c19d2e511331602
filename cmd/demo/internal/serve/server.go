// Package serve is the site of demo serve: a race of limiters with the rods of a
// key, a small site under real limits, and a watch over the site's own limiter.
package serve

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	random "math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/world"
	"github.com/abacus-go/abacus/cmd/internal/rods"
	"github.com/abacus-go/abacus/cmd/internal/watch"
	"github.com/abacus-go/abacus/cmd/internal/web"
	"github.com/abacus-go/abacus/counter"
)

//go:embed pages
var files embed.FS

// Pages are the pages of the site.
var Pages = []web.Page{
	{Name: "race", Path: "/", Link: "The race and the rods", Files: files},
	{Name: "site", Path: "/site", Link: "Be denied yourself", Files: files},
	watch.Page,
}

// Server is the handler of the site.
type Server struct {
	*web.Site
	races races
	site  site
}

// New makes a Server, which works until ctx is done.
func New(ctx context.Context) (*Server, error) {
	s := &Server{Site: web.New(ctx, Pages...)}
	s.addRace()
	if err := s.addSite(); err != nil {
		return nil, err
	}
	watch.OfLimiter(s.site.limiter, s.site.numbers).Add(ctx, s.Site)
	return s, nil
}

const (
	// frameEvery is the time between two frames of a race that runs.
	frameEvery = 50 * time.Millisecond

	// maxRaces bounds the races that are kept. An open page has a race, which stands
	// still while the page has no stream.
	maxRaces = 32

	maxSpeed = 10_000

	// patternParts is the number of bars that draw a pattern.
	patternParts = 24
)

// races are the races of the pages.
type races struct {
	mu  sync.Mutex
	all []*race // the one that got a stream last is last
}

// race is a World on a page.
type race struct {
	name string
	out  *web.Stream // nil: the page has none

	mu      sync.Mutex
	world   *world.World
	limit   counter.Limit
	speed   float64 // of the world's time
	playing bool
	changed chan struct{} // has room for one
}

// raceFrame is a frame, and the state of the buttons.
type raceFrame struct {
	*world.Frame
	Speed   float64 `json:"speed"`
	Playing bool    `json:"playing"`
}

// raceLimit is a choice on the page. At Speed a window passes in some seconds.
type raceLimit struct {
	Value, Name string
	Speed       int
}

func (s *Server) addRace() {
	var limits []raceLimit
	for i, l := range world.Limits {
		limits = append(limits, raceLimit{l.String(), fmt.Sprintf("%d per %s", l.Max, rods.Singular(l.Per)), []int{10, 500, 10_000}[i]})
	}
	s.Handle("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		s.Show(w, http.StatusOK, "race", "Why at most N is N", limits)
	})
	s.Handle("GET /race", s.streamRace)
	s.Handle("POST /race/{name}", s.steerRace)
}

// streamRace goes on with the race that is named, or begins one. The stream has an
// event "race" with the name of the race, and then frames.
func (s *Server) streamRace(w http.ResponseWriter, r *http.Request) {
	race := s.races.find(r.FormValue("name"))
	if race == nil {
		i := slices.IndexFunc(world.Limits, func(l counter.Limit) bool { return l.String() == r.FormValue("limit") })
		if i < 0 {
			http.Error(w, fmt.Sprintf("limit: got %q, want one of %s", r.FormValue("limit"), world.Limits), http.StatusBadRequest)
			return
		}
		one, err := world.New(world.Limits[i], random.Uint64())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		one.Burst()
		race = newRace(one, world.Limits[i])
	}
	out, is := s.Begin(w, r)
	if !is {
		return
	}
	defer out.Close()
	s.races.hold(race, out)
	defer s.races.release(race, out)
	if out.Send("race", race.name) == nil {
		race.run(out)
	}
}

func newRace(w *world.World, limit counter.Limit) *race {
	return &race{name: rand.Text(), world: w, limit: limit, speed: 1, changed: make(chan struct{}, 1)}
}

func (all *races) find(name string) *race {
	all.mu.Lock()
	defer all.mu.Unlock()
	if i := slices.IndexFunc(all.all, func(r *race) bool { return r.name == name }); i >= 0 {
		return all.all[i]
	}
	return nil
}

// hold gives a race its stream, and ends an earlier one. Of too many races the one
// that has been without a stream for longest is dropped.
func (all *races) hold(r *race, out *web.Stream) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if r.out != nil {
		r.out.End()
	}
	r.out = out
	all.all = append(slices.DeleteFunc(all.all, func(other *race) bool { return other == r }), r)
	if i := slices.IndexFunc(all.all, func(other *race) bool { return other.out == nil }); i >= 0 && len(all.all) > maxRaces {
		all.all = slices.Delete(all.all, i, i+1)
	}
}

func (all *races) release(r *race, out *web.Stream) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if r.out == out {
		r.out = nil
	}
}

// run sends frames until the stream ends.
func (r *race) run(out *web.Stream) {
	tick := time.NewTicker(frameEvery)
	defer tick.Stop()
	ctx := context.WithoutCancel(out.Context()) // the world outlives the stream, and a step is made whole
	last := time.Now()
	for changed := true; out.Context().Err() == nil; {
		now := time.Now()
		// A standstill of this process is none of the race's time.
		passed := min(now.Sub(last), 2*frameEvery)
		last = now
		frame, err := r.frame(ctx, passed, changed)
		if err != nil {
			_ = out.Send("failed", err.Error())
			return
		}
		if frame != nil {
			err = out.Send("frame", frame)
		} else {
			err = out.Alive()
		}
		if changed = false; err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.changed:
			changed = true
		case <-out.Context().Done():
		}
	}
}

// frame moves the world on if the race runs, and returns a raceFrame as JSON, or nil
// if nothing has changed. The world shares its memory with the frame, so the text is
// made under the lock.
func (r *race) frame(ctx context.Context, passed time.Duration, changed bool) (json.RawMessage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.playing && !changed {
		return nil, nil
	}
	if r.playing {
		if err := r.world.Advance(ctx, r.world.Now().Add(time.Duration(float64(passed)*r.speed))); err != nil {
			return nil, err
		}
	}
	f, err := r.world.Frame(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(&raceFrame{f, r.speed, r.playing})
}

// steerRace presses a button: the form has "do", and "value" where do needs one.
func (s *Server) steerRace(w http.ResponseWriter, r *http.Request) {
	race := s.races.find(r.PathValue("name"))
	if race == nil {
		http.Error(w, "This race has ended: load the page again.", http.StatusNotFound)
		return
	}
	err, status := r.ParseForm(), http.StatusBadRequest
	if errors.As(err, new(*http.MaxBytesError)) {
		status = http.StatusRequestEntityTooLarge
	}
	if err == nil {
		err = race.do(context.WithoutCancel(r.Context()), r.PostFormValue("do"), r.PostFormValue("value"))
	}
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	select {
	case race.changed <- struct{}{}:
	default: // a frame is already on its way
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *race) do(ctx context.Context, do, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
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
		r.world.Pace(time.Duration(speed * float64(frameEvery)))
	case "hit":
		return r.world.Hit(ctx)
	case "burst":
		r.world.Burst()
	case "traffic":
		traffic := world.Traffic(value)
		if !slices.Contains([]world.Traffic{world.Quiet, world.Drip, world.Crowd}, traffic) {
			return fmt.Errorf("traffic: got %q, want quiet, drip or crowd", value)
		}
		r.world.Go(traffic)
	case "pattern":
		return r.pattern(value)
	default:
		return fmt.Errorf("do: got %q, want play, pause, step, speed, hit, burst, traffic or pattern", do)
	}
	return nil
}

// pattern plays the heights of the bars, separated by spaces: each from 0 to twice
// the limit.
func (r *race) pattern(value string) error {
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
