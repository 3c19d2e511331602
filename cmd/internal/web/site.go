// Package web has the common parts of the pages of both programs: the colours and the
// type of base.css, the library for charts, and a Site of pages with streams of events.
package web

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/abacus-go/abacus/cmd/internal/text"
)

//go:embed pages
var common embed.FS

// Page is a page of a Site. Its files are pages/NAME.html, a template "body", and
// pages/NAME.css and pages/NAME.js.
type Page struct {
	Name  string
	Path  string
	Link  string // the text of its link on all pages
	Files fs.FS

	Charts bool // the page has the library for charts

	// Before has the names of more files pages/NAME.js, for the script of the page.
	Before []string
}

// Site is a handler of pages for this machine alone. Streams of events end with the
// Site's context. All methods but Handle are safe for many goroutines.
type Site struct {
	mux       *http.ServeMux
	guarded   http.Handler
	pages     []Page
	templates map[string]*template.Template
	assets    map[string]asset // by name
	streams   streams
}

// asset is a file that pages have in common.
type asset struct{ mime, content string }

const javaScript = "text/javascript; charset=utf-8"

// New makes a Site, which works until ctx is done. The files that pages have in common
// are served already; the pages themselves are shown by handlers of the caller.
func New(ctx context.Context, pages ...Page) *Site {
	s := &Site{mux: http.NewServeMux(), pages: pages, templates: map[string]*template.Template{}, assets: map[string]asset{}, streams: streams{ctx: ctx}}
	s.guarded = guard(s.mux)
	css, js := UPlotCSS+BaseCSS+mustRead(common, "common.css"), mustRead(common, "common.js", "rods.js")
	for _, page := range pages {
		layout := template.Must(template.New("").Funcs(text.Funcs).ParseFS(common, "pages/layout.html"))
		s.templates[page.Name] = template.Must(layout.ParseFS(page.Files, "pages/"+page.Name+".html"))
		css += mustRead(page.Files, page.Name+".css")
		for _, name := range append(slices.Clip(page.Before), page.Name) {
			js += mustRead(page.Files, name+".js")
		}
		if page.Charts {
			s.assets["charts.js"] = asset{javaScript, UPlotJS}
		}
	}
	s.assets["abacus.css"] = asset{"text/css; charset=utf-8", css}
	s.assets["abacus.js"] = asset{javaScript, js}
	s.assets["icon.svg"] = asset{"image/svg+xml", mustRead(common, "icon.svg")}
	for name, a := range s.assets {
		s.Handle("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", a.mime)
			fmt.Fprint(w, a.content)
		})
	}
	return s
}

// Handle adds a handler, before the first request.
func (s *Site) Handle(pattern string, h http.HandlerFunc) { s.mux.HandleFunc(pattern, h) }

func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.guarded.ServeHTTP(w, r) }

// mustRead joins files that are built into the program.
func mustRead(files fs.FS, names ...string) string {
	var all strings.Builder
	for _, name := range names {
		content, err := fs.ReadFile(files, "pages/"+name)
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
	Page   string // its name
	Pages  []Page
	Title  string
	Root   string // the address of the assets
	Home   string // the address of the first page
	Module string // of WebAssembly, which has the numbers; "": the program has them
	Body   any    // the data of the page itself
}

// Show writes a page.
func (s *Site) Show(w http.ResponseWriter, status int, page, title string, body any) {
	var b bytes.Buffer
	l := layout{Page: page, Pages: s.pages, Title: title, Root: "/", Home: "/", Body: body}
	if err := s.templates[page].ExecuteTemplate(&b, "layout", l); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // an error is a client that hung up
}

// Files returns a page and its assets by name, as files of a folder. The page is
// index.html, links to the pages of links, and has its numbers from the module
// abacus.wasm next to it.
func (s *Site) Files(page, title string, links []Page, body any) (map[string]string, error) {
	var b strings.Builder
	l := layout{Page: page, Pages: links, Title: title, Home: "index.html", Module: "abacus.wasm", Body: body}
	if err := s.templates[page].ExecuteTemplate(&b, "layout", l); err != nil {
		return nil, err
	}
	files := map[string]string{"index.html": b.String()}
	for name, a := range s.assets {
		files[name] = a.content
	}
	return files, nil
}

// policy allows files of this server, and nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"

// MaxBody bounds the body of a request, in bytes.
const MaxBody = 16 << 10

// guard keeps other sites out. A page of another site in a browser on this machine
// can neither send a form here, nor read through a host name for 127.0.0.1.
func guard(next http.Handler) http.Handler {
	next = http.MaxBytesHandler(http.NewCrossOriginProtection().Handler(next), MaxBody)
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

// Local reports whether a host, with a port or without, is localhost or a loopback
// address. Other names of this machine may be anybody's.
func Local(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.Trim(hostPort, "[]")
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

var (
	// BaseCSS defines the colours of a light and of a dark page, and the type.
	//
	//go:embed base.css
	BaseCSS string

	// UPlotJS is the library for charts, below its licence: the package uplot of the
	// npm registry, version 1.6.32. UPlotCSS is the style of the charts.
	UPlotJS = "/*\n" + uPlotLicense + "*/\n" + uPlotJS
	//go:embed uplot-1.6.32/uPlot.min.css
	UPlotCSS string

	//go:embed uplot-1.6.32/uPlot.iife.min.js
	uPlotJS string
	//go:embed uplot-1.6.32/LICENSE
	uPlotLicense string
)
