package counter

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	memstore "github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

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
