package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/abacus-go/abacus/rules"
	"github.com/abacus-go/abacus/service/callers"
	"github.com/abacus-go/abacus/service/config"
	"github.com/abacus-go/abacus/service/door"
)

// serveCmd is "abacusd serve".
type serveCmd struct {
	File  string `arg:"" optional:"" help:"Configuration file."`
	Store string `env:"ABACUS_STORE" help:"Store instead of that of the file, such as redis://127.0.0.1:6379/0; $$ABACUS_STORE holds it out of sight of other users."`
	HTTP  string `name:"http" help:"Address instead of listen.http of the file."`
}

// closing bounds the time for the answers under way, and for hits that are carried to
// the store at the end.
const closing = 10 * time.Second

const example = `This is the example, in memory: 5 sign-ups a minute for an address, and 3 mails for a user. Next:
  curl -i -H 'X-Forwarded-For: 192.0.2.7' http://%[1]s/auth/signup    # the sixth gets 429
  go run ./cmd/abacusd ask http://%[1]s mail user:ada                 # the fourth is denied
  go run ./cmd/abacusd serve cmd/abacusd/example/abacusd.yaml         # a file to change
`

func (c *serveCmd) Run(e env) error {
	s, err := load(c.File, c.Store, c.HTTP)
	if err != nil {
		return err
	}
	watch := func() {}
	if c.File != "" {
		watcher, err := rules.Watch(s.set, rules.WatchConfig{Apply: s.apply, Read: s.limiter.RulesRead, Every: s.cfg.Reload})
		if err != nil {
			return err
		}
		watch = watcher.Close
	}
	err = s.serve(e.ctx, func(http string) {
		if c.File == "" {
			fmt.Fprintf(e.stdout, example, http)
		}
	})
	watch()
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	return errors.Join(err, s.close(ctx))
}

// serve serves until the context ends, and drains then. It calls listening with the
// address of the HTTP listener.
func (s *service) serve(ctx context.Context, listening func(http string)) error {
	handler, err := door.New(door.Config{
		Limiter: s.limiter, Doors: s.cfg.Doors, Callers: s.callers, Receipts: s.receipts,
		Observe: func(verb config.Verb, caller string, status int) {
			s.requests.WithLabelValues(string(verb), caller, strconv.Itoa(status)).Inc()
		},
	})
	if err != nil {
		return err
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 2)
	var servers []*http.Server
	defer func() {
		for _, server := range servers {
			_ = server.Close() // the listeners and connections that a Shutdown has left
		}
	}()
	for _, l := range []struct {
		name    string
		address config.Address
		handler http.Handler
	}{{"admin", s.cfg.Listen.Admin, s.admin()}, {"http", s.cfg.Listen.HTTP, handler}} {
		if l.address.Network == "" {
			continue
		}
		listener, err := s.listen(l.address)
		if err != nil {
			return fmt.Errorf("listen.%s: %w", l.name, err)
		}
		server := newServer(s.lived(l.handler))
		servers = append(servers, server)
		go func() { failed <- server.Serve(listener) }()
		slog.Info("abacusd: listening", "for", l.name, "at", listener.Addr().String())
		if l.name == "http" {
			listening(listener.Addr().String())
		}
	}
	go s.look(looking)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return s.drain(servers)
}

// drain is not ready for as long as proxies need to see it, while all is answered, and
// then ends the listeners and waits for the answers under way.
func (s *service) drain(servers []*http.Server) error {
	s.draining.Store(true)
	slog.Info("abacusd: draining", "for", s.cfg.Drain)
	time.Sleep(s.cfg.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// newServer returns a server that no client can hold for long, and that keeps idle
// connections for longer than proxies do.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: log.New(withoutHandshakes{}, "", 0),
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
func (s *service) listen(a config.Address) (net.Listener, error) {
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
	if err != nil {
		return nil, err
	}
	if a.Network == "unix" {
		return listener, os.Chmod(a.Address, 0o660)
	}
	if s.tls != nil {
		return tls.NewListener(listener, s.tls.config()), nil
	}
	return listener, nil
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
			http.Error(w, "the store does not answer", http.StatusServiceUnavailable)
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
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb := config.Metrics
		if strings.HasPrefix(r.URL.Path, "/debug/") {
			verb = config.Pprof
		}
		if s.callers.Of(callers.PeerOf(r)).May(verb, "") == "" {
			http.Error(w, "a caller of the configuration may "+string(verb)+", and this client is none", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
