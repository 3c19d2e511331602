package memcache_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// A proxy in front of several servers answers the question what it understands by an
// error, since the server of that name is down: the other servers count.
func TestAProxyWithAServerDown(t *testing.T) {
	s := newStore(t, memcache.Config{Proxied: true}, relay(t, servertest.Memcached(t), map[string]string{"ma": "", "get |abacus": "SERVER_ERROR Connection refused\r\n"}))
	for i := range int64(3) {
		require.Equal(t, i+1, add(t, s, "k", 1, 7))
	}
}

// A proxy that knows stats, and no detailed stats: Check does without.
func TestCheckWithoutDetailedStats(t *testing.T) {
	s := newStore(t, memcache.Config{}, relay(t, servertest.Memcached(t, "-M"), map[string]string{
		"ma": "", "stats settings": "ERROR\r\n", "stats items": "ERROR\r\n", "stats slabs": "ERROR\r\n",
	}))
	err := s.Check(context.Background())
	require.NotErrorIs(t, err, backend.ErrStore)
	if err != nil {
		require.ErrorIs(t, err, backend.ErrCondition)
		require.NotContains(t, err.Error(), "cannot be written to")
	}
}

// A long value that something else wrote under the name of a bucket is an error for
// its key, without the text of the key, and nothing for other keys: the connection is
// kept. Erase deletes the value.
func TestALongForeignValue(t *testing.T) {
	old, behind := oldMemcached(t)
	for name, addrs := range map[string][2]string{"meta": {behind, behind}, "classic": {old, behind}} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, memcache.Config{}, addrs[0])
			key, other := "ab:1x:e:secret"+name, "ab:1x:e:other"+name
			f := forgetting(key)
			hour := f.Ladder.Buckets(f.Now)[2]
			bucket := fmt.Sprint("1h", hour.Index)
			item := key + "|" + bucket
			for _, size := range []int{1100, 100_000, 1_000_000} {
				require.NoError(t, rawClient(addrs[1]).Set(&gomemcache.Item{Key: item, Value: []byte(strings.Repeat("x", size))}))
				op := readingToo(adding(key, 1))
				op.Read[0].Width, op.Read[0].First = time.Hour, hour.Index-10
				op.Add = nil
				err := s.Do(context.Background(), op)
				require.ErrorContains(t, err, "get bucket "+bucket+`: holds "more than 1024 bytes", want a count`)
				require.NotContains(t, err.Error(), "secret")
				require.EqualValues(t, 1, add(t, s, other, 1, int64(size)))
				f.Erase = true
				require.NoError(t, s.Forget(context.Background(), f))
				_, err = rawClient(addrs[1]).Get(item)
				require.ErrorIs(t, err, gomemcache.ErrCacheMiss)
			}
			require.Zero(t, s.Report().HitsLeft)
		})
	}
}
