package main

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
)

// cleaning is the longest time for the removal of a run's keys.
const cleaning = 2 * time.Minute

// storeName is a flag of a store.
type storeName struct{ stores.Name }

func (s *storeName) UnmarshalText(text []byte) (err error) {
	s.Name, err = stores.Parse(string(text))
	return err
}

// open opens stores; a variable for the sake of a test.
var open = stores.Open

// openStore opens the store of --store, without connecting.
func openStore(name storeName, timeout time.Duration) (*stores.Opened, error) {
	store, err := open(name.Name, timeout)
	if err != nil {
		return nil, usageError{fmt.Errorf("store %s: %w", name, err)}
	}
	return store, nil
}

// identify returns an error unless all servers of the store can be reached and
// written to.
func identify(ctx context.Context, store *stores.Opened) error {
	if err := store.Identify(ctx); err != nil {
		return fmt.Errorf("store %s: %w", store.Name, err)
	}
	return nil
}

// clean removes the keys under a prefix, also after an interrupt.
func clean(ctx context.Context, store *stores.Opened, prefix string) (int64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	n, err := store.Clean(ctx, prefix)
	if err != nil {
		return n, fmt.Errorf("store %s: %w", store.Name, err)
	}
	return n, nil
}

// storeHelp is the part of --help about --store.
const storeHelp = `The store is one of

    memory
    redis://user:password@127.0.0.1:6379/0        or rediss:// for TLS
    unix:///run/redis/redis.sock?db=0
    redis://10.0.0.1:6379?addr=10.0.0.2:6379      a Cluster, by some nodes
    redis://10.0.0.1:26379/0?master_name=main     a master, by Sentinels
    redis://127.0.0.1:6379/0?layout=plain         a plain counter a bucket
    memcached://127.0.0.1:11211,127.0.0.1:11212

$ABACUS_STORE holds it as well as --store, out of sight of other users.`
