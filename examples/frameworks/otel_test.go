package frameworks_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/limiter"
)

// withTelemetry makes a span of each round trip of a store, below the span of the
// caller, and measures the time of the trip. Neither has a key. An error of the
// store names a server, and no feature.
func withTelemetry(store backend.Store, tracer trace.Tracer, meter metric.Meter) (backend.Store, error) {
	seconds, err := meter.Float64Histogram("abacus.trip.duration", metric.WithUnit("s"), metric.WithDescription("time of a round trip of the store"))
	if err != nil {
		return nil, err
	}
	return backend.Wrap(store, func(ctx context.Context, trip *backend.Trip, do func(context.Context) error) error {
		ctx, span := tracer.Start(ctx, "abacus "+trip.Kind.String(), trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.Int("abacus.keys", trip.Keys), attribute.Int("abacus.buckets", trip.Buckets)))
		defer span.End()
		began := time.Now()
		err := do(ctx)
		answered := backend.Answered(err)
		if !answered {
			span.RecordError(err)
			span.SetStatus(codes.Error, "no answer")
		}
		seconds.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(attribute.String("abacus.trip", trip.Kind.String()), attribute.Bool("abacus.answered", answered)))
		return err
	}), nil
}

// countDecisions returns a limiter.Config.Observe that counts decisions by event,
// kind and outcome. Each set of attributes is made once.
func countDecisions(meter metric.Meter) (func(limiter.Decision), error) {
	total, err := meter.Int64Counter("abacus.decisions", metric.WithDescription("decisions of the limiter"))
	if err != nil {
		return nil, err
	}
	type decided struct {
		event, kind string
		outcome     limiter.Outcome
	}
	var bound sync.Map // from decided to []metric.AddOption
	return func(d limiter.Decision) {
		of := decided{d.Event, d.Kind, d.Outcome}
		options, has := bound.Load(of)
		if !has {
			set := attribute.NewSet(attribute.String("abacus.event", d.Event), attribute.String("abacus.kind", d.Kind), attribute.String("abacus.outcome", d.Outcome.String()))
			options, _ = bound.LoadOrStore(of, []metric.AddOption{metric.WithAttributeSet(set)})
		}
		total.Add(context.Background(), 1, options.([]metric.AddOption)...)
	}, nil
}

// On Redis a decision by two features is one round trip with telemetry as well: the
// store keeps its atomic step.
func TestOpenTelemetry(t *testing.T) {
	server := servertest.StartRedis(t)
	plain, err := redis.Open("redis://"+server.Addr, redis.Config{IOTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { plain.Close() })

	spans := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("abacus")
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("abacus")
	store, err := withTelemetry(plain, tracer, meter)
	require.NoError(t, err)
	observe, err := countDecisions(meter)
	require.NoError(t, err)
	c, err := counter.New(store, counter.Config{Patience: 20 * time.Second})
	require.NoError(t, err)
	lim, err := limiter.New(c, limiter.Config{
		Rules: []limiter.Rule{
			{Event: "signup", Kind: "ip", Limits: counter.MustLimits("2/h")},
			{Event: "signup", Kind: "email", Limits: counter.MustLimits("5/h")},
		},
		DecideWithin: 20 * time.Second,
		Observe:      observe,
	})
	require.NoError(t, err)

	ctx, request := tracer.Start(t.Context(), "POST /signup")
	for range 2 {
		v, err := lim.Allow(ctx, "signup", feature.IP(netip.MustParseAddr("192.0.2.1")), feature.Email("ada@example.org"))
		require.NoError(t, err)
		require.True(t, v.Allowed, "%v", v.Degraded)
	}
	request.End()
	trips := spans.GetSpans()
	require.Len(t, trips, 3, "a trip for each decision, and the request")
	for _, trip := range trips[:2] {
		require.Equal(t, "abacus take", trip.Name)
		require.Equal(t, request.SpanContext().SpanID(), trip.Parent.SpanID())
		require.Contains(t, trip.Attributes, attribute.Int("abacus.keys", 2))
		require.Equal(t, codes.Unset, trip.Status.Code)
	}

	spans.Reset()
	server.Kill()
	v, err := lim.Allow(ctx, "signup", feature.IP(netip.MustParseAddr("192.0.2.2")), feature.Email("grace@example.org"))
	require.NoError(t, err)
	require.False(t, v.Allowed)
	require.True(t, errors.Is(v.Degraded, counter.ErrStore))
	require.Equal(t, codes.Error, spans.GetSpans()[0].Status.Code)

	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.WithoutCancel(ctx), &all))
	counted, measured := map[string]int64{}, map[bool]uint64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				outcome, _ := p.Attributes.Value("abacus.outcome")
				counted[outcome.AsString()] += p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				answered, _ := p.Attributes.Value("abacus.answered")
				measured[answered.AsBool()] += p.Count
			}
		}
	}
	require.Equal(t, map[string]int64{"admitted": 2, "failed-closed": 1}, counted)
	require.Equal(t, map[bool]uint64{true: 2, false: 1}, measured)
}
