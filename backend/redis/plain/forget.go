package plain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/redisscript"
	"github.com/abacus-go/abacus/tiers"
)

// Forget searches buckets in the coarsest tier first, and in a finer tier only inside
// coarser buckets that exist. Then tiers are emptied, finest first and oldest bucket first,
// a thousand buckets at a time. Buckets that have not changed since they were read are
// removed in one step. Of other buckets the count read is undone, so that no hit from
// in between is lost. An Erase searches all tiers whole, since a coarser bucket may have
// been evicted, and unlinks what it finds.
func (s *Store) Forget(ctx context.Context, req *backend.ForgetRequest) error {
	remember := func(ctx context.Context) error { return s.remember(ctx, req) }
	if err := s.within(ctx, req.Deadline, remember); err != nil {
		return err
	}
	found := make([][]int64, req.Ladder.Len()) // indexes of the existing buckets of each tier
	for i, t := range slices.Backward(req.Ladder.Tiers()) {
		for some := range slices.Chunk(searched(req, i, found), maxReads) {
			var values []any
			if err := s.within(ctx, req.Deadline, func(ctx context.Context) (err error) {
				values, err = s.server.Client().MGet(ctx, names(req.Key, t.Width, some)...).Result()
				return err
			}); err != nil {
				return err
			}
			for j, value := range values {
				if value != nil {
					found[i] = append(found[i], some[j])
				}
			}
		}
	}
	remove := s.remove
	if req.Erase {
		remove = func(ctx context.Context, all []string) error { return s.server.Client().Unlink(ctx, all...).Err() }
	}
	for i, t := range req.Ladder.Tiers() {
		for some := range slices.Chunk(found[i], maxReads) {
			all := names(req.Key, t.Width, some)
			if err := s.within(ctx, req.Deadline, func(ctx context.Context) error { return remove(ctx, all) }); err != nil {
				return err
			}
		}
	}
	return s.within(ctx, req.Deadline, remember)
}

// searched returns the indexes of the buckets of a tier that may exist, oldest first: of
// the coarsest tier all that are kept, and otherwise those in a coarser bucket that exists.
func searched(req *backend.ForgetRequest, tier int, found [][]int64) (indexes []int64) {
	t := req.Ladder.At(tier)
	if tier == len(found)-1 || req.Erase {
		// A clock ahead may have hit buckets ahead of this clock.
		now, behind, ahead := req.Now.UnixNano(), req.TTLs[tier], req.TTLs[tier]-t.Keep+time.Minute
		if req.Erase { // a bucket was written a time to live ago at most, by a call whose label was Keep older at most
			behind += t.Keep + time.Minute
		}
		for i := tiers.Index(now-int64(behind), t.Width); i <= tiers.Index(now+int64(ahead), t.Width); i++ {
			indexes = append(indexes, i)
		}
		return indexes
	}
	ratio := int64(req.Ladder.At(tier+1).Width / t.Width)
	for _, coarse := range found[tier+1] {
		for i := range ratio {
			indexes = append(indexes, coarse*ratio+i)
		}
	}
	return indexes
}

func names(key string, width time.Duration, indexes []int64) (all []string) {
	for _, index := range indexes {
		all = appendNames(all, key, width, index, 1)
	}
	return all
}

// remove empties buckets.
func (s *Store) remove(ctx context.Context, names []string) error {
	var counts []int64
	err := s.server.Client().Watch(ctx, func(tx *redis.Tx) error {
		values, err := tx.MGet(ctx, names...).Result()
		if err != nil {
			return err
		}
		if _, err = appendCounts(&counts, values); err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Unlink(ctx, names...).Err() })
		return err
	}, names...)
	if errors.Is(err, redis.TxFailedErr) {
		return s.takeBack(ctx, names, counts, make([]backend.Slot, len(names)), nil, nil)
	}
	return err
}

// remember writes the marker of a key: a sorted set with the newest label, as sixteen
// hexadecimal digits that sort as labels do. An older label that comes later is removed
// in the same transaction, and no label shortens the life of the marker.
func (s *Store) remember(ctx context.Context, req *backend.ForgetRequest) error {
	marker, life := redisscript.Marker(req.Key), milliseconds(max(req.Remember, time.Millisecond))
	_, err := s.exec(ctx, [][]any{
		{"zadd", marker, 0, fmt.Sprintf("%016x", uint64(req.Latest())^1<<63)},
		{"zremrangebyrank", marker, 0, -2},
		{"pexpire", marker, life, "nx"},
		{"pexpire", marker, life, "gt"},
	}, nil, nil)
	return err
}

// Forgotten reads the marker of the key.
func (s *Store) Forgotten(ctx context.Context, r *backend.ForgetRequest) (label int64, err error) {
	err = s.within(ctx, r.Deadline, func(ctx context.Context) error {
		labels, err := s.server.Client().ZRange(ctx, redisscript.Marker(r.Key), -1, -1).Result()
		if err != nil || len(labels) == 0 {
			return err
		}
		bits, err := strconv.ParseUint(labels[0], 16, 64)
		if label = int64(bits ^ 1<<63); err != nil {
			err = redisscript.ErrForeign
		}
		return err
	})
	return label, err
}
