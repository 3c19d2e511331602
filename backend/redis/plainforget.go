package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/internal/redisscript"
	"github.com/abacus-go/abacus/tiers"
)

// Forget is described in [backend.Store]. Buckets are searched in the coarsest tier
// first, and in a finer tier only inside coarser buckets that exist. Then tiers are
// emptied, finest first and oldest bucket first, a thousand buckets at a time. Buckets that
// have not changed since they were read are removed in one step. Of other buckets the
// count read is taken back, so that no hit from in between is lost. An Erase
// searches all tiers whole, since a coarser bucket may have been evicted, and unlinks
// what it finds.
func (s *plain) Forget(ctx context.Context, req *backend.ForgetRequest) error {
	step := func(f func(ctx context.Context) error) error {
		ctx, cancel, err := s.start(ctx, req.Deadline)
		if err != nil {
			return err
		}
		defer cancel()
		return f(ctx)
	}
	remember := func(ctx context.Context) error { return s.remember(ctx, req) }
	if err := step(remember); err != nil {
		return err
	}
	found := make([][]int64, req.Ladder.Len()) // indexes of the existing buckets of each tier
	for i, t := range slices.Backward(req.Ladder.Tiers()) {
		for chunk := range slices.Chunk(searched(req, i, found), maxPlainReads) {
			if err := step(func(ctx context.Context) (err error) {
				found[i], err = s.existing(ctx, found[i], req.Key, t.Width, chunk)
				return err
			}); err != nil {
				return err
			}
		}
	}
	for i, t := range req.Ladder.Tiers() {
		for chunk := range slices.Chunk(found[i], maxPlainReads) {
			names := namesOf(req.Key, t.Width, chunk)
			remove := func(ctx context.Context) error { return s.remove(ctx, names) }
			if req.Erase {
				remove = func(ctx context.Context) error {
					return s.failed(ctx, s.server.Client().Unlink(ctx, names...).Err())
				}
			}
			if err := step(remove); err != nil {
				return err
			}
		}
	}
	return step(remember)
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

func namesOf(key string, width time.Duration, indexes []int64) (names []string) {
	for _, index := range indexes {
		names = appendNames(names, key, width, index, 1)
	}
	return names
}

// existing appends the indexes of the existing buckets among indexes to dst.
func (s *plain) existing(ctx context.Context, dst []int64, key string, width time.Duration, indexes []int64) ([]int64, error) {
	names := namesOf(key, width, indexes)
	values, err := s.server.Client().MGet(ctx, names...).Result()
	if err != nil {
		return dst, s.server.Failed(ctx, err)
	}
	for i, value := range values {
		if value != nil {
			dst = append(dst, indexes[i])
		}
	}
	return dst, nil
}

// remove empties buckets.
func (s *plain) remove(ctx context.Context, names []string) error {
	counts := make([]int64, 0, len(names))
	err := s.server.Client().Watch(ctx, func(tx *redis.Tx) error {
		values, err := tx.MGet(ctx, names...).Result()
		if err != nil {
			return err
		}
		if counts, _, err = appendCounts(counts, values); err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Unlink(ctx, names...).Err() })
		return err
	}, names...)
	if errors.Is(err, redis.TxFailedErr) {
		_, err = s.takeBack(ctx, make([]backend.Slot, len(names)), names, counts, nil, nil)
		return err
	}
	return s.failed(ctx, err)
}

// remember writes the marker of a key: a sorted set with the newest label, as sixteen
// hexadecimal digits that sort as labels do. An older label that comes later is removed
// in the same transaction, and no label shortens the life of the marker.
func (s *plain) remember(ctx context.Context, req *backend.ForgetRequest) error {
	marker, life := markerName(req.Key), max(milliseconds(req.Remember), 1)
	if err := s.ready(ctx, marker, req.Remember); err != nil {
		return err
	}
	t := transaction{ctx: ctx}
	t.add("zadd", marker, 0, fmt.Sprintf("%016x", labelBits(req.Latest())))
	t.add("zremrangebyrank", marker, 0, -2)
	t.add("pexpire", marker, life, "nx")
	t.add("pexpire", marker, life, "gt")
	s.exec(&t)
	return s.failed(ctx, t.err())
}

// Forgotten reads the marker of the key.
func (s *plain) Forgotten(ctx context.Context, r *backend.ForgetRequest) (label int64, err error) {
	ctx, cancel, err := s.start(ctx, r.Deadline)
	if err != nil {
		return 0, err
	}
	defer cancel()
	labels, err := s.server.Client().ZRange(ctx, markerName(r.Key), -1, -1).Result()
	if err != nil {
		return 0, s.server.Failed(ctx, err)
	}
	if len(labels) == 0 {
		return 0, nil
	}
	bits, err := strconv.ParseUint(labels[0], 16, 64)
	if err != nil {
		return 0, s.server.Failed(ctx, redisscript.ErrForeign)
	}
	return int64(bits ^ 1<<63), nil
}
