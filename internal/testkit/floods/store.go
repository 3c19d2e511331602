package main

import (
	"errors"
	"testing"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// stores are the kinds of stores, in the order of the page.
var stores = []string{"redis", "memcached"}

// startStore starts a server of a kind.
func startStore(t testing.TB, kind string) *servertest.Server {
	if kind == "redis" {
		return servertest.StartRedis(t)
	}
	return servertest.StartMemcached(t)
}

// openStore opens the store of a kind, with all defaults.
func openStore(kind, addr string) (backend.Store, func() error, error) {
	switch kind {
	case "redis":
		s, err := redis.Open("redis://"+addr, redis.Config{})
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	case "memcached":
		s, err := memcache.New(memcache.Config{}, addr)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	}
	return nil, nil, errors.New("the store is " + kind + ", want redis or memcached")
}
