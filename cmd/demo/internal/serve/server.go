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
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/world"
	"github.com/abacus-go/abacus/cmd/internal/rods"
	"github.com/abacus-go/abacus/cmd/internal/watch"
	"github.com/abacus-go/abacus/cmd/internal/web"
	"github.com/abacus-go/abacus/internal/words"
)

//go:embed pages
var files embed.FS

// Pages are the pages of the site.
var Pages = []web.Page{
	{Name: "race", Path: "/", Link: "Why, in seven pictures", Files: files, Before: []string{"transport", "scenes"}},
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

// maxRaces bounds the races that are kept. An open page has a race, which stands
// still while the page has no stream.
const maxRaces = 32

// races are the races of the pages.
type races struct {
	mu  sync.Mutex
	all []*race // the one that got a stream last is last
}

// race is a Race on a page.
type race struct {
	name string
	out  *web.Stream // nil: the page has none

	mu      sync.Mutex
	race    *world.Race
	changed chan struct{} // has room for one
}

// raceBody is the data of the page /.
type raceBody struct {
	Limits []raceLimit
	Server bool // there are the pages that need a server
}

// factsFile has the numbers of the scenes, and the data of their pictures. The code
// that ships computes them: TestFacts writes the file, and holds it to the code.
const factsFile = "pages/facts.json"

// Fact is a number for a sentence by its path in factsFile, such as "day ours".
func (raceBody) Fact(path string) (string, error) {
	text, err := files.ReadFile(factsFile)
	if err != nil {
		return "", err
	}
	var all any
	err = json.Unmarshal(text, &all)
	for _, name := range strings.Fields(path) {
		all = all.(map[string]any)[name]
	}
	return words.Commas(int64(all.(float64))), err
}

// raceLimit is a choice on the page. At Speed a window passes in some seconds.
type raceLimit struct {
	Value, Name string
	Speed       int
}

// raceTitle is the title of the page.
const raceTitle = "Why at most N is N"

func raceLimits() (limits []raceLimit) {
	for i, l := range world.Limits {
		limits = append(limits, raceLimit{l.String(), fmt.Sprintf("%d per %s", l.Max, rods.Singular(l.Per)), []int{10, 500, 10_000}[i]})
	}
	return limits
}

// Files returns the first page with its assets, as files by name, for a server of
// files. It links to the pages of docs, and has its numbers from the module
// abacus.wasm next to it.
func Files(docs ...web.Page) (map[string]string, error) {
	race := Pages[0]
	links := append([]web.Page{{Name: race.Name, Path: "index.html", Link: race.Link}}, docs...)
	all, err := web.New(context.Background(), race).Files(race.Name, raceTitle, links, raceBody{Limits: raceLimits()})
	if err != nil {
		return nil, err
	}
	facts, err := files.ReadFile(factsFile)
	all["facts.json"], all["generate.go.txt"] = string(facts), compare.Source
	return all, err
}

func (s *Server) addRace() {
	s.Handle("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		s.Show(w, http.StatusOK, "race", raceTitle, raceBody{raceLimits(), true})
	})
	s.Handle("GET /facts.json", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, factsFile) })
	s.Handle("GET /generate.go.txt", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "generate.go.txt", time.Time{}, strings.NewReader(compare.Source)) // shown, and not saved
	})
	s.Handle("GET /race", s.streamRace)
	s.Handle("POST /race/{name}", s.steerRace)
}

// streamRace goes on with the race that is named, or begins one. The stream has an
// event "race" with the name of the race, and then frames.
func (s *Server) streamRace(w http.ResponseWriter, r *http.Request) {
	race := s.races.find(r.FormValue("name"))
	if race == nil {
		one, err := world.NewRace(r.FormValue("limit"), random.Uint64())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		race = newRace(one)
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

func newRace(r *world.Race) *race {
	return &race{name: rand.Text(), race: r, changed: make(chan struct{}, 1)}
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
	tick := time.NewTicker(world.FrameEvery)
	defer tick.Stop()
	ctx := context.WithoutCancel(out.Context()) // the world outlives the stream, and a step is made whole
	last := time.Now()
	for changed := true; out.Context().Err() == nil; {
		now := time.Now()
		frame, err := r.frame(ctx, now.Sub(last), changed)
		last = now
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

func (r *race) frame(ctx context.Context, passed time.Duration, changed bool) (*world.RaceFrame, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.race.Frame(ctx, passed, changed)
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
	return r.race.Do(ctx, do, value)
}
