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

	"github.com/abacus-go/abacus/backend"
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
	receiptKey  []byte                  // of the limiter; nil: there are no receipts
	store       backend.Store           // of cfg

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
	name, data := cmp.Or(file, "example/abacusd.yaml"), exampleConfig
	if file != "" {
		var err error
		if data, err = os.ReadFile(file); err != nil {
			return nil, err
		}
	} else if os.Getenv("RUNTIME_ROOT") != "" {
		name, data = "environment", []byte("listen: {http: 127.0.0.1:8080, grpc: 127.0.0.1:8081}")
	}
	cfg, err := config.Parse(name, data, o.apply)
	if cfg == nil {
		return nil, err
	}
	var set *rules.Set
	var rulesErr error
	switch {
	case file == "" && cfg.Rules != "":
		set, rulesErr = rules.Parse("example/rules.yaml", exampleRules)
	case cfg.Rules != "":
		if set, rulesErr = rules.Load(cfg.Rules); !errors.As(rulesErr, new(*rules.Error)) {
			rulesErr = cfg.Fault("rules", errors.Unwrap(rulesErr))
		}
	}
	s, openErr := open(cfg, set)
	if err = cfg.Join(err, openErr, rulesErr); err != nil {
		return nil, errors.Join(err, s.close(context.Background()))
	}
	return s, nil
}

// open makes the service of a configuration, without connecting. The error joins the faults
// of all files that the configuration names; the service is then to be closed.
func open(cfg *config.Config, set *rules.Set) (*service, error) {
	logging.Disable() // of the client of Redis: the limiter says when the store is away
	s := &service{cfg: cfg, set: set, registry: prometheus.NewRegistry(), tallies: map[string]*tally.Tally{}}
	errs := make([]error, 6)
	s.callers, errs[0] = callers.New(cfg)
	if cfg.TLS.CertFile != "" || cfg.TLS.KeyFile != "" {
		s.tls, errs[1] = newCertificates(cfg)
	}
	var secret []byte
	secret, errs[2] = secretOf(cfg, "secret_file", cfg.SecretFile)
	s.receiptKey, errs[3] = secretOf(cfg, "receipt_key_file", cfg.ReceiptKeyFile)
	store, err := cfg.Store.Open()
	if err != nil {
		return s, err
	}
	s.store = store
	c, err := counter.New(store, counter.Config{Prefix: cfg.Prefix, Secret: secret})
	if err != nil {
		return s, err
	}
	if cfg.Envoy.Rules != "" {
		errs[4] = s.openEnvoy(c)
	}
	s.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "abacusd_requests_total", Help: "Answers of the HTTP listener, by verb, caller (empty: refused) and status.",
	}, []string{"verb", "caller", "status"})
	s.connections = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "abacusd_connections_refused_total", Help: "Connections closed since a listener had as many as it may, by listener.",
	}, []string{"listener"})
	s.registry.MustRegister(s.requests, s.connections, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if set != nil {
		errs[5] = s.openRules(c)
	}
	return s, errors.Join(errs...)
}

// openRules makes the limiter of the rules.
func (s *service) openRules(c *counter.Counter) error {
	limits, observed, err := s.limits(c, "rules")
	if err != nil {
		return err
	}
	if s.cfg.ReceiptKeyFile == "" && s.cfg.Store.InProcess() {
		s.receiptKey = []byte(rand.Text()) // no other process has these counts
	}
	limits.ReceiptKey, limits.Rules = s.receiptKey, s.set.Rules
	if s.limiter, err = limiter.New(c, limits); err != nil {
		return s.cfg.Fault("rules", err)
	}
	observed(s.limiter)
	return door.Check(s.limiter, s.cfg)
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
	}, s.cfg.Fault("decide_within", err) // of a Skew that is too long
}

// secretOf reads the secret of a key of the configuration, without the white space around
// it, nil without a file.
func secretOf(cfg *config.Config, key, file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if data = bytes.TrimSpace(data); err == nil && len(data) < 16 {
		err = fmt.Errorf("%s: the secret has %d bytes, want at least 16 random ones", file, len(data))
	}
	if err != nil {
		return nil, cfg.Fault(key, err)
	}
	return data, nil
}

// apply replaces the rules by those of a changed file. A file that a door or a caller
// cannot do with is refused, and the rules until now stay.
func (s *service) apply(set *rules.Set) error {
	tried := slices.Clone(set.Rules)
	for i := range tried {
		tried[i].OnFailure = limiter.FailClosed // which needs no local counter
	}
	trial, err := limiter.New(s.limiter.Counter(), limiter.Config{Rules: tried})
	if err != nil {
		return err
	}
	if err := door.Check(trial, s.cfg); err != nil {
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
		ready := s.envoy == nil || s.envoy.Limiter() != nil
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
	return errors.Join(append(errs, config.Close(s.store))...)
}
