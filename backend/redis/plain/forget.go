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
// a thousand buckets at a time, so that what a Forget has left is found by the next.
// An Erase searches all tiers whole, since a coarser bucket may have been evicted, and
// unlinks what it finds.
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
	for i, t := range req.Ladder.Tiers() {
		many := maxReads
		if i > 0 && !req.Erase {
			many = max(1, maxReads/int(t.Width/req.Ladder.At(i-1).Width))
		}
		for some := range slices.Chunk(found[i], many) {
			all, finer := names(req.Key, t.Width, some), []string(nil)
			if i > 0 && !req.Erase {
				finer = names(req.Key, req.Ladder.At(i-1).Width, inside(req.Ladder, i-1, some))
			}
			if err := s.within(ctx, req.Deadline, func(ctx context.Context) error {
				if req.Erase {
					return s.server.Client().Unlink(ctx, all...).Err()
				}
				return s.remove(ctx, all, finer)
			}); err != nil {
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
	if tier < len(found)-1 && !req.Erase {
		return inside(req.Ladder, tier, found[tier+1])
	}
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

// inside returns the indexes of the buckets of a tier inside coarser ones.
func inside(l tiers.Ladder, tier int, coarser []int64) (indexes []int64) {
	ratio := int64(l.At(tier+1).Width / l.At(tier).Width)
	for _, coarse := range coarser {
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

// remove takes from buckets, in one step, what the finer buckets inside do not hold: these
// have the hits of the meantime. Where there is none, the buckets are removed. Others stay,
// if with 0: a Forget would not look inside a bucket that is missing. Where hits come too
// fast for one step, the rest is undone, and two Forgets at once may undo it twice.
func (s *Store) remove(ctx context.Context, buckets, finer []string) error {
	var rest []int64
	var err error = redis.TxFailedErr
	for try := 0; try < 10 && errors.Is(err, redis.TxFailedErr); try++ {
		err = s.server.Client().Watch(ctx, func(tx *redis.Tx) (err error) {
			if rest, _, err = watch(ctx, tx, buckets); err != nil {
				return err
			}
			held, existing, err := watch(ctx, tx, finer)
			if err != nil {
				return err
			}
			for i, n := range held {
				of := &rest[i/(len(finer)/len(buckets))]
				*of = max(0, *of-n)
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				if existing == 0 {
					return pipe.Unlink(ctx, buckets...).Err()
				}
				for i, n := range rest {
					if n > 0 {
						pipe.DecrBy(ctx, buckets[i], n)
					}
				}
				return nil
			})
			return err
		}, buckets[0])
	}
	if errors.Is(err, redis.TxFailedErr) {
		return s.takeBack(ctx, buckets, rest, make([]backend.Slot, len(buckets)), nil, nil)
	}
	return err
}

// watch watches buckets, and returns their counts and the number of those that exist.
func watch(ctx context.Context, tx *redis.Tx, buckets []string) (counts []int64, existing int64, err error) {
	for some := range slices.Chunk(buckets, maxReads) {
		if err = tx.Watch(ctx, some...).Err(); err != nil {
			return nil, 0, err
		}
		values, err := tx.MGet(ctx, some...).Result()
		if err != nil {
			return nil, 0, err
		}
		found, err := appendCounts(&counts, values)
		if err != nil {
			return nil, 0, err
		}
		existing += found
	}
	return counts, existing, nil
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
