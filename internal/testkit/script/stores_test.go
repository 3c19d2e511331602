package script_test

import (
	"cmp"
	"crypto/rand"
	"flag"
	mrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/internal/testkit/script"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

var (
	length = flag.Duration("for", 0, "how long scripts are played")
	first  = flag.Uint64("seed", 0, "the seed of the first script, the next script having the next; 0: one by chance")
)

// ladders are kept for a minute and more, which is longer than a script runs.
var ladders = []string{"1s:1d, 1m:1d, 1h:1d", "100ms:1m, 1s:1h, 1m:1d, 1h:7d, 1d:7d", "1m:1d, 1h:1d", "10s:1h", "1s:1m, 1h:7d",
	"1m:1d, 1h:30d", "1s:1h, 1m:1d, 1h:30d", "50ms:1m, 1s:30d, 1m:30d, 1h:30d, 1d:30d", "10s:10m, 10m:1d, 2h:30d",
	"1s:1h, 15m:32d, 1h:32d, 1d:32d", "1m:2d", "1h:8d, 1d:31d"}

// ofSeed makes a script of one of the ladders, with clocks that are further apart than a
// bucket is wide or closer.
func ofSeed(seed uint64) script.Script {
	r := mrand.New(mrand.NewPCG(seed, 0))
	ladder := parse.Ladder(ladders[r.IntN(len(ladders))])
	clocks := []struct{ skew, settle time.Duration }{{-1, -1}, {100 * time.Millisecond, -1}, {3 * time.Second, 10 * time.Second}, {ladder.At(0).Width * 9 / 8, time.Second}}
	clock := clocks[r.IntN(len(clocks))]
	s := script.Random(r, ladder, clock.skew, clock.settle, 80)
	s.Exact = r.IntN(4) == 0
	return s
}

// Each store plays random scripts: one, or for as long as -for says, as make oracle does.
//
// The clock of the callers is virtual: a script lasts for weeks of that clock, and
// milliseconds of a server's clock. So no bucket of a server expires while a script runs.
// The scripts find wrong answers about buckets that are there, too old ones among them.
// Whether a server keeps a bucket for long enough is up to other tests and to the command
// faults.
func TestStores(t *testing.T) {
	const ioTimeout = 30 * time.Second // the machine may be busy
	onRedis := func(layout redis.Layout) func(t *testing.T) (backend.Store, func()) {
		return func(t *testing.T) (backend.Store, func()) {
			server := servertest.Redis(t)
			s := try.To(redis.Open("redis://"+server, redis.Config{Layout: layout, IOTimeout: ioTimeout}))(t)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s, func() { require.NoError(t, try.Err(servertest.Command(server, "FLUSHALL"))) }
		}
	}
	for name, open := range map[string]func(t *testing.T) (store backend.Store, empty func()){
		"memory":      func(*testing.T) (backend.Store, func()) { return nil, nil }, // one for each script
		"redis":       onRedis(redis.Sums),
		"redis plain": onRedis(redis.Plain),
		"memcached": func(t *testing.T) (backend.Store, func()) {
			s := try.To(memcache.New(memcache.Config{IOTimeout: ioTimeout}, servertest.Memcached(t, "-m", "512")))(t)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s, func() {} // it drops the oldest scripts itself
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, empty := open(t)
			play := func(s script.Script) ([]script.Answer, error) {
				if store == nil {
					return s.Play(memory.New(memory.Config{}), "")
				}
				return s.Play(store, strings.ToLower(rand.Text()[:16]))
			}
			seed, answers := cmp.Or(*first, mrand.Uint64()>>1), 0
			began := time.Now()
			for n := uint64(0); n == 0 || time.Since(began) < *length; n++ {
				got, err := ofSeed(seed + n).Try(play)
				require.NoError(t, err, "-run TestStores/%s -seed %d", name, seed+n)
				answers += len(got)
				if store != nil && n%100 == 99 {
					empty()
				}
			}
			t.Logf("%d answers, from seed %d on", answers, seed)
		})
	}
}
