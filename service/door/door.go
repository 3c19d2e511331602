// Package door is the HTTP side of abacusd: doors that a proxy asks before it lets a
// request through, and calls in JSON for programs.
package door

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/document"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/service/callers"
	"github.com/abacus-go/abacus/service/config"
)

// Config configures the handler of New.
type Config struct {
	Limiter  *limiter.Limiter // nil: there are no rules, doors and events
	Doors    map[string]config.Door
	Callers  *callers.Set
	Receipts bool         // the Limiter has a ReceiptKey
	Status   http.Handler // of tally.Status

	// Erase removes features, and gets the texts of which they are.
	Erase func(ctx context.Context, texts []string, features []feature.Feature) error

	// Observe is called with each answer: the caller is "" if the client is none, and the
	// verb if there is no such verb.
	Observe func(verb config.Verb, caller string, status int)
}

//go:embed openapi.yaml
var openAPI string

type server struct {
	Config
	doors  map[string]*gate
	warned atomic.Int64 // Unix time in nanoseconds
}

// New returns the handler of /auth/, /v1/ and /openapi.yaml. The doors have passed Check.
func New(cfg Config) http.Handler {
	s := &server{Config: cfg, doors: map[string]*gate{}}
	for name, door := range cfg.Doors {
		s.doors[name] = &gate{limiter: cfg.Limiter, door: door}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/auth/{door}", s.observed(s.auth))
	mux.HandleFunc("/v1/{verb}", s.observed(s.call))
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = io.WriteString(w, openAPI) // an error is a client that hung up
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, http.StatusNotFound, "There is nothing here: see /openapi.yaml.")
	})
	return mux
}

// Check returns a fault for each event of a door or a caller that no rule of l has, and for
// each door that the rules leave without a limit, or with one that denies every request.
func Check(l *limiter.Limiter, cfg *config.Config) error {
	var errs []error
	known := func(path, event string) bool {
		if !l.Has(event) {
			errs = append(errs, cfg.Fault(path, fmt.Errorf("no rule has the event %q, want %s", event, words.Quoted(l.Events()))))
		}
		return l.Has(event)
	}
	for i, caller := range cfg.Callers {
		for j, event := range caller.Events {
			known(fmt.Sprintf("callers[%d].events[%d]", i, j), event)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Doors)) {
		door, path := cfg.Doors[name], document.Join("doors", name)
		if !known(path+".event", door.Event) {
			continue
		}
		_, unused := sourcesOf(l.Rules(door.Event), door.Features)
		for _, kind := range unused {
			errs = append(errs, cfg.Fault(document.Join(path+".features", kind), errors.New("no rule of the event limits by this feature")))
		}
		if _, err := build(l, door); err != nil {
			errs = append(errs, cfg.Fault(path+".features", errors.New(strings.TrimPrefix(err.Error(), "httplimit: Config.Features "))))
		}
	}
	return cfg.Join(errs...)
}

// observed finds the verb and the callers that a client is, and notes the answer.
func (s *server) observed(next func(http.ResponseWriter, *http.Request, config.Verb, callers.Grants)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		verb := config.Verb(r.PathValue("verb"))
		if r.PathValue("door") != "" {
			verb = config.Auth
		} else if !slices.Contains(config.Calls, verb) {
			verb = ""
		}
		grants := s.Callers.Of(callers.PeerOf(r))
		answer := httpsnoop.CaptureMetricsFn(w, func(w http.ResponseWriter) { next(w, r, verb, grants) })
		s.Observe(verb, grants.May(verb, ""), answer.Code)
	}
}

func problem(w http.ResponseWriter, status int, format string, args ...any) {
	httplimit.Problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}.ServeHTTP(w, nil)
}

// auth answers a proxy. A proxy that is no caller gets a 500: with a 403 its visitors
// would seem to be over a limit.
func (s *server) auth(w http.ResponseWriter, r *http.Request, verb config.Verb, grants callers.Grants) {
	door := s.doors[r.PathValue("door")]
	switch {
	case door == nil:
		problem(w, http.StatusNotFound, "There is no door of this name: see doors in the configuration.")
	case grants.May(verb, door.door.Event) == "":
		problem(w, http.StatusInternalServerError, "The proxy may not ask about this event: see callers in the configuration.")
	default:
		s.warn(r, grants, door.door.Features[feature.KindIP])
		door.ServeHTTP(w, r)
	}
}

// warn logs, once a minute at most, that a peer which is none of the proxies sends the
// header of the address: most likely it is a proxy, and all its visitors share a limit.
func (s *server) warn(r *http.Request, peer callers.Grants, of config.Source) {
	if r.Header.Get(of.Header) == "" || !peer.Addr.IsValid() || slices.ContainsFunc(of.Proxies, func(n config.Network) bool { return n.Contains(peer.Addr) }) {
		return
	}
	now, last := time.Now().UnixNano(), s.warned.Load()
	if now-last >= int64(time.Minute) && s.warned.CompareAndSwap(last, now) {
		slog.Warn("abacusd: a peer outside of proxies sends the header of a door, and is itself the client", "door", r.PathValue("door"), "header", of.Header, "peer", peer.Addr)
	}
}

// gate is a door under the rules of the moment.
type gate struct {
	limiter *limiter.Limiter
	door    config.Door
	built   atomic.Pointer[built]
}

// built is the handler under the rules of a generation.
type built struct {
	http.Handler
	generation uint64
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := g.built.Load()
	if generation := g.limiter.Generation(); now == nil || now.generation != generation {
		handler, err := build(g.limiter, g.door)
		if err != nil { // the rules were not checked by Check
			problem(w, http.StatusInternalServerError, "The rules have no limit for this door any more.")
			return
		}
		now = &built{handler, generation}
		g.built.Store(now)
	}
	now.ServeHTTP(w, r)
}

// build returns the middleware of a door around an empty answer.
func build(l *limiter.Limiter, door config.Door) (http.Handler, error) {
	sources, _ := sourcesOf(l.Rules(door.Event), door.Features)
	denied := func(w http.ResponseWriter, r *http.Request) {
		p, _ := httplimit.ProblemOf(r.Context())
		p.Status = door.Deny
		p.ServeHTTP(w, r)
	}
	limit, err := httplimit.New(httplimit.Config{Limiter: l, Event: door.Event, Features: sources, Show: door.Show, Denied: http.HandlerFunc(denied)})
	if err != nil {
		return nil, err
	}
	return limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	})), nil
}

// sourcesOf returns the sources for the kinds that the rules of an event limit by, and the
// features without one. The kind "ip+user" is joined from "ip" and "user".
func sourcesOf(rules []limiter.Rule, features map[string]config.Source) (sources []httplimit.Source, unused []string) {
	used, done := map[string]bool{}, map[string]bool{}
	for _, rule := range rules {
		for _, kind := range []string{rule.Kind, rule.Else} {
			var parts []httplimit.Source
			kinds := strings.Split(kind, "+")
			for _, part := range kinds {
				if source, has := features[part]; has {
					parts = append(parts, sourceOf(part, source))
				}
			}
			if done[kind] || len(parts) < len(kinds) {
				continue // httplimit.New says whether the rule needs it
			}
			done[kind] = true
			for _, part := range kinds {
				used[part] = true
			}
			if len(parts) == 1 {
				sources = append(sources, parts[0])
			} else {
				sources = append(sources, httplimit.Join(parts...))
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(features)) {
		if !used[kind] {
			unused = append(unused, kind)
		}
	}
	return sources, unused
}

func sourceOf(kind string, s config.Source) httplimit.Source {
	if kind == feature.KindIP {
		client := httplimit.ClientIP{Header: s.Header, Hops: s.Hops}
		for _, network := range s.Proxies {
			client.Proxies = append(client.Proxies, network.Prefix)
		}
		return httplimit.IP(client)
	}
	return httplimit.NewSource(kind, httplimit.Header(textproto.CanonicalMIMEHeaderKey(s.Header)))
}
