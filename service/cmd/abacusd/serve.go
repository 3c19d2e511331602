package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/abacus-go/abacus/rules"
	"github.com/abacus-go/abacus/service/config"
	"github.com/abacus-go/abacus/service/door"
)

// serveCmd is "abacusd serve".
type serveCmd struct {
	File string `arg:"" optional:"" help:"Configuration file."`
	options
}

// closing bounds the time for the answers under way, and for hits that are carried to
// the store at the end.
const closing = 10 * time.Second

// headerTimeout bounds the time for a TLS handshake and the header of a request, or the
// preface of gRPC.
const headerTimeout = 5 * time.Second

// idleTimeout is longer than proxies keep connections, and bounds those of gRPC too, whose
// clients connect again.
const idleTimeout = 2 * time.Minute

const example = `This is the example, in memory: 5 sign-ups a minute for an address, and 3 mails an hour for a user. In another terminal:
  curl -i -H 'X-Forwarded-For: 192.0.2.7' http://%[1]s/auth/signup    # the sixth gets 429
  go run ./cmd/abacusd ask http://%[1]s mail user:ada                 # the fourth is denied
  go run ./cmd/abacusd serve cmd/abacusd/example/abacusd.yaml         # when this one has ended: a file to change
`

func (c *serveCmd) Run(ctx context.Context) error {
	s, err := load(c.File, c.options)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		// The garbage collector runs when the heap has doubled: in a process that holds little,
		// every few hundred calls. This memory is never touched, and counts as held.
		defer runtime.KeepAlive(make([]byte, 32<<20))
	}
	if c.File != "" && s.set != nil {
		watcher, err := rules.Watch(s.set, rules.WatchConfig{Apply: s.apply, Read: s.limiter.RulesRead, Every: s.cfg.Reload})
		if err != nil {
			return err
		}
		defer watcher.Close()
	}
	err = s.serve(ctx, func(http string) {
		if c.File == "" && s.set != nil {
			fmt.Printf(example, http)
		}
	})
	limited, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	return errors.Join(err, s.close(limited))
}

// server is a *http.Server, or gRPC's in the same form.
type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error // waits for the answers under way
}

// served is a server with its listener.
type served struct {
	server
	bound *bound
}

// serve serves until the context ends, and drains then. It calls listening with the
// address of the HTTP listener.
func (s *service) serve(ctx context.Context, listening func(http string)) error {
	failed := make(chan error, 3)
	var servers []served
	for _, l := range []struct {
		name    string
		address config.Address
		server  server
	}{{"admin", s.cfg.Listen.Admin, newServer(s.lived(s.admin()))}, {"grpc", s.cfg.Listen.GRPC, s.newGRPC()}, {"http", s.cfg.Listen.HTTP, newServer(s.lived(s.public()))}} {
		if l.address.Network == "" {
			continue
		}
		listener, err := listen(l.address)
		if err != nil {
			return s.cfg.Fault("listen."+l.name, err)
		}
		bound := s.bound(listener, l.name)
		servers = append(servers, served{l.server, bound})
		if listener = bound; s.tls != nil && l.address.Network == "tcp" && l.name != "grpc" { // which has a handshake of its own
			listener = tls.NewListener(bound, s.tls.config())
		}
		go func() { failed <- l.server.Serve(listener) }()
		slog.Info("abacusd: listening", "for", l.name, "at", listener.Addr().String())
		if l.name == "http" {
			listening(listener.Addr().String())
		}
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	go s.look(looking)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return s.drain(servers)
}

// public is the handler of the HTTP listener.
func (s *service) public() http.Handler {
	mux := http.NewServeMux()
	if s.envoy != nil {
		mux.Handle("/json", s.overHTTP(s.envoy))
	}
	mux.Handle("/", door.New(door.Config{
		Limiter: s.limiter, Doors: s.cfg.Doors, Callers: s.callers, Receipts: s.receiptKey != nil, Status: http.HandlerFunc(s.status), Erase: s.erase,
		Observe: func(verb config.Verb, caller string, status int) {
			s.requests.WithLabelValues(string(verb), caller, strconv.Itoa(status)).Inc()
		},
	}))
	return mux
}

// drain is not ready for as long as proxies need to see it, while all is answered, and
// then ends the listeners and waits for the answers under way, though not for clients that
// have not sent a request within a second more.
func (s *service) drain(servers []served) error {
	s.draining.Store(true)
	if s.envoy != nil {
		s.envoy.Drain()
	}
	slog.Info("abacusd: draining", "for", s.cfg.Drain)
	time.Sleep(s.cfg.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	errs := make(chan error)
	for _, l := range servers {
		go func() {
			defer time.AfterFunc(time.Second, l.bound.closeNew).Stop()
			errs <- l.Shutdown(ctx)
		}()
	}
	var all error
	for range servers {
		all = errors.Join(all, <-errs)
	}
	return all
}

// newServer returns a server that no client can hold for long, and that keeps idle
// connections for longer than proxies do.
func newServer(h http.Handler) server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10, ErrorLog: log.New(withoutHandshakes{}, "", 0), ConnState: noteState,
	}
}

// withoutHandshakes logs what net/http says, but for the lines that any client can cause.
type withoutHandshakes struct{}

func (withoutHandshakes) Write(line []byte) (int, error) {
	if !bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		slog.Error("abacusd: " + string(bytes.TrimSpace(line)))
	}
	return len(line), nil
}

// listen opens a listener. The socket of a process that has died is removed.
func listen(a config.Address) (net.Listener, error) {
	if a.Network == "unix" {
		if conn, err := net.Dial("unix", a.Address); err == nil {
			_ = conn.Close() // a process answers there: Listen says so
		} else if info, err := os.Lstat(a.Address); err == nil && info.Mode().Type() == fs.ModeSocket {
			if err := os.Remove(a.Address); err != nil {
				return nil, err
			}
		}
	}
	listener, err := net.Listen(a.Network, a.Address)
	if err == nil && a.Network == "unix" {
		err = os.Chmod(a.Address, 0o660)
	}
	return listener, err
}

// lived adds /livez and /readyz. While the service drains, each answer ends its
// connection, so that few are idle when the listeners close.
func (s *service) lived(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case s.draining.Load():
			http.Error(w, "draining", http.StatusServiceUnavailable)
		case !s.ready.Load():
			http.Error(w, "the store does not answer, or there are no rules yet", http.StatusServiceUnavailable)
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		mux.ServeHTTP(w, r)
	})
}

// admin serves the metrics and profiles. A profile of the command line is left out.
func (s *service) admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	if s.envoy != nil {
		mux.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, s.envoy.Text()) // an error is a client that hung up
		})
	}
	mux.Handle("GET /debug/pprof/", http.DefaultServeMux) // where net/http/pprof is
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb := config.Metrics
		if strings.HasPrefix(r.URL.Path, "/debug/") {
			verb = config.Pprof
		}
		if _, may := s.may(w, r, verb); may {
			mux.ServeHTTP(w, r)
		}
	})
}
