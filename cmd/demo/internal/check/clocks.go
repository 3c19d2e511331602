package check

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
)

// String formats o: "3ms ahead, give or take 1ms".
func (o offset) String() string {
	word := "ahead"
	if o.ahead < 0 {
		word = "behind"
	}
	return fmt.Sprintf("%s %s, give or take %s", rounded(o.ahead.Abs()), word, rounded(o.unsure))
}

const clockSamples = 7

// offset is the lead of a server's clock over this machine's, give or take unsure.
type offset struct{ ahead, unsure time.Duration }

// clocks compares the servers' clocks with this machine's. Callers stamp the
// counts, so the callers' clocks must agree; a server serves all callers as the
// common measure.
func (r *run) clocks(ctx context.Context) (Result, error) {
	result := Result{Name: "clocks", Promise: "clocks agree", Status: OK}
	var all []offset
	var err error
	switch {
	case r.store.Redis != nil:
		all, err = r.redisClocks(ctx)
	case r.store.Memcached != nil:
		all, err = r.memcachedClocks(ctx)
	default:
		return result, errNotHere
	}
	if err != nil {
		return result, err
	}
	var told []string
	for _, o := range all {
		told = append(told, o.String())
		if o.ahead.Abs() > counter.DefaultSkew+o.unsure {
			result.Status = Warning
			result.Means = fmt.Sprintf("More than the default skew of %s. Limits hold while the callers' own clocks\nagree within counter.Config.Skew: compare their machines, set the clocks by NTP.",
				dur.Format(counter.DefaultSkew))
		}
	}
	result.Seen = "the server's is " + strings.Join(told, "; ")
	if len(told) == 1 {
		result.Numbers = map[string]float64{"ahead_ms": all[0].ahead.Seconds() * 1e3, "unsure_ms": all[0].unsure.Seconds() * 1e3}
	}
	return result, nil
}

func (r *run) redisClocks(ctx context.Context) (all []offset, err error) {
	err = r.store.Redis.Masters(ctx, func(ctx context.Context, master *goredis.Client) error {
		best, err := nearest(time.Now, func() (time.Time, time.Duration, error) {
			t, err := master.Time(ctx).Result()
			return t, 0, err
		})
		all = append(all, best)
		return err
	})
	return all, err
}

// memcachedClocks reads the stat time, in whole seconds of a clock that ticks once
// a second: the clock may be a second behind, and the stat a second more.
func (r *run) memcachedClocks(ctx context.Context) (all []offset, err error) {
	for _, addr := range r.store.Memcached.Servers {
		best, err := nearest(time.Now, func() (time.Time, time.Duration, error) {
			stats, err := r.store.Memcached.Stats(ctx, addr)
			if err != nil {
				return time.Time{}, 0, err
			}
			seconds, err := strconv.ParseInt(stats["time"], 10, 64)
			return time.Unix(seconds, 0).Add(time.Second), time.Second, err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, best)
	}
	return all, nil
}

// nearest asks a server for its time, and returns the answer of the shortest trip:
// the clock was read half a trip ago, give or take half a trip. coarse is the
// uncertainty of the answer itself.
func nearest(now func() time.Time, ask func() (t time.Time, coarse time.Duration, err error)) (best offset, err error) {
	for i := range clockSamples {
		began := now()
		t, coarse, err := ask()
		if err != nil {
			return best, err
		}
		half := now().Sub(began) / 2
		if o := (offset{ahead: t.Sub(began.Add(half)), unsure: half + coarse}); i == 0 || o.unsure < best.unsure {
			best = o
		}
	}
	return best, nil
}
