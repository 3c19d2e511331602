package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/tiers"
)

// A random life of a key, against a list of its hits: callers with clocks apart,
// hits of every weight, busy and quiet times, hits taken back. Time passes for
// the stored keys as well, so a time to live that is too short is found. Two runs
// of three lose leaves, and now and then a root, at any moment: then never fewer
// hits may be counted than the remaining roots have met. In the third run
// several clocks are set back as well, by as much as a tier is kept.
func TestRandomLives(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	seed := seedOf(t)
	for i, ladder := range []string{
		"1s:1d, 1m:1d, 1h:1d",
		"1s:1h",
		"1s:10s, 10s:10m, 10m:1d",
		"1ms:20s, 10ms:20s, 100ms:20s, 1s:20s, 10s:200s",
		"1s:1m, 1m:1h, 1h:31d, 1d:366d",
		"1s:40d, 1d:366d",
		"1ms:4d, 1s:4d, 1h:4d",
	} {
		for loss := range 3 {
			t.Run(fmt.Sprint(ladder, "/", loss), func(t *testing.T) {
				client := raw(t, addr)
				require.NoError(t, client.FlushDB(ctx).Err())
				life := &life{
					store: open(t, "redis://"+addr), server: client, ladder: mustLadder(t, ladder),
					rand: rand.New(rand.NewPCG(seed, uint64(3*i+loss))), lossy: loss > 0, wild: loss == 2,
					now: time.Date(2026, 3, 2, 22, 59, 30, 0, time.UTC).UnixNano(),
				}
				life.begin()
				for step := range long.Rounds(150, 2000) {
					if err := life.step(); err != nil {
						t.Fatalf("step %d: %v", step, err)
					}
				}
				require.Positive(t, life.admitted)
			})
		}
	}
}

// life is the key, and the hits that the key should hold.
type life struct {
	store  sums
	server *goredis.Client
	ladder tiers.Ladder
	rand   *rand.Rand
	lossy  bool // keys are evicted
	wild   bool // clocks are set back, and nothing expires

	now    int64 // the true time
	slack  time.Duration
	groups []lifeGroup
	hits   []lifeHit // that can be taken back
	pace   time.Duration
	off    int64 // of clocks that are wrong
	heavy  int64

	admitted int
}

// lifeGroup is a run of tiers with one Keep.
type lifeGroup struct {
	tiers []int
	hits  map[int64]int64 // by bucket of the finest
	made  map[int64]int64 // the true time of the last hit, by bucket
	stale int64           // what is older may be gone
}

type lifeHit struct{ label, n int64 }

func (l *life) begin() {
	for i := range l.ladder.Len() {
		if n := len(l.groups); n > 0 && l.ladder.At(i).Keep == l.ladder.At(i-1).Keep {
			l.groups[n-1].tiers = append(l.groups[n-1].tiers, i)
			continue
		}
		l.groups = append(l.groups, lifeGroup{tiers: []int{i}, hits: map[int64]int64{}, made: map[int64]int64{}, stale: -1 << 62})
	}
	l.slack = []time.Duration{0, l.ladder.At(0).Width / 2, 5 * l.ladder.At(0).Width, 100 * l.ladder.At(0).Width}[l.rand.IntN(4)]
	l.pace = l.ladder.At(0).Width
}

func (l *life) ttl(i int) time.Duration {
	return l.ladder.At(i).Width + l.ladder.At(i).Keep + 2*l.slack
}

// age lets time pass, for the stored keys too, and evicts a few keys.
func (l *life) age(d time.Duration) error {
	l.now += int64(d)
	leaf, all, roots := 0., 0., 0.
	if l.lossy {
		leaf, all, roots = 0.01, 0.005, 0.0005
	}
	keys, err := l.server.Keys(ctx, "*").Result()
	if err != nil {
		return err
	}
	slices.Sort(keys)
	lose := l.rand.Float64() < all
	asked, answers := l.server.Pipeline(), make([]*goredis.DurationCmd, len(keys))
	for i, key := range keys {
		answers[i] = asked.PTTL(ctx, key)
	}
	if _, err := asked.Exec(ctx); err != nil {
		return err
	}
	aged := l.server.Pipeline()
	for i, key := range keys {
		_, leafOf, isLeaf := strings.Cut(key, "}")
		isLeaf = isLeaf && strings.Contains(leafOf, ":")
		if isLeaf && (lose || l.rand.Float64() < leaf) || !isLeaf && l.rand.Float64() < roots {
			if !isLeaf {
				clear(l.groups[leafOf[0]-'P'].hits)
				l.hits = nil
			}
			aged.Del(ctx, key)
			continue
		}
		left := answers[i].Val()
		if left == -2 { // expired since
			continue
		}
		if left <= 0 {
			return fmt.Errorf("%s has no time to live: %s", key, left)
		}
		if d == 0 || l.wild {
			continue
		}
		// The test itself may take a tenth of a second.
		if left -= d - min(d, 100*time.Millisecond); left <= 0 {
			aged.Del(ctx, key)
		} else {
			aged.PExpire(ctx, key, left)
		}
	}
	_, err = aged.Exec(ctx)
	return err
}

func (l *life) step() error {
	if l.rand.IntN(150) == 0 { // another time of the day
		l.pace = time.Duration(float64(l.ladder.At(0).Width) * []float64{0.01, 0.3, 1, 1, 2, 3, 300, 5000}[l.rand.IntN(8)])
		l.heavy = []int64{1, 1, 1, 3, 200, 1 << 17, 1 << 33, 1 << 40}[l.rand.IntN(8)]
	}
	d := time.Duration(l.rand.Int64N(int64(2*l.pace) + 1))
	if l.rand.IntN(1000) == 0 {
		d = time.Duration(l.rand.Int64N(int64(l.ladder.At(l.ladder.Len() - 1).Keep)))
	}
	if err := l.age(d); err != nil {
		return err
	}
	label := l.now - l.rand.Int64N(int64(l.slack)/2+1)
	if l.wild {
		if l.rand.IntN(100) == 0 {
			l.off = 0
			if l.rand.IntN(2) == 0 {
				l.off = -l.rand.Int64N(int64(l.ladder.At(l.rand.IntN(l.ladder.Len())).Keep))
			}
		}
		if l.rand.IntN(2) == 0 {
			label += l.off
		}
	}
	if len(l.hits) > 0 && l.rand.IntN(8) == 0 {
		return l.takeBack(label)
	}
	return l.take(label, 1+l.rand.Int64N(max(1, l.heavy)))
}

// drop lets a call with a label drop what is older than the life of a bucket.
func (l *life) drop(label int64) {
	for i := range l.groups {
		g := &l.groups[i]
		last := g.tiers[len(g.tiers)-1]
		width, coarse := l.ladder.At(g.tiers[0]).Width, l.ladder.At(last).Width
		g.stale = max(g.stale, tiers.Index(label-int64(l.ttl(last)), coarse)*int64(coarse/width))
	}
}

func (l *life) add(label, n int64) {
	if n > 0 {
		l.drop(label)
	}
	for i := range l.groups {
		g := &l.groups[i]
		width, coarse := l.ladder.At(g.tiers[0]).Width, l.ladder.At(g.tiers[len(g.tiers)-1]).Width
		at := tiers.Index(label, width)
		if g.hits[at] = max(0, g.hits[at]+n); g.hits[at] == 0 {
			delete(g.hits, at)
		}
		if n > 0 {
			g.made[at] = l.now
		}
		for old := range g.hits {
			if old < g.stale-int64(10000*coarse/width) {
				delete(g.hits, old)
			}
		}
	}
}

func (l *life) takeBack(label int64) error {
	i := max(0, len(l.hits)-1-l.rand.IntN(1+l.rand.IntN(300)))
	h := l.hits[i]
	l.hits = slices.Delete(l.hits, i, i+1)
	op := &backend.Request{Key: "k", Ladder: l.ladder, Now: time.Unix(0, label), N: -h.n}
	for j, b := range l.ladder.Buckets(time.Unix(0, h.label)) {
		op.Add = append(op.Add, backend.Slot{Bucket: b, TTL: l.ttl(j)})
	}
	l.add(h.label, -h.n)
	l.drop(label)
	return l.store.Do(context.Background(), op)
}

func (l *life) take(label, n int64) error {
	t := &backend.TakeRequest{Now: time.Unix(0, label), Peek: l.rand.IntN(5) == 0, Exact: l.rand.IntN(2) == 0}
	var least, most []int64
	room := true
	demand := backend.TakeKey{Key: []byte("k"), N: n, Ladder: l.ladder}
	for i := range l.ladder.Len() {
		demand.TTLs = append(demand.TTLs, l.ttl(i))
	}
	for range 1 + l.rand.IntN(3) {
		g := l.groups[l.rand.IntN(len(l.groups))]
		tier := l.ladder.At(g.tiers[0])
		per := tier.Width + time.Duration(l.rand.Int64N(int64(tier.Keep-tier.Width)+1))
		if l.rand.IntN(2) == 0 {
			per = tier.Keep
		}
		edge := tiers.Index(label-int64(per)-int64(l.slack), tier.Width)
		var low, high int64
		for at, hits := range g.hits {
			if at >= edge {
				high += hits
				if at >= g.stale && l.now-g.made[at] <= int64(l.ttl(g.tiers[0])) {
					low += hits
				}
			}
		}
		limit := n + l.rand.Int64N(max(1, 2*high+2))
		if l.rand.IntN(4) > 0 {
			limit = backend.MaxCount
		}
		least, most = append(least, low), append(most, high)
		room = room && low+n <= limit
		demand.Windows = append(demand.Windows, backend.Window{Max: limit, Reach: per + l.slack, Finest: g.tiers[0]})
	}
	t.Keys = []backend.TakeKey{demand}
	err := l.store.Take(context.Background(), t)
	if l.wild && errors.Is(err, backend.ErrStaleLabel) {
		t.AnyLabel = true
		err = l.store.Take(context.Background(), t)
	}
	if err != nil {
		return err
	}
	for i, w := range t.Keys[0].Windows {
		if w.Count < least[i] {
			return fmt.Errorf("window %v of %s at %d: counted %d, of %d that live", w.Reach, l.ladder.At(w.Finest), label, w.Count, least[i])
		}
		if bounded := t.Allowed && !t.Peek && !t.Exact; !l.lossy && !bounded && w.Count > most[i] {
			return fmt.Errorf("window %v of %s at %d: counted %d, there are %d", w.Reach, l.ladder.At(w.Finest), label, w.Count, most[i])
		}
	}
	if t.Allowed && !room {
		return fmt.Errorf("admitted over Max")
	}
	if !t.Allowed || t.Peek {
		return nil
	}
	l.admitted++
	l.add(label, n)
	l.hits = append(l.hits, lifeHit{label, n})
	if len(l.hits) > 2000 {
		l.hits = l.hits[1000:]
	}
	return nil
}
