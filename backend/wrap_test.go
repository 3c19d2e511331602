package backend_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// optional has the optional interfaces of stores, by name, and whether a store is one.
var optional = map[string]func(backend.Store) bool{
	"Atomic": is[backend.Atomic],
	"Local":  is[backend.Local],
	"Placer": is[backend.Placer],
}

func is[T backend.Store](s backend.Store) bool {
	t, ok := backend.As[T](s)
	return ok && any(t) == any(s)
}

// A new optional interface of the package must have a place in Wrap and in this
// test: else Wrap would silently lose the interface.
func TestOptionalInterfacesAreKnown(t *testing.T) {
	names := try.To(filepath.Glob("*.go"))(t)
	var found []string
	inspect := func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.InterfaceType); ok {
			for _, method := range of.Methods.List {
				if name, ok := method.Type.(*ast.Ident); ok && name.Name == "Store" && len(method.Names) == 0 {
					found = append(found, spec.Name.Name)
				}
			}
		}
		return true
	}
	for _, name := range names {
		file := try.To(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t)
		ast.Inspect(file, inspect)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(optional)), found)
}

// plain is a store without optional interfaces.
type plain struct{ err error }

func (p plain) Do(_ context.Context, r *backend.Request) error {
	for i := range r.Add {
		r.Add[i].Count = 7
	}
	return p.err
}

func (plain) Forget(context.Context, *backend.ForgetRequest) error { return nil }

func (plain) Forgotten(context.Context, *backend.ForgetRequest) (int64, error) { return 42, nil }

func (plain) CheckServers(_ context.Context, r *backend.CheckRequest) error {
	return r.Found(backend.Server{Name: "a:1", Ahead: time.Minute})
}

func (plain) Report() backend.Report { return backend.Report{LateAnswers: 42} }

type atomic struct{ plain }

func (atomic) Take(_ context.Context, r *backend.TakeRequest) error {
	r.Allowed = true
	return nil
}

func (atomic) Together(keys []backend.TakeKey) bool { return len(keys) < 3 }

type placed struct{ backend.Store }

func (placed) ServerOf(key string) string { return key + "'s server" }

type atomicPlaced struct{ atomic }

func (atomicPlaced) ServerOf(key string) string { return placed{}.ServerOf(key) }

// A wrapped store is what the store inside is, and nothing else.
func TestWrapKeepsWhatAStoreCan(t *testing.T) {
	through := func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error { return do(ctx) }
	for want, store := range map[string]backend.Store{
		"":              plain{},
		"Atomic":        atomic{},
		"Local":         struct{ backend.Local }{memory.New(memory.Config{})},
		"Placer":        placed{plain{}},
		"Atomic Placer": atomicPlaced{},
		"Atomic Local":  memory.New(memory.Config{}),
	} {
		for _, s := range []backend.Store{store, backend.Wrap(store, through), backend.Wrap(backend.Wrap(store, through), through)} {
			var has []string
			for _, name := range slices.Sorted(maps.Keys(optional)) {
				if optional[name](s) {
					has = append(has, name)
				}
			}
			require.Equal(t, want, strings.Join(has, " "), "%T", s)
			if placer, ok := backend.As[backend.Placer](s); ok {
				require.Equal(t, "k's server", placer.ServerOf("k"))
			}
			if local, ok := backend.As[backend.Local](s); ok {
				require.True(t, local.Keeps())
				if s != store {
					require.Nil(t, local.Bind(s, nil))
				}
			}
		}
	}
}

// A wrapped store is held to the contract of all stores.
func TestConformance(t *testing.T) {
	backendtest.Run(t, func(testing.TB) backend.Store {
		return backend.Wrap(memory.New(memory.Config{}), func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error { return do(ctx) })
	})
}

func TestTripsAreTold(t *testing.T) {
	ctx := context.Background()
	deadline := time.Now().Add(time.Hour)
	var trips []backend.Trip
	s := backend.Wrap(atomic{}, func(ctx context.Context, trip *backend.Trip, do func(context.Context) error) error {
		err := do(ctx)
		trips = append(trips, *trip)
		return err
	})
	slots, spans := make([]backend.Slot, 3), []backend.Span{{Counts: make([]int64, 60)}, {Counts: make([]int64, 24)}}
	require.NoError(t, s.Do(ctx, &backend.Request{N: 1, Add: slots, Read: spans, Deadline: deadline}))
	require.NoError(t, s.Do(ctx, &backend.Request{N: -1, Add: slots}))
	require.NoError(t, s.Do(ctx, &backend.Request{Read: spans}))
	a, ok := backend.As[backend.Atomic](s)
	require.True(t, ok)
	require.NoError(t, a.Take(ctx, &backend.TakeRequest{Keys: make([]backend.TakeKey, 2), Deadline: deadline}))
	require.NoError(t, a.Take(ctx, &backend.TakeRequest{Keys: make([]backend.TakeKey, 1), Peek: true}))
	require.True(t, a.Together(make([]backend.TakeKey, 2)))
	require.False(t, a.Together(make([]backend.TakeKey, 3)))
	require.NoError(t, s.Forget(ctx, &backend.ForgetRequest{Deadline: deadline}))
	require.EqualValues(t, 42, try.To(s.Forgotten(ctx, &backend.ForgetRequest{Deadline: deadline}))(t))
	check := backend.CheckRequest{Skew: time.Second, Deadline: deadline}
	require.ErrorIs(t, s.CheckServers(ctx, &check), backend.ErrCondition)
	require.Len(t, check.Servers, 1)
	require.Equal(t, backend.Report{LateAnswers: 42}, s.Report())
	require.Equal(t, []backend.Trip{
		{Kind: backend.KindAdd, Keys: 1, Buckets: 87, Deadline: deadline},
		{Kind: backend.KindTakeBack, Keys: 1, Buckets: 3},
		{Kind: backend.KindRead, Keys: 1, Buckets: 84},
		{Kind: backend.KindTake, Keys: 2, Deadline: deadline, Allowed: true},
		{Kind: backend.KindPeek, Keys: 1, Allowed: true},
		{Kind: backend.KindForget, Keys: 1, Deadline: deadline},
		{Kind: backend.KindForgotten, Keys: 1, Deadline: deadline},
		{Kind: backend.KindCheck, Keys: 1, Deadline: deadline},
	}, trips)
	require.Equal(t, "take back", backend.KindTakeBack.String())
}

// A Slot of a refused trip must not report an addition, which would be taken
// back.
func TestARefusedTripAddsNothing(t *testing.T) {
	refused := errors.New("refused")
	s := backend.Wrap(plain{}, func(context.Context, *backend.Trip, func(context.Context) error) error { return refused })
	slots := []backend.Slot{{Count: 5}, {Count: 6}}
	require.ErrorIs(t, s.Do(context.Background(), &backend.Request{N: 1, Add: slots}), refused)
	require.Equal(t, []backend.Slot{{}, {}}, slots)
}

// A retry in an Around would count twice.
func TestATripIsMadeOnce(t *testing.T) {
	s := backend.Wrap(plain{errors.New("lost")}, func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error {
		if do(ctx) != nil {
			return do(ctx)
		}
		return nil
	})
	require.ErrorContains(t, s.Do(context.Background(), &backend.Request{N: 1, Add: make([]backend.Slot, 1)}), "twice")
}

func TestAnswered(t *testing.T) {
	require.True(t, backend.Answered(nil))
	require.True(t, backend.Answered(errors.Join(backend.ErrStaleLabel)))
	require.True(t, backend.Answered(errors.Join(backend.ErrMaxCount)))
	require.False(t, backend.Answered(errors.New("reset by peer")))
}
