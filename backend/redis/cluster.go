package redis

import (
	"context"
	"slices"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/redisscript"
)

const clusterClocks = 256 // kept for all slots of a Cluster

// Together tells whether a single server, or of a Cluster a single slot, holds all
// keys.
func (s *sums) Together(keys []backend.TakeKey) bool {
	if s.server.Cluster() == nil || len(keys) == 0 {
		return true
	}
	first := redisscript.Slot(keys[0].Key)
	return !slices.ContainsFunc(keys[1:], func(k backend.TakeKey) bool { return redisscript.Slot(k.Key) != first })
}

// ServerOf is described in [backend.Placer]: of a Cluster the master of the slot, as
// far as the client knows.
func (s *base) ServerOf(key string) string {
	cluster := s.server.Cluster()
	if cluster == nil {
		return ""
	}
	node, err := cluster.MasterForKey(asked, rootTag(key))
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// asked is a context that has ended, for questions that ask no server.
var asked = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
