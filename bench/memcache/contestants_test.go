// Package memcache_test sets the memcached store beside a plain increment and a
// fixed window.
//
//	cd bench && go test ./memcache                          a test, of seconds
//	cd bench && go test -v -count=1 ./memcache -size short  a benchmark
package memcache_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

const day = 24 * time.Hour

var (
	errRefused = errors.New("a call was refused")
	ctx        = context.Background()
)

// bench is a memcached of its own.
type bench struct {
	*testing.T
	addr string
	now  time.Time
}

func newBench(t *testing.T) *bench {
	return &bench{T: t, addr: servertest.Memcached(t, "-m", "2048", "-c", "8192"), now: time.Date(2026, 3, 2, 10, 20, 30, 0, time.UTC)}
}

// client returns a client for the contestants of other libraries, with enough
// connections for all requests at once.
func client(t *testing.T, addr string) *gomemcache.Client {
	c := gomemcache.New(addr)
	c.Timeout, c.MaxIdleConns = 10*time.Second, 256
	t.Cleanup(func() { c.Close() })
	return c
}

// setting is the configuration of a contestant; the longest limit is the last.
type setting struct {
	addr    string
	limits  counter.Limits
	now     func() time.Time
	timeout time.Duration // of ours: counter.Config.Patience
	ladder  tiers.Ladder  // of ours; the zero Ladder: of the limits
}

func (b *bench) setting(limits counter.Limits) setting {
	return setting{addr: b.addr, limits: limits, now: func() time.Time { return b.now }, timeout: -1}
}

// usedUp is the limits with another Max of the longest.
func (s setting) usedUp(max int64) counter.Limits {
	last := len(s.limits) - 1
	return append(s.limits[:last:last], counter.Limit{Max: max, Per: s.limits[last].Per})
}

// contestant is one way to count on memcached.
type contestant struct {
	hit     func(key string) error // errRefused if a limit has no room
	refused func(key string) error // asks where the longest limit is used up; nil: it has none
	used    func(key string) (int64, error)
	ready   func(key string) error // before the first hit; nil: nothing
}

// kinds are the contestants, and with how many limits they come.
var kinds = []struct {
	name   string
	limits int // 0: it limits nothing
	how    string
	admits string
	make   func(*testing.T, setting) *contestant
}{
	{"increment", 0, "one incr of an item that is there: a floor, it limits nothing", "-", newIncrement},
	{"fixed window", 1, "of our own writing: incr, and if there is no item add, and if another was faster incr again", "2N", func(t *testing.T, s setting) *contestant { return newFixed(t, s, false) }},
	{"abacus", 1, "a Take", "N", newAbacus},
	{"fixed window", 3, "three of them, one after the other", "2N", func(t *testing.T, s setting) *contestant { return newFixed(t, s, false) }},
	{"fixed window, side by side", 3, "three of them, each on a connection of its own", "2N", func(t *testing.T, s setting) *contestant { return newFixed(t, s, true) }},
	{"abacus", 3, "a Take", "N", newAbacus},
}

// roomy are limits in the shape of 10/m, 50/h, 100/d, or of 100/d alone, with
// room for so many hits of a key in a minute. 0: none.
func roomy(n, hits int) counter.Limits {
	max := int64(hits)
	all := counter.Limits{{Max: 10 * max, Per: time.Minute}, {Max: 50 * max, Per: time.Hour}, {Max: 100 * max, Per: day}}
	return all[len(all)-n:]
}

func newIncrement(t *testing.T, set setting) *contestant {
	c, prefix := client(t, set.addr), fmt.Sprintf("i%08x:", rand.Uint32())
	return &contestant{
		hit: func(key string) error {
			_, err := c.Increment(prefix+key, 1)
			return err
		},
		used: func(key string) (int64, error) { return value(c, prefix+key) },
		ready: func(key string) error {
			return c.Set(&gomemcache.Item{Key: prefix + key, Value: []byte("0"), Expiration: 86400})
		},
	}
}

func value(c *gomemcache.Client, name string) (int64, error) {
	item, err := c.Get(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimRight(string(item.Value), " "), 10, 64)
}

func newFixed(t *testing.T, set setting, sideBySide bool) *contestant {
	c, prefix := client(t, set.addr), fmt.Sprintf("f%08x", rand.Uint32())
	name := func(key string, limit counter.Limit) string {
		return fmt.Sprintf("%s:%s:%d:%d", prefix, key, limit.Per/time.Second, set.now().UnixNano()/int64(limit.Per))
	}
	one := func(key string, limit counter.Limit) error {
		name := name(key, limit)
		n, err := c.Increment(name, 1)
		if errors.Is(err, gomemcache.ErrCacheMiss) {
			n = 1
			err = c.Add(&gomemcache.Item{Key: name, Value: []byte("1"), Expiration: int32(limit.Per / time.Second)})
			if errors.Is(err, gomemcache.ErrNotStored) {
				n, err = c.Increment(name, 1)
			}
		}
		if err == nil && n > uint64(limit.Max) {
			return errRefused
		}
		return err
	}
	ask := func(key string, limits counter.Limits) error {
		if !sideBySide {
			for i := len(limits) - 1; i >= 0; i-- {
				if err := one(key, limits[i]); err != nil {
					return err
				}
			}
			return nil
		}
		answers := make(chan error, len(limits))
		for _, limit := range limits {
			go func() { answers <- one(key, limit) }()
		}
		var err error
		for range limits {
			if e := <-answers; e != nil && (err == nil || errors.Is(err, errRefused)) {
				err = e
			}
		}
		return err
	}
	return &contestant{
		hit:     func(key string) error { return ask(key, set.limits) },
		refused: func(key string) error { return ask(key, set.usedUp(0)) },
		used:    func(key string) (int64, error) { return value(c, name(key, set.limits[len(set.limits)-1])) },
	}
}

func newAbacus(t *testing.T, set setting) *contestant {
	store := try.To(memcache.New(memcache.Config{IOTimeout: 10 * time.Second}, set.addr))(t)
	t.Cleanup(func() { store.Close() })
	ladder := set.ladder
	if ladder.Len() == 0 {
		ladder = set.limits.Ladder()
	}
	c := try.To(counter.New(store, counter.Config{
		Ladder: ladder, Prefix: fmt.Sprintf("a%08x", rand.Uint32()), Patience: set.timeout, Now: set.now,
	}))(t)
	take := func(feature string, limits counter.Limits) error {
		v, err := c.Take(ctx, counter.Key{Event: "signup", Feature: feature}, 1, limits)
		if err == nil && !v.Allowed {
			return errRefused
		}
		return err
	}
	var usedUp []counter.Limits
	for i := range int64(7) {
		usedUp = append(usedUp, set.usedUp(1+i)) // a denial is remembered for the same call: these calls differ
	}
	asked := 0
	return &contestant{
		hit: func(feature string) error { return take(feature, set.limits) },
		refused: func(feature string) error {
			asked++
			return take(feature, usedUp[asked%len(usedUp)])
		},
		used: func(feature string) (int64, error) {
			n, err := c.Count(ctx, counter.Key{Event: "signup", Feature: feature}, set.limits[len(set.limits)-1].Per)
			return n.High, err
		},
	}
}

// stats returns the statistics of the server.
func (b *bench) stats() map[string]float64 {
	conn, err := net.DialTimeout("tcp", b.addr, 10*time.Second)
	require.NoError(b, err)
	defer conn.Close()
	require.NoError(b, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = fmt.Fprint(conn, "stats\r\n")
	require.NoError(b, err)
	all := map[string]float64{}
	lines := bufio.NewScanner(conn)
	for lines.Scan() && lines.Text() != "END" {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			continue
		}
		if x, err := strconv.ParseFloat(fields[2], 64); err == nil {
			all[fields[1]] = x
		}
	}
	require.NoError(b, lines.Err())
	require.Contains(b, all, "rusage_user")
	require.Zero(b, all["evictions"], "the server has no room: what was counted is lost")
	return all
}

// cpu is the server's time in stats, in microseconds, all threads together.
func cpu(stats map[string]float64) float64 {
	return (stats["rusage_user"] + stats["rusage_system"]) * 1e6
}

// meter holds the time of one call in us, and its requests to the server, by round.
type meter struct{ wall, client, server, additions, items measure.Series }

// measure measures a round of calls.
func (m *meter) measure(b *bench, calls int, work func()) {
	b.Helper()
	before, spent, began := b.stats(), measure.CPU(), time.Now()
	work()
	wall, client, after, n := time.Since(began), measure.CPU()-spent, b.stats(), float64(calls)
	m.wall = append(m.wall, float64(wall.Nanoseconds())/1e3/n)
	m.client = append(m.client, float64(client.Microseconds())/n)
	m.server = append(m.server, (cpu(after)-cpu(before))/n)
	m.items = append(m.items, (after["cmd_get"]-before["cmd_get"])/n)
	// An item made by a meta command is counted as an item only.
	additions := max(after["cmd_set"]-before["cmd_set"], after["total_items"]-before["total_items"])
	for _, name := range []string{"incr_hits", "incr_misses", "decr_hits", "decr_misses", "delete_hits", "delete_misses"} {
		additions += after[name] - before[name]
	}
	m.additions = append(m.additions, additions/n)
}

// A limiter that does not count would win every race; a limiter that loses hits of
// fresh keys would win the race of fresh keys.
func TestEveryContestantCountsAndRefuses(t *testing.T) {
	b := newBench(t)
	for _, kind := range kinds {
		t.Run(fmt.Sprintf("%s, %d", kind.name, kind.limits), func(t *testing.T) {
			limits := counter.MustLimits("30/m, 20/h, 7/d")[3-kind.limits:]
			c := kind.make(t, b.setting(limits))
			for round := range 20 {
				key := fmt.Sprint("key", round)
				if c.ready != nil {
					require.NoError(t, c.ready(key))
				}
				var admitted atomic.Int64
				var all sync.WaitGroup
				for range 12 {
					all.Go(func() {
						if err := c.hit(key); err == nil {
							admitted.Add(1)
						} else if !errors.Is(err, errRefused) {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if kind.limits == 0 {
					require.EqualValues(t, 12, admitted.Load())
					continue
				}
				require.EqualValues(t, 7, admitted.Load())
				require.ErrorIs(t, c.hit(key), errRefused)
				require.ErrorIs(t, c.refused(key), errRefused)
			}
		})
	}
}
