package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
)

// Store is a flag of a store.
type Store struct{ stores.Name }

func (s *Store) UnmarshalText(text []byte) (err error) {
	s.Name, err = stores.Parse(string(text))
	return err
}

// Open opens stores; a variable for the sake of a test.
var Open = stores.Open

// Open opens the store, without connecting. An error is a mistake in the call.
func (s Store) Open(timeout Span) (*stores.Opened, error) {
	return s.opened(Open(s.Name, time.Duration(timeout)))
}

// OpenReadOnly is Open for a store that nothing is written to.
func (s Store) OpenReadOnly(timeout Span) (*stores.Opened, error) {
	return s.opened(stores.OpenReadOnly(s.Name, time.Duration(timeout)))
}

func (s Store) opened(store *stores.Opened, err error) (*stores.Opened, error) {
	if err != nil {
		return nil, Usagef("store %s: %w", s, err)
	}
	return store, nil
}

// Identify returns an error unless all servers of the store can be reached and
// written to.
func Identify(ctx context.Context, store *stores.Opened) error {
	if err := store.Identify(ctx); err != nil {
		return fmt.Errorf("store %s: %w", store.Name, err)
	}
	return nil
}

// Clean removes the keys under a prefix, also after an interrupt.
func Clean(ctx context.Context, store *stores.Opened, prefix string) (int64, error) {
	ctx, cancel := stores.Cleaning(ctx)
	defer cancel()
	n, err := store.Clean(ctx, prefix)
	if err != nil {
		return n, fmt.Errorf("store %s: %w", store.Name, err)
	}
	return n, nil
}

// StoreHelp is the part of --help about --store.
const StoreHelp = `The store is one of

    redis://user:password@127.0.0.1:6379/0        or rediss:// for TLS
    unix:///run/redis/redis.sock?db=0
    redis://10.0.0.1:6379?addr=10.0.0.2:6379      a Cluster, by some nodes
    redis://10.0.0.1:26379/0?master_name=main     a master, by Sentinels
    redis://127.0.0.1:6379/0?layout=plain         a plain counter a bucket
    memcached://127.0.0.1:11211,127.0.0.1:11212

$ABACUS_STORE holds it as well as --store, out of sight of other users.`

// Limiter is a limiter in memory.
func Limiter(all []limiter.Rule) (*limiter.Limiter, error) {
	count, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		return nil, err
	}
	return limiter.New(count, limiter.Config{Rules: all, Local: count})
}

// Rules are the rules of a file as a Limiter has them: merged, and with their ladders.
func Rules(file string) ([]limiter.Rule, error) {
	set, err := rules.Load(file)
	if err != nil {
		return nil, err
	}
	lim, err := Limiter(set.Rules)
	if err != nil {
		return nil, err
	}
	var all []limiter.Rule
	for _, event := range lim.Events() {
		all = append(all, lim.Rules(event)...)
	}
	return all, nil
}
