package backend_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/stretchr/testify/require"
)

// optional has the optional interfaces of stores, by name.
var optional = map[string]reflect.Type{
	"Atomic":    reflect.TypeFor[backend.Atomic](),
	"Checker":   reflect.TypeFor[backend.Checker](),
	"Forgetter": reflect.TypeFor[backend.Forgetter](),
	"Local":     reflect.TypeFor[backend.Local](),
}

// A new optional interface of the package must be known to Wrap and to this
// test: else Wrap would silently lose the interface.
func TestOptionalInterfacesAreKnown(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
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
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, inspect)
	}
	require.ElementsMatch(t, append(slices.Collect(maps.Keys(optional)), "Placer"), found)
}

// A wrapped store tells the servers of a backend.Placer, and of any other store none.
func TestWrapKeepsServers(t *testing.T) {
	through := func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error { return do(ctx) }
	for want, store := range map[string]backend.Store{"k's server": placed{}, "": plain{}} {
		require.Equal(t, want, backend.Wrap(backend.Wrap(store, through), through).(backend.Placer).ServerOf("k"))
	}
}

type placed struct{ plain }

func (placed) ServerOf(key string) string { return key + "'s server" }

type plain struct{ err error }

func (p plain) Do(_ context.Context, r *backend.Request) error {
	for i := range r.Add {
		r.Add[i].Count = 7
	}
	return p.err
}

type atomicPart struct{}

func (atomicPart) Take(_ context.Context, r *backend.TakeRequest) error {
	r.Allowed = true
	return nil
}
func (atomicPart) Together(keys []backend.TakeKey) bool { return len(keys) < 3 }

type forgetPart struct{}

func (forgetPart) Forget(context.Context, *backend.ForgetRequest) error { return nil }
func (forgetPart) Forgotten(context.Context, string, time.Time, time.Time) (int64, error) {
	return 42, nil
}

type localPart struct{}

func (localPart) Local() {}

type checkPart struct{}

func (checkPart) CheckServers(_ context.Context, r *backend.CheckRequest) error {
	return r.Found(backend.Server{Name: "a:1", Ahead: time.Minute})
}
func (checkPart) Report() backend.Report { return backend.Report{LateAnswers: 42} }

// stores are a store for each set of optional interfaces.
var stores = []backend.Store{
	plain{},
	struct {
		plain
		atomicPart
	}{},
	struct {
		plain
		forgetPart
	}{},
	struct {
		plain
		atomicPart
		forgetPart
	}{},
	struct {
		plain
		localPart
	}{},
	struct {
		plain
		atomicPart
		localPart
	}{},
	struct {
		plain
		forgetPart
		localPart
	}{},
	struct {
		plain
		atomicPart
		forgetPart
		localPart
	}{},
	struct {
		plain
		checkPart
	}{},
	struct {
		plain
		atomicPart
		checkPart
	}{},
	struct {
		plain
		forgetPart
		checkPart
	}{},
	struct {
		plain
		atomicPart
		forgetPart
		checkPart
	}{},
	struct {
		plain
		localPart
		checkPart
	}{},
	struct {
		plain
		atomicPart
		localPart
		checkPart
	}{},
	struct {
		plain
		forgetPart
		localPart
		checkPart
	}{},
	struct {
		plain
		atomicPart
		forgetPart
		localPart
		checkPart
	}{},
}

func TestWrapKeepsWhatAStoreCan(t *testing.T) {
	require.Len(t, stores, 1<<len(optional))
	sets := map[int]bool{}
	through := func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error { return do(ctx) }
	for _, store := range stores {
		set := 0
		wrapped := backend.Wrap(backend.Wrap(store, through), through)
		for i, name := range slices.Sorted(maps.Keys(optional)) {
			of := optional[name]
			has := reflect.TypeOf(store).Implements(of)
			require.Equal(t, has, reflect.TypeOf(wrapped).Implements(of), "%T: %s", store, name)
			if has {
				set |= 1 << i
			}
		}
		sets[set] = true
	}
	require.Len(t, sets, 1<<len(optional))
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
	s := backend.Wrap(stores[15], func(ctx context.Context, trip *backend.Trip, do func(context.Context) error) error {
		err := do(ctx)
		trips = append(trips, *trip)
		return err
	})
	slots, spans := make([]backend.Slot, 3), []backend.Span{{Counts: make([]int64, 60)}, {Counts: make([]int64, 24)}}
	require.NoError(t, s.Do(ctx, &backend.Request{N: 1, Add: slots, Read: spans, Deadline: deadline}))
	require.NoError(t, s.Do(ctx, &backend.Request{N: -1, Add: slots}))
	require.NoError(t, s.Do(ctx, &backend.Request{Read: spans}))
	a := s.(backend.Atomic)
	require.NoError(t, a.Take(ctx, &backend.TakeRequest{Keys: make([]backend.TakeKey, 2), Deadline: deadline}))
	require.NoError(t, a.Take(ctx, &backend.TakeRequest{Keys: make([]backend.TakeKey, 1), Peek: true}))
	require.True(t, a.Together(make([]backend.TakeKey, 2)))
	require.False(t, a.Together(make([]backend.TakeKey, 3)))
	f := s.(backend.Forgetter)
	require.NoError(t, f.Forget(ctx, &backend.ForgetRequest{Deadline: deadline}))
	label, err := f.Forgotten(ctx, "k", time.Now(), deadline)
	require.NoError(t, err)
	require.EqualValues(t, 42, label)
	c := s.(backend.Checker)
	check := backend.CheckRequest{Skew: time.Second, Deadline: deadline}
	require.ErrorIs(t, c.CheckServers(ctx, &check), backend.ErrCondition)
	require.Len(t, check.Servers, 1)
	require.Equal(t, backend.Report{LateAnswers: 42}, c.Report())
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
	require.Equal(t, "unknown", backend.Kind(99).String())
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
