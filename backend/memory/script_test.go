package memory

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "run the one script of this seed")
	scriptsFlag = flag.Int("scripts", 0, "how many random scripts to run, 40 or in the long form 100 by default")
)

// A script is random calls against the model. What a script is about (how many
// keys, which ladders, how far clocks are apart, how small the store is) is
// drawn first, so that rare things are common in some of them.
type script struct {
	rnd     *rand.Rand
	store   *Store
	now     int64
	wobble  int64 // clocks are apart by up to this
	step    int64 // time passes by up to this per call
	keys    int
	long    bool // TTLs that last
	huge    bool // counts near the end of 63 bits
	steady  int  // TTL of every tier in widths, with calls like those of a Counter, mostly of one key; 0: calls of any kind
	ladders []tiers.Ladder
}

var scriptLadders = []string{
	"1s:1m", "1s:1m, 10s:1m", "1s:1d, 1m:1d, 1h:1d", "100ms:2s, 1s:1m, 1m:1h", "1s:10s, 5s:1m, 1m:10m, 1h:10h, 1d:10d",
	"100ms:10s, 1s:1m, 2s:1m, 10s:10m, 1m:1h, 2m:1h, 1h:10d, 2h:10d",
	"1ms:20ms, 10ms:200ms, 100ms:2s, 1s:20s, 10s:200s, 100s:2000s, 1000s:20000s, 10000s:20000s",
}

func newScript(src rand.Source, t testing.TB) *script {
	rnd := rand.New(src)
	pick := func(of ...int64) int64 { return of[rnd.IntN(len(of))] }
	const second = int64(time.Second)
	g := &script{
		rnd:    rnd,
		now:    pick(0, 1362000000*second, -200*365*86400*second, 1772000000*second),
		wobble: pick(0, 0, second/2, 5*second, 100*second),
		step:   pick(0, second/100, second/2, 3*second, 200*second, 7200*second),
		keys:   int(pick(1, 3, 30)),
		long:   rnd.IntN(3) > 0,
		huge:   rnd.IntN(8) == 0,
		steady: int(pick(0, 20, 300, 3000)),
	}
	for range 1 + rnd.IntN(2) {
		l := try.To(tiers.Parse(scriptLadders[rnd.IntN(len(scriptLadders))]))(t)
		g.ladders = append(g.ladders, l)
	}
	max := pick(0, 0, 0, 60, 200, 600, 2000)
	g.store = New(Config{MaxBuckets: int(max), Full: Policy(rnd.IntN(2))})
	return g
}

func (g *script) next() call {
	g.now += g.rnd.Int64N(g.step + 1)
	if g.rnd.IntN(200) == 0 {
		g.now += g.rnd.Int64N(int64(48 * time.Hour))
	}
	now := time.Unix(0, g.now-g.rnd.Int64N(g.wobble+1))
	if g.rnd.IntN(3) > 0 {
		return call{take: g.taking(now), short: g.rnd.IntN(4) > 0}
	}
	return call{op: g.op(now)}
}

// key is one that is counted on ladder number l.
func (g *script) key(l int) string {
	k := fmt.Sprint("ladder", l, "key", g.rnd.IntN(g.keys))
	switch k[len(k)-1] {
	case '0', '3', '6': // too long for an entry
		return strings.Repeat("-", 70) + k
	case '1', '4', '7': // too long for the first cache line
		return strings.Repeat("-", 50) + k
	}
	return k
}

func (g *script) ttl(width time.Duration) time.Duration {
	if g.steady > 0 {
		return time.Duration(g.steady) * width
	}
	if g.long {
		return 24*24*time.Hour + width
	}
	return time.Duration(1+g.rnd.IntN(30)) * width
}

func (g *script) n() int64 {
	if g.huge && g.rnd.IntN(4) == 0 {
		return backend.MaxCount >> g.rnd.IntN(4)
	}
	return 1 + g.rnd.Int64N(3)
}

func (g *script) taking(now time.Time) *backend.TakeRequest {
	number := g.rnd.IntN(len(g.ladders))
	l := g.ladders[number]
	t := &backend.TakeRequest{Now: now, Peek: g.rnd.IntN(5) == 0}
	slack := time.Duration(g.rnd.Int64N(g.wobble + 1))
	n := g.n()
	most := 1 + g.rnd.IntN(3)*g.rnd.IntN(2)*g.rnd.IntN(4)
	if g.steady > 0 && g.rnd.IntN(4) > 0 {
		most = 1
	}
	for range most {
		if g.steady == 0 && g.rnd.IntN(4) == 0 {
			number = g.rnd.IntN(len(g.ladders))
			l = g.ladders[number]
		}
		d := backend.TakeKey{Key: []byte(g.key(number)), N: n, Ladder: l, Soft: g.rnd.IntN(6) == 0}
		switch g.rnd.IntN(8) {
		case 0:
			d.N = 0
		case 1:
			d.N = g.n()
		}
		for i := range l.Len() {
			d.TTLs = append(d.TTLs, g.ttl(l.At(i).Width))
		}
		twice := false
		for _, other := range t.Keys {
			twice = twice || string(other.Key) == string(d.Key)
		}
		if twice {
			continue
		}
		for range 1 + g.rnd.IntN(3) {
			fine := g.rnd.IntN(l.Len())
			top := fine + g.rnd.IntN(l.Len()-fine)
			per := time.Duration(1+g.rnd.IntN(3)) * l.At(top).Width * time.Duration(1+g.rnd.IntN(2)*g.rnd.IntN(100))
			w := backend.Window{Max: d.N + g.rnd.Int64N(10), Reach: per + slack, Finest: fine}
			if g.rnd.IntN(3) == 0 || w.Max < 0 {
				w.Max = math.MaxInt64
			}
			d.Windows = append(d.Windows, w)
		}
		t.Keys = append(t.Keys, d)
	}
	return t
}

func (g *script) op(now time.Time) *backend.Request {
	number := g.rnd.IntN(len(g.ladders))
	l := g.ladders[number]
	op := &backend.Request{Key: g.key(number), Ladder: l, Now: now, N: g.n()}
	switch g.rnd.IntN(6) {
	case 0, 1:
		op.N = -op.N
	case 2:
		op.N = 0
	}
	// All tiers of an instant, of up to two instants: additions name all tiers.
	for range g.rnd.IntN(3) {
		fine := l.At(g.rnd.IntN(l.Len())).Width
		if g.steady > 0 && g.rnd.IntN(10) > 0 {
			fine = 0 // the label of the call
		}
		label := now.Add(fine * time.Duration(g.rnd.IntN(2)*g.rnd.IntN(3)-g.rnd.IntN(2)*g.rnd.IntN(30)))
		buckets := l.Buckets(label)
		if slices.ContainsFunc(op.Add, func(other backend.Slot) bool { return slices.Contains(buckets, other.Bucket) }) || op.N < 0 && len(op.Add) > 0 {
			continue
		}
		for _, b := range buckets {
			op.Add = append(op.Add, backend.Slot{Bucket: b, TTL: g.ttl(b.Width), Count: 7})
		}
	}
	for range g.rnd.IntN(3) {
		w := l.At(g.rnd.IntN(l.Len())).Width
		n := g.rnd.IntN(100)
		op.Read = append(op.Read, backend.Span{Width: w, First: tiers.Index(now.UnixNano(), w) - g.rnd.Int64N(100), Counts: make([]int64, n)})
		for i := range n {
			op.Read[len(op.Read)-1].Counts[i] = -1
		}
	}
	return op
}

// play runs a script of n calls.
func (g *script) play(t testing.TB, name string, n int) {
	m := newModel()
	for i := range n {
		c := g.next()
		require.NoError(t, c.run(g.store, m), "%s: MaxBuckets %d, policy %d, call %d: %s", name, g.store.max, g.store.policy, i, c)
		requireSound(t, g.store)
	}
}

func scripts() int { return cmp.Or(*scriptsFlag, long.Rounds(40, 100)) }

func TestAgainstModel(t *testing.T) {
	play := func(t *testing.T, seed uint64) {
		newScript(rand.NewPCG(seed, 0), t).play(t, fmt.Sprintf("replay with -run TestAgainstModel -seed %d", seed), 100+int(seed%8)*int(seed%8)*30)
	}
	if *seedFlag != 0 {
		play(t, *seedFlag)
		return
	}
	play(t, 18055010239914498022) // finds a wrong life of a late hit, which few scripts find
	const lanes = 4
	for lane := range lanes {
		first := rand.Uint64() &^ 7 // scripts of each length in each lane
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			for i := range (scripts() + lanes - 1) / lanes {
				play(t, first+uint64(i))
			}
		})
	}
}

// bytes as a source of chance: the fuzzer changes the script by changing them.
type bytesSource struct {
	data []byte
	rest rand.Source
}

func (b *bytesSource) Uint64() uint64 {
	if len(b.data) == 0 {
		return b.rest.Uint64()
	}
	v := uint64(b.data[0]) * 0x9e3779b97f4a7c15
	b.data = b.data[1:]
	return v
}

func FuzzStore(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), uint64(1))
	f.Add([]byte(strings.Repeat("\x00\xff\x80", 100)), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		g := newScript(&bytesSource{data, rand.NewPCG(seed, 1)}, t)
		g.play(t, fmt.Sprintf("bytes %q, seed %d", data, seed), 20+min(len(data)/8, 300))
	})
}
