package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9/logging"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	abacusmetrics "github.com/abacus-go/abacus/metrics/prometheus"
	"github.com/abacus-go/abacus/rules"
	"github.com/abacus-go/abacus/service/callers"
	"github.com/abacus-go/abacus/service/config"
	"github.com/abacus-go/abacus/service/door"
)

var (
	//go:embed example/abacusd.yaml
	exampleConfig []byte
	//go:embed example/rules.yaml
	exampleRules []byte
)

// service is all that serves a configuration, but for its listeners.
type service struct {
	cfg        *config.Config
	set        *rules.Set
	callers    *callers.Set
	limiter    *limiter.Limiter
	tls        *certificates // nil: none
	registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	receipts   bool // the limiter has a key for them
	closeStore func() error

	ready    atomic.Bool // by the last check of the store
	draining atomic.Bool
}

// load makes the service of a file, "" for the example. A store and an address take the
// place of those in the file.
func load(file, store, address string) (*service, error) {
	cfg, err := config.Parse("example/abacusd.yaml", exampleConfig)
	if file != "" {
		cfg, err = config.Load(file)
	}
	if err == nil && store != "" {
		err = cfg.Store.UnmarshalText([]byte(store))
	}
	if err == nil && address != "" {
		err = cfg.Override(address)
	}
	if err != nil {
		return nil, err
	}
	set, err := rules.Parse("example/rules.yaml", exampleRules)
	if file != "" {
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
	s := &service{cfg: cfg, set: set, registry: prometheus.NewRegistry()}
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
	decisions := abacusmetrics.NewDecisions()
	limits := limiter.Config{Rules: set.Rules, DecideWithin: cfg.DecideWithin, Share: cfg.Share, Observe: decisions.Observe}
	if limits.Local, err = localOf(c, cfg); err != nil {
		return nil, err
	}
	if limits.ReceiptKey, err = secretOf(cfg.ReceiptKeyFile); err != nil {
		return nil, err
	}
	if cfg.ReceiptKeyFile == "" && cfg.Store.InProcess() {
		limits.ReceiptKey = []byte(rand.Text()) // no other process has these counts
	}
	s.receipts = limits.ReceiptKey != nil
	if s.limiter, err = limiter.New(c, limits); err != nil {
		return nil, err
	}
	s.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "abacusd_requests_total",
		Help: "Answers of the HTTP listener, by verb, caller (empty: refused) and status.",
	}, []string{"verb", "caller", "status"})
	s.registry.MustRegister(decisions, abacusmetrics.Conditions(s.limiter), s.requests,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s, door.Check(s.limiter, cfg.Doors)
}

// localOf returns the counter for rules under fail-local.
func localOf(c *counter.Counter, cfg *config.Config) (*counter.Counter, error) {
	within := cfg.DecideWithin
	switch {
	case cfg.Store.InProcess():
		within = 0
	case within == 0:
		within = limiter.DefaultDecideWithin
	}
	return counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Config().Skew + within})
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

// look checks the store until the context ends, every second.
func (s *service) look(ctx context.Context) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		s.ready.Store(!errors.Is(s.limiter.Check(limited), counter.ErrStore) || s.allLocal())
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// allLocal reports whether all rules decide without the store.
func (s *service) allLocal() bool {
	for _, event := range s.limiter.Events() {
		for _, rule := range s.limiter.Rules(event) {
			if rule.OnFailure != limiter.FailLocal && !rule.Soft {
				return false
			}
		}
	}
	return true
}

// close carries the hits that were counted in this process to the store.
func (s *service) close(ctx context.Context) error {
	return errors.Join(s.limiter.Close(ctx), s.closeStore())
}
