package memory

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func snapshotOf(t testing.TB, s *Store) []byte {
	var b bytes.Buffer
	require.NoError(t, s.Snapshot(&b))
	return b.Bytes()
}

// contents is all that decides of a store, as text: by key, and of the shards
// the latest expiry.
func contents(s *Store) map[string]string {
	all, dropped := map[string]string{}, int64(never)
	for i := range s.shards {
		sh := &s.shards[i]
		dropped = max(dropped, sh.dropped)
		for _, at := range sh.table.slots {
			if at.e == nil {
				continue
			}
			var b strings.Builder
			fmt.Fprintf(&b, "dropped %d mixed %v", at.e.dropped, at.e.mixed)
			for k, t := range at.e.layout.tiers() {
				fmt.Fprintf(&b, "; %d for %d:", t.width, t.ttl)
				r := at.e.ring(k)
				for j := range r.size() {
					start, upTo := r.at(j)
					fmt.Fprint(&b, " ", start, " ", upTo)
				}
			}
			all["key "+string(at.e.key())] = b.String()
		}
	}
	all["shards"] = fmt.Sprint(dropped)
	return all
}

// requireUntouched fails unless s is as New has made it.
func requireUntouched(t testing.TB, s *Store) {
	require.Zero(t, s.Stats())
	for i := range s.shards {
		require.EqualValues(t, never, s.shards[i].dropped)
	}
	requireSound(t, s)
}

// TestRestoredGoesOn plays random scripts, each with a restart in the middle: the
// model, which knows nothing of the restart, must not notice.
func TestRestoredGoesOn(t *testing.T) {
	for range scripts() {
		seed := rand.Uint64()
		g := newScript(rand.NewPCG(seed, 2), t)
		m := newModel()
		for range 3 {
			for range 60 {
				require.NoError(t, g.next().run(g.store, m), "seed %d", seed)
			}
			before := g.store
			g.store = New(Config{MaxBuckets: int(before.max), Full: before.policy, Reserve: int(cmp.Or(before.kept, -1))})
			require.NoError(t, g.store.Restore(bytes.NewReader(snapshotOf(t, before))), "seed %d", seed)
			require.Equal(t, contents(before), contents(g.store), "seed %d", seed)
			require.LessOrEqual(t, g.store.Stats().Buckets, before.Stats().Buckets)
			requireSound(t, g.store)
		}
	}
}

// damageable is a snapshot with all that a record can have: several ladders, long
// rings, expired buckets, a marker, a long key.
func damageable(t testing.TB) []byte {
	s := New(Config{})
	ctx := context.Background()
	for i := range 3 {
		for j := range 6 {
			require.NoError(t, s.Take(ctx, taking(t, []string{dayLadder, "1s:1m, 1m:1h", scriptLadders[5]}[i],
				strings.Repeat("k", 1+40*i), noon.Add(time.Duration(j)*time.Minute), counter.Limit{Max: 9, Per: time.Minute})))
		}
	}
	require.NoError(t, s.Take(ctx, taking(t, dayLadder, "forgotten", noon, counter.Limit{Max: 9, Per: time.Minute})))
	require.NoError(t, s.Forget(ctx, &backend.ForgetRequest{Key: "forgotten", Now: noon, Label: noon.UnixNano(), Remember: day}))
	return snapshotOf(t, s)
}

func TestDamageIsNoticed(t *testing.T) {
	whole := damageable(t)
	t.Logf("%d bytes", len(whole))
	s := New(Config{})
	refuse := func(r io.Reader, what string, at int) {
		err := s.Restore(r)
		require.Error(t, err, "%s %d", what, at)
		if at != 8*len(snapshotMagic) && !strings.Contains(err.Error(), "version") {
			require.ErrorIs(t, err, ErrDamaged, "%s %d", what, at)
		}
	}
	for n := range whole {
		refuse(bytes.NewReader(whole[:n]), "cut at", n)
	}
	for bit := range 8 * len(whole) {
		damaged := slices.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		refuse(bytes.NewReader(damaged), "bit", bit)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		damaged := slices.Clone(whole)
		for range 1 + rnd.IntN(8) {
			damaged[rnd.IntN(len(damaged))] ^= byte(1 + rnd.IntN(255))
		}
		if !bytes.Equal(damaged, whole) {
			refuse(bytes.NewReader(damaged), "round", i)
		}
	}
	refuse(io.MultiReader(bytes.NewReader(whole), strings.NewReader("\n")), "one byte more", 0)
	requireUntouched(t, s)
	require.NoError(t, s.Restore(iotest.OneByteReader(bytes.NewReader(whole))))
	requireSound(t, s)
}

func TestErrorsOfASnapshotAreClear(t *testing.T) {
	whole := damageable(t)
	s := New(Config{})
	require.EqualError(t, s.Restore(strings.NewReader("")), "memory: Restore: the snapshot is damaged: the end is missing")
	require.EqualError(t, s.Restore(strings.NewReader("{\"keys\": 3}")), `memory: Restore: the snapshot is damaged: it begins with "{\"keys\"", want "abacusm"`)
	later := slices.Clone(whole)
	later[len(snapshotMagic)] = 1
	err := s.Restore(bytes.NewReader(later))
	require.EqualError(t, err, "memory: Restore: the snapshot is of version 1, want 3: another release has written it; "+
		"move it away to count from zero, or go on with that release until its longest window has passed")
	require.NotErrorIs(t, err, ErrDamaged)
	require.EqualError(t, s.Restore(bytes.NewReader(whole[:len(whole)-1])), "memory: Restore: the snapshot is damaged: the end is missing")

	broken := errors.New("read: input/output error")
	err = s.Restore(io.MultiReader(bytes.NewReader(whole[:100]), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, ErrDamaged)
	requireUntouched(t, s)

	require.NoError(t, s.Restore(bytes.NewReader(whole)))
	before := contents(s)
	require.EqualError(t, s.Restore(bytes.NewReader(whole)), "memory: Restore: the store has been used, want a new one")
	require.Equal(t, before, contents(s))

	full := errors.New("no space left on device")
	for room := range len(snapshotOf(t, s)) {
		require.ErrorIs(t, s.Snapshot(&shortWriter{room, full}), full)
	}
}

// shortWriter has room for so many bytes.
type shortWriter struct {
	room int
	err  error
}

func (w *shortWriter) Write(p []byte) (int, error) {
	if len(p) > w.room {
		return w.room, w.err
	}
	w.room -= len(p)
	return len(p), nil
}

// framed makes a snapshot of the contents of blocks, with the right checksums.
func framed(contents ...[]byte) []byte {
	var b bytes.Buffer
	b.WriteString(snapshotMagic)
	b.WriteByte(snapshotVersion)
	out, enc := bufio.NewWriter(&b), encoder{}
	for _, enc.buf = range contents {
		_ = enc.block(out)
	}
	_ = out.Flush()
	return b.Bytes()
}

// unframed undoes framed.
func unframed(snapshot []byte) (contents [][]byte) {
	for rest := snapshot[len(snapshotMagic)+1:]; len(rest) > 0; {
		n := lengthBytes + sumBytes + int(binary.BigEndian.Uint64(rest))
		contents = append(contents, slices.Clone(rest[lengthBytes+sumBytes:n]))
		rest = rest[n+sumBytes:]
	}
	return contents
}

func numbers(v ...uint64) (b []byte) {
	for _, n := range v {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// TestForgedContents has blocks with the right checksums that no Snapshot writes.
func TestForgedContents(t *testing.T) {
	const huge, contradiction = 1 << 40, "its content contradicts itself"
	second, noon := uint64(time.Second), uint64(1<<33)
	// a key named k of one tier, of seconds, until its number of buckets
	head := func(more ...uint64) []byte {
		return append(numbers(1, second, 1, 1, 'k', 0, 0), numbers(more...)...)
	}
	end := numbers(0, 0)
	_, marker := New(Config{}).marker("ab:k")
	forgotten := append(numbers(1, 1, 1<<40, uint64(len(marker))), marker...)
	for name, row := range map[string]struct {
		blocks [][]byte
		want   string
	}{
		"nothing":               {nil, "the end is missing"},
		"no end":                {[][]byte{head(1, noon, 1)}, "the end is missing"},
		"no tiers":              {[][]byte{numbers(0)}, contradiction},
		"a trillion tiers":      {[][]byte{numbers(huge, second, 1)}, contradiction},
		"width 0":               {[][]byte{numbers(1, 0, 1)}, contradiction},
		"a width twice":         {[][]byte{numbers(2, second, 1, second, 2)}, contradiction},
		"the widest of widths":  {[][]byte{numbers(2, math.MaxInt64, 1, 1, 2)}, contradiction},
		"a TTL below 0":         {[][]byte{numbers(1, second, math.MaxUint64)}, contradiction},
		"a long number":         {[][]byte{bytes.Repeat([]byte{255}, 20)}, contradiction},
		"a cut number":          {[][]byte{{255}}, contradiction},
		"a long key":            {[][]byte{numbers(1, second, 1, huge)}, contradiction},
		"neither mixed nor not": {[][]byte{numbers(1, second, 1, 1, 'k', 2)}, contradiction},
		"no bucket":             {[][]byte{head(0), end}, contradiction},
		"a trillion buckets":    {[][]byte{head(huge, noon, 1)}, contradiction},
		"a bucket cut":          {[][]byte{head(1, noon)}, contradiction},
		"index out of range":    {[][]byte{head(1, 1<<35, 1)}, contradiction},
		"a bucket twice":        {[][]byte{head(2, noon, 1, 0, 1)}, contradiction},
		"a step too far":        {[][]byte{head(2, noon, 1, math.MaxInt64, 1)}, contradiction},
		"a step around":         {[][]byte{head(2, noon, 1, math.MaxUint64, 1)}, contradiction},
		"count 0":               {[][]byte{head(1, noon, 0)}, contradiction},
		"a count too large":     {[][]byte{head(1, noon, backend.MaxCount+1)}, contradiction},
		"a sum too large":       {[][]byte{head(2, noon, backend.MaxCount, 1, 1)}, contradiction},
		"a key twice":           {[][]byte{head(1, noon, 1), head(1, noon, 1), end}, contradiction},
		// The next Forget would take the place of such a memory without its cost.
		"a marker of more than a label": {[][]byte{append(forgotten, numbers(0, 0, 2, 7, 1, 1, 1)...), end}, contradiction},
		"more in the end":               {[][]byte{numbers(0, 0, 0)}, contradiction},
		"more after the end":            {[][]byte{end, end}, "bytes follow after its end"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := s.Restore(bytes.NewReader(framed(row.blocks...)))
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrDamaged)
			require.ErrorContains(t, err, row.want)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
			requireUntouched(t, s)
		})
	}
}

func FuzzRestore(f *testing.F) {
	whole := damageable(f)
	f.Add(whole, false)
	for _, content := range unframed(whole) {
		f.Add(content, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, frame bool) {
		if frame {
			data = framed(data, numbers(0, 0))
		}
		s := New(Config{MaxBuckets: 1 << 16})
		if err := s.Restore(bytes.NewReader(data)); err != nil {
			requireUntouched(t, s)
			return
		}
		requireSound(t, s)
		again := New(Config{MaxBuckets: 1 << 16})
		require.NoError(t, again.Restore(bytes.NewReader(snapshotOf(t, s))))
		require.Equal(t, contents(s), contents(again))
		l := try.To(tiers.Parse(dayLadder))(t)
		for i := range s.shards { // a restored key is one like others
			for _, at := range slices.Clone(s.shards[i].table.slots) {
				if at.e != nil {
					_ = s.Take(context.Background(), &backend.TakeRequest{Now: noon, AnyLabel: true, Keys: []backend.TakeKey{{
						Key: at.e.key(), N: 1, Ladder: l, TTLs: []time.Duration{day, day, day},
						Windows: []backend.Window{{Max: 1 << 40, Reach: time.Hour}},
					}}})
				}
			}
		}
		requireSound(t, s)
	})
}

// TestRestoreIntoASmallerStore loads 1,000 keys, the newest last, into a store
// with room for some hundred.
func TestRestoreIntoASmallerStore(t *testing.T) {
	s := New(Config{})
	for i := range 1000 {
		require.NoError(t, s.Take(context.Background(), taking(t, dayLadder, fmt.Sprint(i), noon.Add(time.Duration(i)*time.Second), counter.Limit{Max: 9, Per: time.Minute})))
	}
	snapshot := snapshotOf(t, s)
	const room = 200
	small := New(Config{MaxBuckets: room * entryCost})
	err := small.Restore(bytes.NewReader(snapshot))
	require.EqualError(t, err, "memory: Restore: 200 keys and no more fit into Config.MaxBuckets of 2800: memory: the store is full")
	require.ErrorIs(t, err, ErrFull)
	requireUntouched(t, small)

	small = New(Config{MaxBuckets: room * entryCost, Full: EvictOldest})
	require.NoError(t, small.Restore(bytes.NewReader(snapshot)))
	requireSound(t, small)
	require.Equal(t, Stats{Keys: room, Buckets: room * entryCost, Evicted: 1000 - room}, small.Stats())
	for i := range 1000 {
		require.Equal(t, i >= 1000-room, small.lookup(fmt.Sprint(i)) != nil, "key %d", i)
	}

	// A key that is larger than the whole store is not even read.
	const large = 1 << 20
	one := numbers(1, uint64(time.Second), 1, 1, 'k', 0, 0, large, 1<<33, 1)
	for range large - 1 {
		one = append(one, 1, 1)
	}
	snapshot = framed(one, numbers(0, 0))
	small = New(Config{MaxBuckets: 500, Full: EvictOldest})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.ErrorIs(t, small.Restore(bytes.NewReader(snapshot)), ErrFull)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	requireUntouched(t, small)
	require.NoError(t, New(Config{}).Restore(bytes.NewReader(snapshot)))
}

// TestKeysThatGoDuringASnapshot removes keys between the list and the look at them.
func TestKeysThatGoDuringASnapshot(t *testing.T) {
	s := New(Config{})
	for i := range 100 {
		require.NoError(t, s.Take(context.Background(), taking(t, dayLadder, fmt.Sprint(i), noon, counter.Limit{Max: 9, Per: time.Minute})))
	}
	sh := s.shard(s.hash(s.lookup("0")))
	slots := sh.list(nil)
	require.NotEmpty(t, slots)
	for i := range 100 {
		require.NoError(t, s.Forget(context.Background(), &backend.ForgetRequest{Key: fmt.Sprint(i), Now: noon, Label: 1}))
	}
	var enc encoder
	for len(slots) > 0 {
		slots = sh.encode(&enc, slots)
	}
	require.Empty(t, enc.buf)
}

// TestSnapshotOfManyLayouts has more layouts than a store remembers, of two keys each.
func TestSnapshotOfManyLayouts(t *testing.T) {
	s := New(Config{})
	for i := range 6 * maxLayouts {
		width := time.Duration(1+i/2) * time.Millisecond
		l := try.To(tiers.New(tiers.Tier{Width: width, Keep: day}))(t)
		op := &backend.Request{Key: fmt.Sprint(i), Ladder: l, Now: noon, N: 1, Add: []backend.Slot{{
			Bucket: tiers.Bucket{Width: width, Index: tiers.Index(noon.UnixNano(), width)}, TTL: day,
		}}}
		require.NoError(t, s.Do(context.Background(), op))
	}
	next := New(Config{})
	require.NoError(t, next.Restore(bytes.NewReader(snapshotOf(t, s))))
	require.Equal(t, contents(s), contents(next))
}

// TestCallsDuringARestore are calls that began with the new store before it was
// restored.
func TestCallsDuringARestore(t *testing.T) {
	whole := damageable(t)
	s := New(Config{MaxBuckets: 2000})
	require.True(t, s.reserve(1900, s.max), "by a call under way")
	require.ErrorIs(t, s.Restore(bytes.NewReader(whole)), ErrFull)
	s.spent.Store(0)
	requireUntouched(t, s)

	hit := func() {
		require.NoError(t, s.Take(context.Background(), taking(t, dayLadder, "k", noon, counter.Limit{Max: 9, Per: time.Minute})))
	}
	r := io.MultiReader(bytes.NewReader(whole[:50]), readerFunc(hit), bytes.NewReader(whole[50:]))
	require.ErrorIs(t, s.Restore(r), errUsed)
	require.Equal(t, 1, s.Stats().Keys)
	requireSound(t, s)
}

// readerFunc is called by a read, and has no bytes.
type readerFunc func()

func (f readerFunc) Read([]byte) (int, error) { f(); return 0, io.EOF }

// TestSnapshotUnderLoad writes snapshots while goroutines count, keys come and go,
// and every key's count in a snapshot must be one that the key had meanwhile.
func TestSnapshotUnderLoad(t *testing.T) {
	const keys, callers = 2000, 4
	s := New(Config{MaxBuckets: 4 * keys * entryCost, Full: EvictOldest})
	var counts [keys]struct{ begun, done atomic.Int64 }
	var wg sync.WaitGroup
	var stop atomic.Bool
	for caller := range callers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(caller), 1))
			for i := 0; !stop.Load(); i++ {
				n := rnd.IntN(keys)
				counts[n].begun.Add(1)
				if err := s.Take(context.Background(), taking(t, dayLadder, fmt.Sprint(n), noon, counter.Limit{Max: math.MaxInt32, Per: time.Minute})); err != nil {
					panic(err)
				}
				counts[n].done.Add(1)
				// Older than the counted keys, so evicted before them.
				if err := s.Take(context.Background(), taking(t, dayLadder, fmt.Sprint("old", caller, i), noon.Add(-time.Hour), counter.Limit{Max: 9, Per: time.Minute})); err != nil {
					panic(err)
				}
			}
		})
	}
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { stop.Store(true) })
	for range 20 {
		var least, most [keys]int64
		for i := range counts {
			least[i] = counts[i].done.Load()
		}
		snapshot := snapshotOf(t, s)
		for i := range counts {
			most[i] = counts[i].begun.Load()
		}
		next := New(Config{})
		require.NoError(t, next.Restore(bytes.NewReader(snapshot)))
		requireSound(t, next)
		for i := range counts {
			got := int64(0)
			if e := next.lookup(fmt.Sprint(i)); e != nil {
				got = e.finest.last.sum
			}
			require.True(t, least[i] <= got && got <= most[i], "key %d: %d in the snapshot, %d before and %d after", i, got, least[i], most[i])
		}
	}
}

// TestStoredAsDocumented has the snapshot that docs/storage.md prints.
func TestStoredAsDocumented(t *testing.T) {
	now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	s := New(Config{})
	c := try.To(counter.New(s, counter.Config{Now: func() time.Time { return now }}))(t)
	signup := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	require.NoError(t, c.Add(context.Background(), signup, 1))
	require.NoError(t, c.Add(context.Background(), signup, 2))
	now = now.Add(2 * time.Second)
	require.NoError(t, c.Add(context.Background(), signup, 1))
	require.Equal(t, "6162616375736d"+"03"+
		"0000000000000037"+"68019fd0"+
		"01"+"8094ebdc03"+"8099f8bd8ba415"+
		"1e"+hex.EncodeToString([]byte("ab:16CTp:signup:ip:203.0.113.9"))+
		"00"+"00"+
		"02"+"9d9299fb28"+"03"+"02"+"01"+
		"1b88d2a3"+
		"0000000000000002"+"32aa692e"+
		"00"+"00"+
		"63457c5e", hex.EncodeToString(snapshotOf(t, s)))
}
