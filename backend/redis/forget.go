package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/internal/redisscript"
	"github.com/abacus-go/abacus/tiers"
)

// Forget remembers the label, and then empties the key: an FCALL for each 125
// leaves and each 2,000 entries. Each FCALL also remembers the label of its own
// instant, and the last of a group of tiers unlinks the root. Earlier hits are counted
// until then. An Erase first unlinks the leaves that no root names any more: the root
// of a key drops its stale leaves, which then expire by themselves.
func (s *sums) Forget(ctx context.Context, req *backend.ForgetRequest) error {
	var buffer [tiers.MaxTiers]group
	groups := groupsOf(buffer[:0], req.Ladder)
	marker := redisscript.Marker(req.Key)
	step := func(keys []string, leaf, from uint64) (next uint64, err error) {
		r := make(request, 0, 32)
		r.uint(labelBits(req.Latest()), 8)
		r.ms(max(req.Remember, time.Millisecond))
		r.uint(leaf, 2)
		r.uint(from, 6)
		reply, err := s.ask(ctx, req.Deadline, time.Time{}, scripts().forget.freeing(), keys, r)
		if err != nil {
			return 0, err
		}
		n, is := reply.(int64)
		if !is || n < 0 {
			return 0, s.unexpected(reply)
		}
		return uint64(n), nil
	}
	for _, g := range groups {
		if req.Erase {
			if err := s.unlinkLeaves(ctx, req, g); err != nil {
				return err
			}
		}
		keys := []string{g.rootName(req.Key), marker}
		from, err := step(keys, g.leafPositions(), 0)
		for err == nil && from > 0 {
			from, err = step(keys, g.leafPositions(), from)
		}
		if err != nil {
			return err
		}
	}
	_, err := step([]string{marker}, 0, 0) // for hits that came during the last step
	return err
}

// leafKinds is the number of kinds of a leaf, which are part of a leaf's name.
const leafKinds = 4

// unlinkLeaves unlinks all leaves of a group that may be in the store, a few hundred
// names in a command. A leaf was written a time to live ago at most, by a call whose
// label was Keep older at most.
func (s *sums) unlinkLeaves(ctx context.Context, req *backend.ForgetRequest, g group) error {
	const stretches = 125 // of a command
	stretch, ttl, keep := time.Duration(g.leaf)*g.width, req.TTLs[g.last], req.Ladder.At(g.last).Keep
	first := tiers.Index(req.Now.UnixNano()-int64(g.ttl(ttl)+keep+time.Minute), stretch)
	last := tiers.Index(req.Now.UnixNano()+int64(ttl-keep+time.Minute), stretch)
	stem := g.rootName(req.Key) + ":"
	for ; first <= last; first += stretches {
		var names []string
		for number := first; number <= min(last, first+stretches-1); number++ {
			for kind := 1; kind <= leafKinds; kind++ {
				names = append(names, fmt.Sprintf("%s%d.%d", stem, number, kind))
			}
		}
		ctx, cancel, err := s.server.Begin(ctx, req.Deadline, s.timeout)
		if err != nil {
			return err
		}
		err = s.server.Client().Unlink(ctx, names...).Err()
		cancel()
		if err != nil {
			return s.server.Failed(ctx, err)
		}
	}
	return nil
}

// Forgotten reads the marker of the key.
func (s *sums) Forgotten(ctx context.Context, r *backend.ForgetRequest) (label int64, err error) {
	ctx, cancel, err := s.server.Begin(ctx, r.Deadline, s.timeout)
	if err != nil {
		return 0, err
	}
	defer cancel()
	v, err := s.server.Client().Get(ctx, redisscript.Marker(r.Key)).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return 0, nil
	case err != nil:
		return 0, s.server.Failed(ctx, err)
	case len(v) != 8:
		return 0, s.server.Failed(ctx, redisscript.ErrForeign)
	}
	return int64(number(v) ^ 1<<63), nil
}

// labelBits returns a number that is the greater the later the label is, also before
// 1970.
func labelBits(label int64) uint64 { return uint64(label) ^ 1<<63 }
