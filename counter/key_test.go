package counter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	memstore "github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func makers(t testing.TB) map[string]keyMaker {
	made := map[string]keyMaker{}
	for name, secret := range map[string]string{"plain": "", "secret": "s3cret"} {
		m := try.To(newKeyMaker("", tiers.Default.String(), []byte(secret)))(t)
		made[name] = m
	}
	return made
}

func requireClean(t *testing.T, stored string) {
	require.NotEmpty(t, stored)
	require.LessOrEqual(t, len(stored), maxStoredKey)
	for i := range len(stored) {
		if b := stored[i]; b <= ' ' || b >= 0x7f || b == '{' || b == '}' {
			require.Failf(t, "a key that is not clean", "byte %q in %q", b, stored)
		}
	}
}

func TestKeysAreReadable(t *testing.T) {
	m := makers(t)["plain"]
	require.Equal(t, "ab:16CTp:signup:ip:203.0.113.9", string(m.append(nil, Key{"signup", "ip:203.0.113.9"})))
	require.Equal(t, "ab:16CTp:a%3Ab:c%20%25%7B%7D%FF", string(m.append(nil, Key{"a:b", "c %{}\xff"})))
	plain := "ab:16CTp:e:" + strings.Repeat("f", 189)
	require.Equal(t, plain, string(m.append(nil, Key{"e", plain[len("ab:16CTp:e:"):]})), "of 200 bytes")
	longest := "ab:16CTp#" + strings.Repeat("e", 147) + ":"
	require.Equal(t, longest, string(m.append(nil, Key{strings.Repeat("e", 147), strings.Repeat("f", 44)})[:len(longest)]), "of 200 bytes with the digest")
}

// Neighbours that a careless grammar would confuse, every pair of short keys over an
// alphabet of the grammar's own letters, and every byte: no two have the same stored form.
func TestKeysNeverMeet(t *testing.T) {
	alphabet := []string{"a", ":", "%", "!", "#", "$", "3A", " ", "{", "\xff", "\x00"}
	var words []string
	for _, a := range alphabet[:long.Rounds(6, 11)] {
		for _, b := range alphabet {
			words = append(words, a+b)
		}
	}
	for b := 0; b < 256; b += long.Rounds(5, 1) {
		words = append(words, string([]byte{byte(b)}))
	}
	many := strings.Repeat("x", 300)
	words = append(words, many, many+"y", "y"+many, strings.Repeat("%", 180), strings.Repeat(" ", 180), strings.Repeat("\xff", 1<<14))
	for name, m := range makers(t) {
		t.Run(name, func(t *testing.T) {
			seen := map[string]Key{}
			for _, event := range words {
				for _, feature := range words {
					k := Key{event, feature}
					stored := string(m.append(nil, k))
					requireClean(t, stored)
					if other, met := seen[stored]; met {
						require.Failf(t, "keys meet", "%q and %q in %q", k, other, stored)
					}
					seen[stored] = k
				}
			}
		})
	}
}

func TestSecretHidesTheFeature(t *testing.T) {
	m := makers(t)["secret"]
	stored := string(m.append(nil, Key{"signup", "203.0.113.9"}))
	require.Contains(t, stored, "signup")
	require.NotContains(t, stored, "203")
	other := try.To(newKeyMaker("", tiers.Default.String(), []byte("another")))(t)
	require.NotEqual(t, stored, string(other.append(nil, Key{"signup", "203.0.113.9"})))
	digest := func(k Key) string {
		s := string(m.append(nil, k))
		return s[strings.LastIndexByte(s, ':')+1:]
	}
	require.NotEqual(t, digest(Key{"signup", "x"}), digest(Key{"login", "x"}), "events must not be linked by a feature")
	require.NotEqual(t, digest(Key{"ab", "c"}), digest(Key{"a", "bc"}))
}

func TestLaddersAndPrefixesDoNotMeet(t *testing.T) {
	seen := map[string]bool{}
	for _, prefix := range []string{"", "x", "x1", "16CTp"} {
		for _, ladder := range []string{"1s:1d", "1s:2d", "1s:1d,1m:1d"} {
			l := try.To(tiers.Parse(ladder))(t)
			m := try.To(newKeyMaker(prefix, l.String(), nil))(t)
			stored := string(m.append(nil, Key{"e", "f"}))
			require.False(t, seen[stored])
			seen[stored] = true
		}
	}
	for _, prefix := range []string{"a:b", "a b", "{a}", "%", "\n", "é", strings.Repeat("p", 33)} {
		require.ErrorContains(t, try.Err(newKeyMaker(prefix, tiers.Default.String(), nil)), fmt.Sprintf("Config.Prefix is %q", prefix))
	}
}

func TestKeysCostNothing(t *testing.T) {
	m := makers(t)["plain"]
	buf := make([]byte, 0, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = m.append(buf[:0], Key{"signup", "203.0.113.9"}) }))
}

func FuzzKey(f *testing.F) {
	f.Add("a:b", "c", "a", "b:c")
	f.Add("a%", "3Ab", "a", "%3Ab")
	f.Add(strings.Repeat("e", 150), strings.Repeat("f", 150), strings.Repeat("e", 151), strings.Repeat("f", 149))
	m, _ := newKeyMaker("", tiers.Default.String(), nil)
	f.Fuzz(func(t *testing.T, e1, f1, e2, f2 string) {
		a, b := string(m.append(nil, Key{e1, f1})), string(m.append(nil, Key{e2, f2}))
		requireClean(t, a)
		require.Equal(t, e1 == e2 && f1 == f2, a == b, "%q %q", a, b)
	})
}

// farStore is a memory store at the end of a wire, without an atomic step.
type farStore struct{ backend.Store }

// farAtomic is a memory store at the end of a wire.
type farAtomic struct{ backend.Atomic }

// Denials and settled buckets are remembered by key, alone and with other keys;
// after an Erase the process has no memory with the feature, and others keep
// theirs.
func TestEraseClearsTheMemoryOfTheProcess(t *testing.T) {
	here := memstore.New(memstore.Config{})
	for least, store := range map[int]backend.Store{2: farStore{here}, 3: farAtomic{here}} {
		ctx, limits := context.Background(), MustLimits("2/m, 5/d")
		ada, bob := Ask{Key: Key{"login", "email:ada@example.org"}, N: 1, Limits: limits}, Ask{Key: Key{"login", "email:bob@example.org"}, N: 1, Limits: limits}
		c := try.To(New(store, Config{}))(t)
		text := func() string { return strings.Join(textsOf(nil, map[uintptr]bool{}, reflect.ValueOf(c)), "\n") }
		for range 3 {
			for _, asks := range [][]Ask{{ada}, {bob}, {ada, bob}, {bob, ada}} {
				try.To(c.TakeAll(ctx, asks...))(t)
			}
		}
		lines := 0
		for line := range strings.Lines(text()) {
			if strings.Contains(line, "ada@") {
				lines++
			}
		}
		require.GreaterOrEqual(t, lines, least, "by itself, and settled or with bob")
		require.NoError(t, c.Erase(ctx, ada.Key))
		require.NotContains(t, text(), "ada@")
		require.Contains(t, text(), "bob@")
		require.True(t, try.To(c.Take(ctx, ada.Key, 1, limits))(t).Allowed)
	}
}

// textsOf returns the texts that a value leads to, but for those in a sync.Pool, which
// forgets by itself.
func textsOf(texts []string, seen map[uintptr]bool, v reflect.Value) []string {
	switch v.Kind() {
	case reflect.String:
		texts = append(texts, v.String())
	case reflect.Interface:
		texts = textsOf(texts, seen, v.Elem())
	case reflect.Pointer:
		if !v.IsNil() && !seen[v.Pointer()] {
			seen[v.Pointer()] = true
			texts = textsOf(texts, seen, v.Elem())
		}
	case reflect.Map:
		for each := v.MapRange(); each.Next(); {
			texts = textsOf(textsOf(texts, seen, each.Key()), seen, each.Value())
		}
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			return append(texts, string(v.Bytes()))
		}
		for i := range v.Len() {
			texts = textsOf(texts, seen, v.Index(i))
		}
	case reflect.Struct:
		if t := v.Type(); strings.HasPrefix(t.Name(), "Pointer[") { // of sync/atomic
			if at := v.FieldByName("v").UnsafePointer(); at != nil {
				return textsOf(texts, seen, reflect.NewAt(t.Field(0).Type.Elem().Elem(), at))
			}
			return texts
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.Type() != reflect.TypeFor[sync.Pool]() && f.Type() != reflect.TypeFor[backend.Store]() && f.Type() != reflect.TypeFor[backend.Atomic]() {
				texts = textsOf(texts, seen, f)
			}
		}
	}
	return texts
}

// A store that has nothing but Do cannot delete, and says so.
func TestEraseOfDoAlone(t *testing.T) {
	c := try.To(New(backend.FromDo(memstore.New(memstore.Config{}).Do), Config{}))(t)
	err := c.Erase(context.Background(), Key{"login", "email:ada@example.org"})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NotErrorIs(t, err, ErrStore)
	require.NotContains(t, err.Error(), "ada")
}
