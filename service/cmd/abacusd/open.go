package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9/logging"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	abacusmetrics "github.com/abacus-go/abacus/metrics/prometheus"
	"github.com/abacus-go/abacus/metrics/tally"
	"github.com/abacus-go/abacus/rules"
	"github.com/abacus-go/abacus/service/callers"
	"github.com/abacus-go/abacus/service/config"
	"github.com/abacus-go/abacus/service/door"
	"github.com/abacus-go/abacus/service/envoy"
)

var (
	//go:embed example/abacusd.yaml
	exampleConfig []byte
	//go:embed example/rules.yaml
	exampleRules []byte
)

// service is all that serves a configuration, but for its listeners.
type service struct {
	cfg         *config.Config
	set         *rules.Set // nil without rules
	callers     *callers.Set
	limiter     *limiter.Limiter // of set
	envoy       *envoy.Service   // nil: none
	tls         *certificates    // nil: none
	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	connections *prometheus.CounterVec  // closed by a bound
	tallies     map[string]*tally.Tally // of the limiters, by name
	receipts    bool                    // the limiter has a key for them
	closeStore  func() error

	ready    atomic.Bool // by the last check of the store
	draining atomic.Bool
}

// options are what the command line sets instead of a file.
type options struct {
	Store string `env:"ABACUS_STORE" help:"Store instead of that of the file, such as redis://127.0.0.1:6379/0; $$ABACUS_STORE holds it out of sight of other users."`
	HTTP  string `name:"http" help:"Address instead of listen.http of the file."`
}

// apply sets c by the environment of a reference service, if there is its RUNTIME_ROOT,
// and by o.
func (o *options) apply(c *config.Config) error {
	if os.Getenv("RUNTIME_ROOT") != "" {
		e, err := envoy.ReadEnvironment(os.Environ())
		if err != nil {
			return err
		}
		c.Envoy.Rules, c.Envoy.Settings, c.Prefix = e.Rules, e.Settings, cmp.Or(e.Prefix, c.Prefix)
		c.Envoy.Metrics = c.Envoy.Metrics || e.Metrics
		slog.SetLogLoggerLevel(e.LogLevel)
		store := e.Redis
		if len(e.Memcached) > 0 {
			store = "memcached://" + strings.Join(e.Memcached, ",")
		}
		if err := errors.Join(set(&c.Store, store), set(&c.Listen.HTTP, e.HTTP), set(&c.Listen.GRPC, e.GRPC), set(&c.Listen.Admin, e.Admin)); err != nil {
			return err
		}
	}
	return errors.Join(set(&c.Store, o.Store), set(&c.Listen.HTTP, o.HTTP))
}

// set sets v to text, unless that is empty.
func set(v encoding.TextUnmarshaler, text string) error {
	if text == "" {
		return nil
	}
	return v.UnmarshalText([]byte(text))
}

// load makes the service of a file, "" for the example or the environment alone.
func load(file string, o options) (*service, error) {
	name, data := "example/abacusd.yaml", exampleConfig
	if os.Getenv("RUNTIME_ROOT") != "" {
		name, data = "environment", []byte("listen: {http: 127.0.0.1:8080, grpc: 127.0.0.1:8081}")
	}
	cfg, err := config.Parse(name, data, o.apply)
	if file != "" {
		cfg, err = config.Load(file, o.apply)
	}
	if err != nil {
		return nil, err
	}
	var set *rules.Set
	switch {
	case file == "" && cfg.Rules != "":
		set, err = rules.Parse("example/rules.yaml", exampleRules)
	case cfg.Rules != "":
		set, err = rules.Load(cfg.Rules)
	}
	if err != nil {
		return nil, err
	}
	return open(cfg, set)
}

// open makes the service of a configuration, without connecting.
func open(cfg *config.Config, set *rules.Set) (_ *service, err error) {
	logging.Disable() // of the client of Redis: the limiter says when the store is away
	s := &service{cfg: cfg, set: set, registry: prometheus.NewRegistry(), tallies: map[string]*tally.Tally{}}
	if s.callers, err = callers.New(cfg.Callers); err != nil {
		return nil, err
	}
	if cfg.TLS != nil {
		if s.tls, err = newCertificates(cfg.TLS); err != nil {
			return nil, err
		}
	}
	store, closeStore, err := cfg.Store.Open()
	if err != nil {
		return nil, err
	}
	s.closeStore = closeStore
	defer func() {
		if err != nil {
			err = errors.Join(err, closeStore())
		}
	}()
	secret, err := secretOf(cfg.SecretFile)
	if err != nil {
		return nil, err
	}
	c, err := counter.New(store, counter.Config{Prefix: cfg.Prefix, Secret: secret})
	if err != nil {
		return nil, err
	}
	if cfg.Envoy.Rules != "" {
		if err := s.openEnvoy(c); err != nil {
			return nil, err
		}
	}
	s.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "abacusd_requests_total",
		Help: "Answers of the HTTP listener, by verb, caller (empty: refused) and status.",
	}, []string{"verb", "caller", "status"})
	s.connections = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "abacusd_connections_refused_total", Help: "Connections closed since a listener had as many as it may, by listener.",
	}, []string{"listener"})
	s.registry.MustRegister(s.requests, s.connections, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if set == nil {
		return s, nil
	}
	return s, s.openRules(c)
}

// openRules makes the limiter of the rules.
func (s *service) openRules(c *counter.Counter) error {
	limits, observed, err := s.limits(c, "rules")
	if err != nil {
		return err
	}
	if limits.ReceiptKey, err = secretOf(s.cfg.ReceiptKeyFile); err != nil {
		return err
	}
	if s.cfg.ReceiptKeyFile == "" && s.cfg.Store.InProcess() {
		limits.ReceiptKey = []byte(rand.Text()) // no other process has these counts
	}
	s.receipts = limits.ReceiptKey != nil
	limits.Rules = s.set.Rules
	if s.limiter, err = limiter.New(c, limits); err != nil {
		return err
	}
	observed(s.limiter)
	return door.Check(s.limiter, s.cfg.Doors)
}

// limits returns what the limiters have in common, and the function that adds the metrics
// of the limiter under a name.
func (s *service) limits(c *counter.Counter, name string) (limiter.Config, func(*limiter.Limiter), error) {
	within := cmp.Or(s.cfg.DecideWithin, limiter.DefaultDecideWithin)
	if s.cfg.Store.InProcess() {
		within = 0
	}
	local, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Config().Skew + within})
	decisions, numbers := abacusmetrics.NewDecisions(), tally.New(c)
	s.tallies[name] = numbers
	observe := func(d limiter.Decision) {
		decisions.Observe(d)
		numbers.Observe(d)
	}
	return limiter.Config{DecideWithin: s.cfg.DecideWithin, Share: s.cfg.Share, Local: local, Observe: observe}, func(l *limiter.Limiter) {
		of := prometheus.WrapRegistererWith(prometheus.Labels{"limiter": name}, s.registry)
		of.MustRegister(decisions, abacusmetrics.Conditions(l))
	}, err
}

// secretOf reads a secret without the white space around it, nil without a file.
func secretOf(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if data = bytes.TrimSpace(data); err == nil && len(data) < 16 {
		err = fmt.Errorf("%s: the secret has %d bytes, want at least 16 random ones", file, len(data))
	}
	return data, err
}

// apply replaces the rules by those of a changed file. A file that a door cannot do
// with is refused, and the rules until now stay.
func (s *service) apply(set *rules.Set) error {
	tried := slices.Clone(set.Rules)
	for i := range tried {
		tried[i].OnFailure = limiter.FailClosed // which needs no local counter
	}
	trial, err := limiter.New(s.limiter.Counter(), limiter.Config{Rules: tried})
	if err != nil {
		return err
	}
	if err := door.Check(trial, s.cfg.Doors); err != nil {
		return err
	}
	return s.limiter.ReplaceAll(set.Rules...)
}

// limiters returns those that there are, by name.
func (s *service) limiters() map[string]*limiter.Limiter {
	all := map[string]*limiter.Limiter{}
	if s.limiter != nil {
		all["rules"] = s.limiter
	}
	if s.envoy != nil && s.envoy.Limiter() != nil {
		all["envoy"] = s.envoy.Limiter()
	}
	return all
}

// look checks the store until the context ends, every second.
func (s *service) look(ctx context.Context) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		ready := true
		for _, l := range s.limiters() {
			ready = ready && (!errors.Is(l.Check(limited), counter.ErrStore) || allLocal(l))
		}
		cancel()
		if s.ready.Store(ready); s.envoy != nil {
			s.envoy.Serving(ready) // the health of gRPC follows /readyz
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// allLocal reports whether all rules of l decide without the store.
func allLocal(l *limiter.Limiter) bool {
	for _, event := range l.Events() {
		for _, rule := range l.Rules(event) {
			if rule.OnFailure != limiter.FailLocal && !rule.Soft {
				return false
			}
		}
	}
	return true
}

// close carries the hits that were counted in this process to the store.
func (s *service) close(ctx context.Context) error {
	var errs []error
	if s.envoy != nil {
		errs = append(errs, s.envoy.Close(ctx))
	}
	if s.limiter != nil {
		errs = append(errs, s.limiter.Close(ctx))
	}
	return errors.Join(append(errs, s.closeStore())...)
}
