package memcache_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// forgetting returns the request of a Counter on the default ladder at
// halfPast.
func forgetting(key string) *backend.ForgetRequest {
	f := &backend.ForgetRequest{Key: key, Ladder: tiers.Default, Now: halfPast, Label: halfPast.UnixNano(), Remember: 26 * time.Hour}
	for _, t := range tiers.Default.Tiers() {
		f.TTLs = append(f.TTLs, t.Width+t.Keep+time.Second)
	}
	return f
}

// fill makes n hits, every apart and the last at halfPast, some thousand in a
// request.
func fill(t testing.TB, s *memcache.Store, key string, n int, every time.Duration) (items int) {
	counts := map[tiers.Bucket]int64{}
	for i := range n {
		for _, b := range tiers.Default.Buckets(halfPast.Add(-time.Duration(i) * every)) {
			counts[b]++
		}
	}
	byCount := map[int64][]backend.Slot{}
	for b, n := range counts {
		byCount[n] = append(byCount[n], backend.Slot{Bucket: b, TTL: 26 * time.Hour})
	}
	for n, slots := range byCount {
		for len(slots) > 0 {
			part := slots[:min(1000, len(slots))]
			slots = slots[len(part):]
			require.NoError(t, s.Do(context.Background(), adding(key, n, part...)))
		}
	}
	return len(counts)
}

// held is the number of buckets of a key with hits in the day before halfPast.
func held(t testing.TB, s *memcache.Store, key string) (buckets int) {
	t.Helper()
	for _, width := range []time.Duration{time.Second, time.Minute, time.Hour} {
		last := tiers.Index(halfPast.UnixNano(), width)
		for _, n := range read(t, s, key, width, last-int64(25*time.Hour/width), int(25*time.Hour/width)+1) {
			buckets += int(min(n, 1))
		}
	}
	return buckets
}

func TestEveryByteOfAMark(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	const key = "ab:16CTp:signup:ip:203.0.113.9"
	f := forgetting(key)
	f.Label = 1772407833000000001
	until := time.Now().Add(f.Remember)
	require.NoError(t, s.Forget(context.Background(), f))
	const name = "add65afc067d677brhvEqoT671OS9TaJYfwphxWceqYOn1fiMgvhsWOvS2I|forgotten"
	item := try.To(rawClient(addr).Get(name))(t)
	var label, seconds int64
	try.To(fmt.Sscan(string(item.Value), &label, &seconds))(t)
	require.Equal(t, f.Label, label)
	require.InDelta(t, until.Unix(), seconds, 2)
	require.Equal(t, "1", stat(t, addr, "curr_items"), "and nothing else")
	require.InDelta(t, (f.Remember + time.Minute).Seconds(), left(t, addr, name), 5)

	older := *f
	older.Label, older.Remember = f.Label-1, f.Remember+time.Hour
	require.NoError(t, s.Forget(context.Background(), &older))
	require.Equal(t, f.Label, try.To(s.Forgotten(context.Background(), f))(t), "an older one may last longer")

	require.NoError(t, rawClient(addr).Set(&gomemcache.Item{Key: name, Value: []byte("soon")}))
	require.EqualError(t, try.Err(s.Forgotten(context.Background(), f)), "memcache: "+addr+": get marker: holds \"soon\", want a label and a second")
	require.EqualError(t, s.Forget(context.Background(), f), "memcache: "+addr+": get marker: holds \"soon\", want a label and a second")
}

// A Forget of a key with a few hits does not look into all 86,400 seconds of
// the day.
func TestForgettingASparseKey(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	fill(t, s, "k", 3, 3*time.Hour)
	before := number(t, stat(t, addr, "cmd_get"))
	require.NoError(t, s.Forget(context.Background(), forgetting("k")))
	read := number(t, stat(t, addr, "cmd_get")) - before
	require.Less(t, read, int64(30+3*60+3*60+20))
	// memcached drops the items later; nobody finds them any more.
	require.Contains(t, []string{"9", "10"}, stat(t, addr, "cas_hits"), "three seconds, minutes and hours, and the mark if its second has changed")
	require.NoError(t, s.Forget(context.Background(), forgetting("k")))
	require.LessOrEqual(t, number(t, stat(t, addr, "cas_hits")), int64(12), "the marker, which is remembered for a second more")
}

// Hits between the reading and the emptying of a bucket stay; and a full server
// that must not evict has no room for the new item of a cas.
func TestHitsBetweenReadingAndEmptying(t *testing.T) {
	for name, row := range map[string]struct {
		value, cas string
		asked      []string
		err        string
	}{
		"nobody":        {"7", "STORED", nil, ""},
		"gone":          {"7", "NOT_FOUND", nil, ""},
		"a hit":         {"7 ", "EXISTS", []string{"decr k|1m1 7"}, ""},
		"a hit on none": {"0", "EXISTS", nil, ""},
		"no room":       {"1", "SERVER_ERROR out of memory storing object", []string{"decr k|1m1 1"}, ""},
		"nonsense":      {"7", "MOVED", nil, "cas: "},
		"not a count":   {"x", "", nil, `get bucket 1m1: holds "x", want a count`},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFake(t, false, func(line string) string {
				switch {
				case strings.HasPrefix(line, "gets ") && strings.Contains(line+" ", " k|1m1 "):
					return fmt.Sprintf("VALUE k|1m1 0 %d 42\r\n%s\r\nEND\r\n", len(row.value), row.value)
				case strings.HasPrefix(line, "gets "):
					return "END\r\n"
				case strings.HasPrefix(line, "add "):
					return "STORED\r\n"
				case strings.HasPrefix(line, "cas "):
					return row.cas + "\r\n"
				}
				return "1\r\n"
			})
			s := newStore(t, memcache.Config{}, server.addr)
			ladder := try.To(tiers.Parse("1m:10m"))(t)
			at := time.Unix(90, 0)
			err := s.Forget(context.Background(), &backend.ForgetRequest{Key: "k", Ladder: ladder, TTLs: []time.Duration{11 * time.Minute}, Now: at, Label: at.UnixNano(), Remember: time.Hour})
			if row.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "memcache: "+server.addr+": "+row.err)
			}
			var asked []string
			for _, line := range server.asked() {
				if strings.HasPrefix(line, "cas ") && row.cas != "" {
					require.Equal(t, "cas k|1m1 0 2592001 1 42 0", line)
				} else if strings.HasPrefix(line, "decr") {
					asked = append(asked, line)
				}
			}
			require.Equal(t, row.asked, asked)
		})
	}
}

// stepwise calls before in front of each write.
type stepwise struct {
	net.Conn
	before func()
}

func (c stepwise) Write(b []byte) (int, error) {
	c.before()
	return c.Conn.Write(b)
}

// A hit between any two steps of a Forget stays in no finer tier without the coarser
// ones, and another Forget finds it; so it is with a Forget and hits in between.
func TestForgetAmidOtherCalls(t *testing.T) {
	addr := servertest.Memcached(t)
	near := newStore(t, memcache.Config{}, addr)
	var step, last atomic.Int64
	var between func()
	s := newStore(t, memcache.Config{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return stepwise{conn, func() {
			if step.Add(1) == last.Load() {
				between()
			}
		}}, err
	}}, addr)
	hit := func(key string, at time.Time) {
		r := adding(key, 1)
		for _, b := range tiers.Default.Buckets(at) {
			r.Add = append(r.Add, backend.Slot{Bucket: b, TTL: 26 * time.Hour})
		}
		require.NoError(t, near.Do(context.Background(), r))
	}
	forget := func(s *memcache.Store, key string) {
		require.NoError(t, s.Forget(context.Background(), forgetting(key)))
	}
	left := func(key string) (sums []int64) { // of each tier
		for i, width := range []time.Duration{time.Second, time.Minute, time.Hour} {
			sums = append(sums, 0)
			for _, n := range read(t, near, key, width, tiers.Index(halfPast.Add(-2*time.Minute).UnixNano(), width), int(4*time.Minute/width)+2) {
				sums[i] += n
			}
		}
		return sums
	}
	for what, amid := range map[string]func(key string){
		"a hit of a second that is there": func(key string) { hit(key, halfPast) },
		"a hit of another second":         func(key string) { hit(key, halfPast.Add(time.Second)) },
		"a hit of another minute":         func(key string) { hit(key, halfPast.Add(time.Minute)) },
		"a Forget and hits":               func(key string) { forget(near, key); hit(key, halfPast); hit(key, halfPast.Add(time.Second)) },
	} {
		t.Run(what, func(t *testing.T) {
			for done := false; !done; done = step.Load() < last.Load() {
				key := fmt.Sprint("ab:", strings.ReplaceAll(what, " ", ""), last.Load())
				between = func() { amid(key) }
				for range 2 {
					hit(key, halfPast)
				}
				hit(key, halfPast.Add(-time.Minute))
				last.Add(1)
				step.Store(0)
				forget(s, key)
				sums := left(key)
				if what != "a Forget and hits" {
					require.IsNonDecreasing(t, sums, "after step %d of a Forget: %s", last.Load(), what)
				}
				forget(near, key)
				require.Equal(t, []int64{0, 0, 0}, left(key), "after step %d of a Forget: %s, and another Forget; before: %v", last.Load(), what, sums)
			}
			require.Greater(t, last.Load(), int64(7))
			last.Store(0)
		})
	}
}

// After a Forget that failed in the middle, a second Forget removes the rest.
func TestForgettingAgain(t *testing.T) {
	addr := servertest.Memcached(t)
	proxy := servertest.NewProxy(t, addr, 0)
	s := newStore(t, memcache.Config{}, proxy.Addr)
	items := fill(t, s, "k", 10_000, 7*time.Second)
	for i := range 3 {
		failed := make(chan error, 1)
		go func() { failed <- s.Forget(context.Background(), forgetting("k")) }()
		require.Eventually(t, func() bool { return number(t, stat(t, addr, "cas_hits")) > int64(1000*(i+1)) }, patience, time.Millisecond)
		proxy.DropReplies(true)
		require.Eventually(t, func() bool {
			proxy.Cut()
			return len(failed) > 0
		}, patience, time.Millisecond)
		require.Error(t, <-failed)
		proxy.DropReplies(false)
	}
	require.NoError(t, s.Forget(context.Background(), forgetting("k")))
	require.Zero(t, held(t, s, "k"), "of %d items are left after three failures", items)
}

// Nothing leads to a second whose minute is gone, and a search by counts does not
// find a second that counts 0. An Erase finds both, and the items that outlive
// their bucket by the slack of their expiry, at the server of the key and in one
// day's worth of names.
func TestEraseFindsWhatNothingLeadsTo(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	const key, other = "ab:16CTp:signup:ip:203.0.113.9", "ab:16CTp:signup:ip:203.0.113.8"
	f, ctx := forgetting(key), context.Background()
	seconds := long.Rounds(21_600, 86_400) // of whole hours
	items := seconds + seconds/60 + 1 + seconds/3600 + 1
	for _, key := range []string{key, other} {
		require.Equal(t, items, fill(t, s, key, seconds, time.Second))
	}
	var names []string
	for i, tier := range f.Ladder.Tiers() {
		for _, age := range []time.Duration{f.TTLs[i] + time.Minute, tier.Keep - f.TTLs[i]} {
			slot := backend.Slot{Bucket: tiers.Bucket{Width: tier.Width, Index: tiers.Index(halfPast.Add(-age).UnixNano(), tier.Width)}, TTL: f.TTLs[i]}
			require.NoError(t, s.Do(ctx, adding(key, 1, slot)))
			require.NoError(t, s.Do(ctx, adding(key, -1, slot)))
		}
	}
	client := rawClient(addr)
	for hour := range int64(seconds / 4320) {
		names = append(names, fmt.Sprintf("%s|1h%d", key, tiers.Index(halfPast.UnixNano(), time.Hour)-hour))
	}
	for minute := range int64(seconds / 86) {
		names = append(names, fmt.Sprintf("%s|1m%d", key, tiers.Index(halfPast.UnixNano(), time.Minute)-minute))
	}
	for _, name := range names {
		require.NoError(t, client.Delete(name))
	}
	f.Erase = true
	began := time.Now()
	require.NoError(t, s.Forget(ctx, f))
	t.Logf("%s to erase %d items", time.Since(began), items)
	require.NotContains(t, try.To(contents(t, addr))(t), key)
	// A dump may miss items that memcached moves meanwhile.
	require.Equal(t, items, held(t, s, other))
	began = time.Now()
	require.NoError(t, s.Forget(ctx, f))
	t.Logf("%s to erase a key without an item", time.Since(began))
}

// Before a server joined, the items of a key were on another one.
func TestEraseAsksAllServers(t *testing.T) {
	addrs := []string{servertest.Memcached(t), servertest.Memcached(t)}
	s := newStore(t, memcache.Config{}, addrs...)
	const key = "ab:16CTp:signup:ip:203.0.113.9"
	f := forgetting(key)
	for _, addr := range addrs {
		fill(t, newStore(t, memcache.Config{}, addr), key, 5, time.Minute)
	}
	f.Erase = true
	require.NoError(t, s.Forget(context.Background(), f))
	marks := 0
	for _, addr := range addrs {
		all := try.To(contents(t, addr))(t)
		require.NotContains(t, all, key)
		marks += strings.Count(all, "|forgotten\n")
	}
	require.Equal(t, 1, marks)
}
