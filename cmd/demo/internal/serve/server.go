// Package serve is the site of demo serve: a race of limiters with the rods of a
// key, a small site under real limits, and a watch over a store.
package serve

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/abacus-go/abacus/cmd/demo/internal/web"
)

//go:embed pages
var pages embed.FS

// Pages are the paths of the pages.
var Pages = []string{"/", "/site", "/watch"}

// Config configures a Server.
type Config struct {
	Watched *Watched // the store to watch; nil: the site's own
}

// Server is the handler of the site. Streams of events end with the Server's
// context.
type Server struct {
	handler http.Handler
	pages   map[string]*template.Template
	streams streams
	races   races
	site    site
}

// New makes a Server, which works until ctx is done.
func New(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{pages: map[string]*template.Template{}, streams: streams{ctx: ctx}}
	for _, name := range []string{"race", "site", "watch"} {
		s.pages[name] = template.Must(template.ParseFS(pages, "pages/layout.html", "pages/"+name+".html"))
	}
	mux := http.NewServeMux()
	asset := func(path, contentType, content string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			fmt.Fprint(w, content)
		})
	}
	asset("/abacus.css", "text/css; charset=utf-8", web.UPlotCSS+web.BaseCSS+mustRead("serve.css", "site.css", "watch.css"))
	asset("/abacus.js", "text/javascript; charset=utf-8", web.UPlotJS+mustRead("common.js", "rods.js", "race.js", "site.js", "watch.js"))
	asset("/icon.svg", "image/svg+xml", mustRead("icon.svg"))
	s.addRace(mux)
	if err := s.addSite(mux); err != nil {
		return nil, err
	}
	watched := ofLimiter(s.site.limiter, s.site.numbers)
	if cfg.Watched != nil {
		var err error
		if watched, err = ofStore(ctx, cfg.Watched); err != nil {
			return nil, err
		}
	}
	s.addWatch(mux, watched)
	s.handler = guard(mux)
	return s, nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// mustRead joins files that are built into the program.
func mustRead(names ...string) string {
	var all bytes.Buffer
	for _, name := range names {
		content, err := pages.ReadFile("pages/" + name)
		if err != nil {
			panic(err)
		}
		all.Write(content)
		all.WriteByte('\n')
	}
	return all.String()
}

// layout is the data of layout.html.
type layout struct {
	Page  string // the name of the template
	Title string
	Body  any // the data of the page itself
}

// show writes a page.
func (s *Server) show(w http.ResponseWriter, status int, page, title string, body any) {
	var b bytes.Buffer
	if err := s.pages[page].ExecuteTemplate(&b, "layout", layout{page, title, body}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // an error is a client that hung up
}

// policy allows files of this server, and nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"

// maxBody bounds the body of a request, in bytes.
const maxBody = 16 << 10

// guard keeps other sites out. A page of another site in a browser on this machine
// can neither send a form here, nor read through a host name for 127.0.0.1.
func guard(next http.Handler) http.Handler {
	next = http.MaxBytesHandler(http.NewCrossOriginProtection().Handler(next), maxBody)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !Local(r.Host) {
			http.Error(w, "This page is for localhost only.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Local tells whether a host, with a port or without, is localhost or a loopback
// address. Other names of this machine may be anybody's.
func Local(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.Trim(hostPort, "[]")
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}
