package envoy_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
	"github.com/abacus-go/abacus/service/envoy"
)

// setup is a service to be tested, and its client.
type setup struct {
	store  backend.Store // default: in memory
	rules  string        // the content of the only file, unless there is a folder
	folder string
	cfg    envoy.Config
	clock  *limitertest.Clock // nil: time.Now
	server []grpc.ServerOption
}

// door is a service on a real server of gRPC.
type door struct {
	t testing.TB
	*envoy.Service
	conn *grpc.ClientConn
}

func write(t testing.TB, folder string, files map[string]string) {
	for name, content := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
}

func (s setup) new(t testing.TB) (*envoy.Service, error) {
	if s.store == nil {
		s.store = memory.New(memory.Config{})
	}
	if s.cfg.Rules = s.folder; s.folder == "" {
		s.cfg.Rules = t.TempDir()
		write(t, s.cfg.Rules, map[string]string{"rules.yaml": s.rules})
	}
	of := counter.Config{Patience: patience}
	if s.clock != nil {
		of.Now = s.clock.Now
	}
	c, err := counter.New(s.store, of)
	require.NoError(t, err)
	s.cfg.Counter, s.cfg.Limiter.Logger, s.cfg.Limiter.DecideWithin = c, slog.New(slog.DiscardHandler), cmp.Or(s.cfg.Limiter.DecideWithin, patience)
	return envoy.New(s.cfg)
}

func (s setup) open(t testing.TB) *door {
	service, err := s.new(t)
	require.NoError(t, err)
	listener, server := bufconn.Listen(1<<20), grpc.NewServer(s.server...)
	service.Register(server)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		_ = service.Close(context.Background())
	})
	return &door{t, service, conn}
}

// ask sends a request and returns the answer.
func (d *door) ask(in *pb.RateLimitRequest) *pb.RateLimitResponse {
	out, err := d.try(in)
	require.NoError(d.t, err)
	return out
}

func (d *door) try(in *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return pb.NewRateLimitServiceClient(d.conn).ShouldRateLimit(d.t.Context(), in)
}

// over reports whether a request with these descriptors in the domain d is over.
func (d *door) over(descriptors ...*common.RateLimitDescriptor) bool {
	return d.ask(of(descriptors...)).OverallCode == pb.RateLimitResponse_OVER_LIMIT
}

func of(descriptors ...*common.RateLimitDescriptor) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "d", Descriptors: descriptors}
}

// desc is a descriptor: key, value, key, value and so on.
func desc(texts ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(texts); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: texts[i], Value: texts[i+1]})
	}
	return d
}

// with returns a descriptor with hits of its own.
func with(d *common.RateLimitDescriptor, hits uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

// limited is a descriptor with a limit of its own.
func limited(d *common.RateLimitDescriptor, requests uint32, unit typev3.RateLimitUnit) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return d
}

func domain(descriptors string) string { return "domain: d\ndescriptors:\n" + descriptors }

func perHour(key string, max int) string {
	return fmt.Sprintf("- {key: %s, rate_limit: {unit: hour, requests_per_unit: %d}}\n", key, max)
}

// short writes the statuses of an answer: OVER or OK, the name of the limit, the limit, what
// is left, and the seconds until then.
func short(r *pb.RateLimitResponse) string {
	var all []string
	for _, s := range r.Statuses {
		text := strings.TrimSuffix(s.Code.String(), "_LIMIT")
		if l := s.CurrentLimit; l != nil {
			text += fmt.Sprintf(" %s%d/%s", l.Name, l.RequestsPerUnit, l.Unit)
		}
		text += fmt.Sprintf(" %d left", s.LimitRemaining)
		if s.DurationUntilReset != nil {
			text += fmt.Sprintf(" %ds", s.DurationUntilReset.Seconds)
		}
		all = append(all, text)
	}
	return strings.TrimSuffix(r.OverallCode.String(), "_LIMIT") + ": " + strings.Join(all, ", ")
}

// stores are the stores with a server of their own for the test.
func stores(t *testing.T, test func(t *testing.T, store func() backend.Store)) {
	t.Run("memory", func(t *testing.T) {
		store := memory.New(memory.Config{})
		test(t, func() backend.Store { return store })
	})
	t.Run("redis", func(t *testing.T) {
		addr := servertest.Redis(t)
		test(t, func() backend.Store {
			store, err := redis.Open("redis://"+addr+"/0", redis.Config{IOTimeout: patience})
			require.NoError(t, err)
			t.Cleanup(func() { _ = store.Close() })
			return store
		})
	})
	t.Run("memcached", func(t *testing.T) {
		addr := servertest.Memcached(t)
		test(t, func() backend.Store {
			store, err := memcache.New(memcache.Config{IOTimeout: patience}, addr)
			require.NoError(t, err)
			t.Cleanup(func() { _ = store.Close() })
			return store
		})
	})
}

// An answer has a status for each descriptor, by the protocol.
func TestAnswer(t *testing.T) {
	clock := &limitertest.Clock{}
	d := setup{clock: clock, rules: domain(`
- key: user
  rate_limit: {unit: minute, requests_per_unit: 2, name: users}
  descriptors:
  - {key: path, value: /up, rate_limit: {unit: DAY, requests_per_unit: 1}}
- {key: user, value: root, rate_limit: {unlimited: true}}
- {key: none, rate_limit: {unit: week, requests_per_unit: 0}}
- {key: silent, rate_limit: }
- {key: both, rate_limit: {limits: "3/s, 4/10m"}}
- {key: plan, rate_limit: {limits: "2 per month in Europe/Berlin, 9/h"}}
- {key: large, rate_limit: {limits: 5000000000/d}}
- {key: month, rate_limit: {unit: month, requests_per_unit: 4294967295}}
`)}.open(t)
	for _, row := range []struct {
		in      *pb.RateLimitRequest
		advance time.Duration // before
		want    string
	}{
		{in: of(desc("user", "7")), want: "OK: OK users2/MINUTE 1 left 61s"},
		{in: of(desc("user", "7"), desc("other", "7")), want: "OK: OK users2/MINUTE 0 left 61s, OK 0 left"},
		{in: of(desc("user", "7"), desc("user", "8")), advance: 20 * time.Second, want: "OVER: OVER users2/MINUTE 0 left 41s, OK users2/MINUTE 2 left 0s"},
		{in: of(desc("user", "8")), want: "OK: OK users2/MINUTE 1 left 61s"},
		{in: of(desc("user", "root")), want: "OK: OK 4294967295 left"},
		{in: of(desc("none", "")), want: "OVER: OVER 0/WEEK 0 left 604800s"},
		{in: of(desc("silent", "")), want: "OK: OK 0 left"},
		{in: of(desc("user", "twice"), desc("user", "twice")), want: "OK: OK users2/MINUTE 1 left 61s, OK users2/MINUTE 1 left 61s"},
		{in: of(desc("both", "1")), want: "OK: OK 3/SECOND 2 left 2s"},
		{in: &pb.RateLimitRequest{Domain: "d", HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{desc("both", "1")}}, advance: 2 * time.Second, want: "OK: OK 3/SECOND 0 left 2s"},
		{in: of(desc("both", "1")), advance: 2 * time.Second, want: "OVER: OVER 4/UNKNOWN 0 left 597s"},
		{in: &pb.RateLimitRequest{Domain: "d", HitsAddend: 1<<32 - 1, Descriptors: []*common.RateLimitDescriptor{desc("month", "")}}, want: "OK: OK 4294967295/MONTH 0 left 2592001s"},
		{in: of(desc("large", "7")), want: "OK: OK 4294967295/DAY 4294967295 left 86401s"},
		{in: of(desc("plan", "7")), want: "OK: OK 2/UNKNOWN 1 left 2674776s"},
		{in: &pb.RateLimitRequest{Domain: "d", HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{desc("plan", "7")}}, want: "OVER: OVER 2/UNKNOWN 0 left 2682000s"},
		{in: of(desc("user", "7", "path", "/up")), want: "OK: OK 1/DAY 0 left 86401s"},
		{in: of(desc("user", "root", "path", "/up")), want: "OK: OK 0 left"},
		{in: of(desc("user", "9", "path", "/down")), want: "OK: OK 0 left"},
		{in: of(desc("user", "9", "path", "/up", "more", "")), want: "OK: OK 0 left"},
		{in: &pb.RateLimitRequest{Domain: "unknown", Descriptors: []*common.RateLimitDescriptor{desc("user", "7")}}, want: "OK: OK 0 left"},
	} {
		clock.Advance(row.advance)
		require.Equal(t, row.want, short(d.ask(row.in)), "%v", row.in)
	}
}

// Requests that are wrong are the client's error, and not one that opens a gate.
func TestWrongRequests(t *testing.T) {
	d := setup{rules: domain(perHour("user", 2) + "- {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n")}.open(t)
	many := func(key string, n int) (all []*common.RateLimitDescriptor) {
		for i := range n {
			all = append(all, desc(key, fmt.Sprint(i)))
		}
		return all
	}
	for want, in := range map[string]*pb.RateLimitRequest{
		"no domain":           {Descriptors: many("user", 1)},
		"0 descriptors":       of(),
		"101 descriptors":     of(many("user", 101)...),
		"no entries":          of(desc("user", "7"), desc()),
		"no key":              of(desc("", "7")),
		"unit UNKNOWN":        of(limited(desc("user", "7"), 1, typev3.RateLimitUnit_UNKNOWN)),
		"unit 77":             of(limited(desc("user", "7"), 1, 77)),
		"9007199254740992 hi": of(with(desc("user", "7"), 1<<53)),
		"102 keys":            of(many("shadow", 51)...),
	} {
		_, err := d.try(in)
		require.Equal(t, codes.InvalidArgument, status.Code(err), want)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, 100, len(d.ask(of(many("user", 100)...)).Statuses))
	require.Equal(t, 50, len(d.ask(of(many("shadow", 50)...)).Statuses))
	most := of(desc("user", "7"))
	most.HitsAddend = 1<<32 - 1
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, d.ask(most).OverallCode)
	negative := message(1, "d") + message(2, message(1, message(1, "user"), message(2, "7"))) + "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" // hits_addend: -1
	answer, err := d.raw([]byte(negative))
	require.NoError(t, err)
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, answer.OverallCode, "as many as 32 bits say")
	require.False(t, d.over(desc("user", "7")), "nothing wrong has counted")
}

// raw is a message whose fields are those of a request, in bytes that no client of Go makes.
func (d *door) raw(message []byte) (*pb.RateLimitResponse, error) {
	in, out := &emptypb.Empty{}, &pb.RateLimitResponse{}
	in.ProtoReflect().SetUnknown(message)
	return out, d.conn.Invoke(d.t.Context(), pb.RateLimitService_ShouldRateLimit_FullMethodName, in, out)
}

// message is the field of a message of the protocol.
func message(field byte, parts ...string) string {
	text := strings.Join(parts, "")
	return string([]byte{field<<3 | 2, byte(len(text))}) + text
}

// Values are any bytes, of any length, and no two descriptors meet.
func TestNoTwoDescriptorsMeet(t *testing.T) {
	stores(t, func(t *testing.T, store func() backend.Store) {
		d := setup{store: store(), rules: domain(perHour("k", 1) + perHour("col", 1) + perHour("col_x", 1) + "- {key: a, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]}\n" + "- {key: a.b, rate_limit: {unit: hour, requests_per_unit: 1}}\n")}.open(t)
		all := [][]string{{"col", "x_1"}, {"col_x", "1"}, {"a", "1", "b", "2"}, {"a", "12", "b", ""}, {"a", "", "b", "12"}, {"a", "1:", "b", "2"}, {"a", "1", "b", ":2"}, {"a.b", "1.2"}}
		long := strings.Repeat("x", 200_000)
		for _, value := range []string{"", " ", "a b", "\x00", "\r\nset k 0 0 1", "é", "\uFFFD", "\uFFFDff", "\uFFFDefbfbd", long, long + "y", strings.Repeat("1", 250), strings.Repeat("1", 251)} {
			all = append(all, []string{"k", value})
		}
		for round := range 2 {
			for _, texts := range all {
				require.Equal(t, round == 1, d.over(desc(texts...)), "round %d: %.40q", round, texts)
			}
			for _, value := range []string{"\xff", "\xff\xff", "a\xc0", "\xef\xbf"} {
				answer, err := d.raw([]byte(message(1, "d") + message(2, message(1, message(1, "k"), message(2, value)))))
				require.NoError(t, err)
				require.Equal(t, round == 1, answer.OverallCode == pb.RateLimitResponse_OVER_LIMIT, "%q", value)
			}
		}
	})
	d := setup{rules: domain(perHour("k", 1))}.open(t)
	for _, wrong := range []string{"\x0a", "\x0a\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", message(1, "d") + message(2, "\x0a\x05\x0a\x01")} {
		_, err := d.raw([]byte(wrong))
		require.Contains(t, []codes.Code{codes.InvalidArgument, codes.Internal}, status.Code(err), "%q", wrong)
	}
}

// Hits are those of the request, or of the descriptor: costs that are known afterwards are
// charged whatever the limit, none only ask, and negative ones are given back.
func TestHits(t *testing.T) {
	stores(t, func(t *testing.T, store func() backend.Store) {
		for mode, over := range map[string]string{"shadow_mode: false": "OVER", "shadow_mode: true": "OK", "quota_mode: true": "OVER"} {
			d := setup{store: store(), rules: domain(fmt.Sprintf("- {key: %q, %s, rate_limit: {unit: day, requests_per_unit: 10}}\n", mode, mode))}.open(t)
			key := desc(mode, "7")
			left := func(in *pb.RateLimitRequest, want string) {
				t.Helper()
				got := short(d.ask(in))
				require.Contains(t, got, want, "%s: %v", mode, in)
				require.True(t, strings.HasPrefix(got, strings.Fields(want)[0]+":"), "%s, want %s", got, want)
			}
			left(&pb.RateLimitRequest{Domain: "d", HitsAddend: 4, Descriptors: []*common.RateLimitDescriptor{key}}, "OK 10/DAY 6 left")
			left(of(key, key, key), "OK 10/DAY 5 left")
			left(of(with(desc(mode, "7"), 0)), "OK 10/DAY 5 left")
			left(of(with(desc(mode, "7"), 5)), "OK 10/DAY 0 left")
			left(of(with(desc(mode, "7"), 0)), "OK 10/DAY 0 left")
			left(of(with(desc(mode, "7"), 5)), over+" 10/DAY 0 left")
			left(of(with(desc(mode, "7"), 0)), over+" 10/DAY 0 left")
			back := with(desc(mode, "7"), 8)
			back.IsNegativeHits = true
			require.Equal(t, "OK: OK 0 left", short(d.ask(of(back))))
			left(of(with(desc(mode, "7"), 0)), "OK 10/DAY 3 left")
			one := desc(mode, "7")
			one.IsNegativeHits = true
			require.Equal(t, "OK: OK 0 left", short(d.ask(of(one))))
			left(of(with(desc(mode, "7"), 0)), "OK 10/DAY 4 left")
			require.True(t, d.over(one, limited(desc("other", ""), 0, typev3.RateLimitUnit_DAY)))
			left(of(with(desc(mode, "7"), 0)), "OK 10/DAY 4 left") // a denied request gives nothing back
		}
	})
}

// A rule in shadow_mode denies nothing, and reports as many denials as there would be. When
// it is enforced no count is lost.
func TestShadow(t *testing.T) {
	folder, clock := t.TempDir(), &limitertest.Clock{}
	rules := func(shadow bool) string {
		return domain(fmt.Sprintf("- {key: try, shadow_mode: %v, rate_limit: {unit: minute, requests_per_unit: 30}}\n", shadow) + perHour("user", 1))
	}
	write(t, folder, map[string]string{"r.yaml": rules(true)})
	denied := 0
	d := setup{folder: folder, clock: clock, cfg: envoy.Config{Every: time.Millisecond, Limiter: limiter.Config{Observe: func(of limiter.Decision) {
		if len(of.Soft) > 0 && of.Soft[0].Denied {
			denied++
		}
	}}}}.open(t)
	for range 600 { // one a second, twice what is admitted
		clock.Advance(time.Second)
		answer := d.ask(of(desc("try", "7")))
		require.Equal(t, pb.RateLimitResponse_OK, answer.OverallCode)
		require.Equal(t, pb.RateLimitResponse_OK, answer.Statuses[0].Code)
	}
	require.InDelta(t, 300, denied, 20, "of 600 in 10 minutes 10 * 30 are admitted")
	require.False(t, d.over(desc("try", "7"), desc("user", "7")))
	require.Equal(t, "OVER: OK 0 left, OVER 1/HOUR 0 left 3601s", short(d.ask(of(desc("try", "7"), desc("user", "7")))))
	write(t, folder, map[string]string{"r.yaml": rules(false)})
	require.Eventually(t, func() bool { good, _ := d.Loads(); return good == 2 }, time.Minute, time.Millisecond)
	require.True(t, d.over(desc("try", "7")), "the hits of the trial count")

	d = setup{rules: rules(true)}.open(t)
	require.True(t, d.over(limited(desc("try", "7"), 0, typev3.RateLimitUnit_MINUTE)), "limits of a request are no trial")

	d = setup{clock: clock, rules: rules(false), cfg: envoy.Config{Settings: envoy.Settings{Shadow: true}}}.open(t)
	for _, want := range []string{"OK: OK 1/HOUR 0 left 3601s", "OK: OVER 1/HOUR 0 left 3601s"} {
		require.Equal(t, want, short(d.ask(of(desc("user", "7")))))
	}
	for _, want := range []string{"OK: OK 1/DAY 0 left 86401s", "OK: OVER 1/DAY 0 left 86401s"} {
		require.Equal(t, want, short(d.ask(of(limited(desc("user", "7"), 1, typev3.RateLimitUnit_DAY)))))
	}
}

// Rules in quota_mode deny a request if all of them are over, and then nothing counts.
func TestQuota(t *testing.T) {
	stores(t, func(t *testing.T, store func() backend.Store) {
		d := setup{store: store(), cfg: envoy.Config{Settings: envoy.Settings{Metadata: true}}, rules: domain(`
- {key: one, quota_mode: true, metadata: {service: first}, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: two, quota_mode: true, metadata: {service: second, weights: [1, 2.5, true, null]}, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: three, quota_mode: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
` + perHour("user", 5))}.open(t)
		all := of(desc("one", ""), desc("two", ""), desc("user", "7"))
		for i, want := range []string{
			"OK: OK 1/DAY 0 left, OK 2/DAY 1 left, OK 5/HOUR 4 left",
			"OK: OK 1/DAY 0 left, OK 2/DAY 0 left, OK 5/HOUR 3 left",
			"OVER: OVER 1/DAY 0 left, OVER 2/DAY 0 left, OK 5/HOUR 2 left",
			"OVER: OVER 1/DAY 0 left, OVER 2/DAY 0 left, OK 5/HOUR 2 left",
		} {
			answer := d.ask(all)
			for _, s := range answer.Statuses {
				s.DurationUntilReset = nil
			}
			require.Equal(t, want, short(answer), "call %d", i)
			meta := answer.DynamicMetadata.AsMap()
			require.Equal(t, true, meta["quotaModeEnabled"])
			require.Equal(t, [][]any{nil, {0.0}, {0.0, 1.0}, {0.0, 1.0}}[i], append([]any(nil), listOf(meta["quotaModeViolations"])...))
			second := meta["descriptors"].([]any)[1].(map[string]any)["metadata"]
			if i < 2 {
				require.Equal(t, map[string]any{"service": "second", "weights": []any{1.0, 2.5, true, nil}}, second)
			} else {
				require.Nil(t, second, "of a rule that is over")
			}
		}
		require.Equal(t, "OK: OK 5/HOUR 3 left", strings.Join(strings.Fields(short(d.ask(of(with(desc("user", "7"), 0)))))[:5], " "), "a denied request counts nothing")
		require.True(t, d.over(desc("one", "")), "a rule in quota_mode alone")
		costs := func(n uint64) []*common.RateLimitDescriptor {
			return []*common.RateLimitDescriptor{with(desc("one", "costs"), n), with(desc("two", "costs"), n)}
		}
		for i, want := range []bool{false, false, false, true, true} { // 0, 2, 0, 1 and 0 hits: under 1/d and 2/d
			require.Equal(t, want, d.over(costs([]uint64{0, 2, 0, 1, 0}[i])...), "costs, call %d", i)
		}
		for range 2 {
			answer := d.ask(of(desc("three", "")))
			require.Equal(t, pb.RateLimitResponse_OK, answer.OverallCode, "in both modes")
			require.Equal(t, false, answer.DynamicMetadata.AsMap()["quotaModeEnabled"])
		}
	})
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

// Limits of the request count with the rule of the same unit, or apart. Replaced rules hold
// no more.
func TestOverridesAndReplaces(t *testing.T) {
	rules := domain(`
- {key: user, rate_limit: {unit: hour, requests_per_unit: 3, name: base}}
- {key: gold, rate_limit: {unit: hour, requests_per_unit: 5, name: gold, replaces: [{name: base}]}}
- {key: free, rate_limit: {unlimited: true, replaces: [{name: base}, {name: other}]}}
`)
	d := setup{rules: rules, clock: &limitertest.Clock{}}.open(t)
	user := func(requests uint32, unit typev3.RateLimitUnit) *common.RateLimitDescriptor {
		return limited(desc("user", "7"), requests, unit)
	}
	for i, row := range []struct {
		in   *common.RateLimitDescriptor
		want string
	}{
		{desc("user", "7"), "OK: OK base3/HOUR 2 left 3601s"},
		{user(2, typev3.RateLimitUnit_HOUR), "OK: OK 2/HOUR 0 left 3601s"},
		{user(2, typev3.RateLimitUnit_HOUR), "OVER: OVER 2/HOUR 0 left 3601s"},
		{user(2, typev3.RateLimitUnit_YEAR), "OK: OK 2/YEAR 1 left 31536001s"},
		{limited(desc("nobody", "knows"), 1, typev3.RateLimitUnit_MONTH), "OK: OK 1/MONTH 0 left 2592001s"},
		{limited(desc("nobody", "knows"), 1, typev3.RateLimitUnit_MONTH), "OVER: OVER 1/MONTH 0 left 2592001s"},
		{limited(desc("nobod", "yknows"), 1, typev3.RateLimitUnit_MONTH), "OK: OK 1/MONTH 0 left 2592001s"},
		{desc("user", "7"), "OK: OK base3/HOUR 0 left 3601s"},
	} {
		require.Equal(t, row.want, short(d.ask(of(row.in))), "call %d", i)
	}
	require.Equal(t, "OK: OK 0 left, OK gold5/HOUR 4 left 3601s", short(d.ask(of(desc("user", "7"), desc("gold", "1")))))
	require.Equal(t, "OK: OK 0 left, OK 4294967295 left", short(d.ask(of(desc("user", "7"), desc("free", "1")))))
	require.Equal(t, "OVER: OVER 2/HOUR 0 left 3601s, OVER base3/HOUR 0 left 3601s", short(d.ask(of(user(2, typev3.RateLimitUnit_HOUR), desc("user", "7")))))

	d = setup{rules: rules, clock: &limitertest.Clock{}, cfg: envoy.Config{MayOverride: func(context.Context) bool { return false }}}.open(t)
	require.Equal(t, "OK: OK base3/HOUR 2 left 3601s", short(d.ask(of(user(9, typev3.RateLimitUnit_HOUR)))))
	back := with(desc("user", "7"), 1)
	back.IsNegativeHits = true
	_, err := d.try(of(back))
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	require.Equal(t, "OK: OK base3/HOUR 1 left 3601s", short(d.ask(of(desc("user", "7")))))
}

// Headers and metadata are those of the reference.
func TestHeadersAndMetadata(t *testing.T) {
	e, err := envoy.ReadEnvironment([]string{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_RESET_HEADER=X-Reset", "RESPONSE_DYNAMIC_METADATA=1"})
	require.NoError(t, err)
	d := setup{clock: &limitertest.Clock{}, cfg: envoy.Config{Settings: e.Settings}, rules: domain(perHour("a", 3) + perHour("b", 2))}.open(t)
	headers := func(r *pb.RateLimitResponse) (all []string) {
		for _, h := range r.ResponseHeadersToAdd {
			all = append(all, h.Key+"="+h.Value)
		}
		return all
	}
	answer := d.ask(&pb.RateLimitRequest{Domain: "d", HitsAddend: 2, Descriptors: []*common.RateLimitDescriptor{desc("a", "1"), desc("b", "1", "c", ""), with(desc("b", "1"), 0), limited(desc("c", ""), 5, typev3.RateLimitUnit_DAY)}})
	require.Equal(t, []string{"RateLimit-Limit=3", "RateLimit-Remaining=1", "X-Reset=3601"}, headers(answer))
	require.Equal(t, map[string]any{
		"domain": "d", "hitsAddend": 2.0, "quotaModeEnabled": false,
		"descriptors": []any{
			map[string]any{"entries": []any{"a=1"}},
			map[string]any{"entries": []any{"b=1", "c="}},
			map[string]any{"entries": []any{"b=1"}, "hitsAddend": 0.0},
			map[string]any{"entries": []any{"c="}, "limit": "requests_per_unit:5 unit:DAY"},
		},
	}, answer.DynamicMetadata.AsMap())
	answer = d.ask(&pb.RateLimitRequest{Domain: "d", HitsAddend: 2, Descriptors: []*common.RateLimitDescriptor{desc("b", "2"), desc("a", "1")}})
	require.Equal(t, []string{"RateLimit-Limit=3", "RateLimit-Remaining=0", "X-Reset=3601"}, headers(answer), "of the one that is over")
	answer = d.ask(of(desc("a", "2"), desc("b", "2"), desc("a", "3")))
	require.Equal(t, []string{"RateLimit-Limit=2", "RateLimit-Remaining=1", "X-Reset=3601"}, headers(answer), "of the one with the least room")
	require.Empty(t, headers(d.ask(of(desc("x", "")))))
}

// The JSON form has the statuses of the reference.
func TestJSON(t *testing.T) {
	d := setup{rules: domain(perHour("user", 1))}.open(t)
	server := httptest.NewServer(d.Service)
	defer server.Close()
	ask := func(body string) (int, string) {
		r, err := http.Post(server.URL+"/json", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(text)
	}
	const body = `{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "7"}]}]}`
	hits := func(n string) string { return strings.Replace(body, "{", `{"hitsAddend": `+n+`, `, 1) }
	hitsOf := func(n string) string { return strings.Replace(body, `[{"e`, `[{"hitsAddend": `+n+`, "e`, 1) }
	for _, want := range []int{200, 429} {
		code, text := ask(body)
		require.Equal(t, want, code)
		answer := &pb.RateLimitResponse{}
		require.NoError(t, protojson.Unmarshal([]byte(text), answer))
		require.Equal(t, want == 429, answer.OverallCode == pb.RateLimitResponse_OVER_LIMIT)
		require.EqualValues(t, 1, answer.Statuses[0].CurrentLimit.RequestsPerUnit)
	}
	for _, wrong := range []string{"", "{", "[]", `{"domain": "d"}`, `{"domain": "d", "wrong": 1}`, `{"domain": "\ud800"}`, `{"domain":"` + strings.Repeat("x", 5<<20) + `"}`,
		hits("-1"), hits("1.5"), hits("4294967296"), hits(`"many"`), hitsOf("-1"), hitsOf("18446744073709551615"), strings.Repeat("[", 100_000), body[:40], body + body} {
		code, _ := ask(wrong)
		require.Equal(t, 400, code, "%.30s", wrong)
	}
	for right, want := range map[string]int{hits("0"): 429, hits("4294967295"): 429, hitsOf("0"): 200, strings.Replace(body, `"d"`, `"none"`, 1): 200} {
		code, text := ask(right)
		require.Equal(t, want, code, "%s: %s", right, text)
	}
	require.NoError(t, d.Close(t.Context()))
	d = setup{rules: domain(perHour("user", 1)), cfg: envoy.Config{MayOverride: func(context.Context) bool { return false }}}.open(t)
	server.Config.Handler = d.Service
	code, text := ask(strings.Replace(body, "}]}]}", `}], "isNegativeHits": true}]}`, 1))
	require.Equal(t, 403, code, text)
	d = setup{rules: "bad", cfg: envoy.Config{Settings: envoy.Settings{ForceStart: true}}}.open(t)
	server.Config.Handler = d.Service
	code, _ = ask(body)
	require.Equal(t, 503, code)
}

// The health follows the rules and the program; reflection is there by choice.
func TestHealthAndReflection(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"r.yaml": "bad"})
	cfg := envoy.Config{Every: time.Millisecond, Reflection: true, Settings: envoy.Settings{ForceStart: true}}
	d := setup{folder: folder, cfg: cfg}.open(t)
	serving := func(name string) bool {
		r, err := healthpb.NewHealthClient(d.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		require.NoError(t, err)
		return r.Status == healthpb.HealthCheckResponse_SERVING
	}
	require.False(t, serving(""))
	_, err := d.try(of(desc("user", "7")))
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Nil(t, d.Limiter())
	write(t, folder, map[string]string{"r.yaml": domain(perHour("user", 1))})
	require.Eventually(t, func() bool {
		return serving("") && serving("ratelimit") && serving("envoy.service.ratelimit.v3.RateLimitService")
	}, time.Minute, time.Millisecond)
	require.Equal(t, []string{"d"}, d.Limiter().Events())
	d.Serving(false)
	require.False(t, serving(""))
	d.Serving(true)
	require.True(t, serving(""))

	for reflects, want := range map[bool]codes.Code{true: codes.OK, false: codes.Unimplemented} {
		d := setup{rules: domain(perHour("user", 1)), cfg: envoy.Config{Reflection: reflects}}.open(t)
		stream, err := reflectionpb.NewServerReflectionClient(d.conn).ServerReflectionInfo(t.Context())
		require.NoError(t, err)
		_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "envoy.service.ratelimit.v3.RateLimitService"}})
		r, err := stream.Recv()
		require.Equal(t, want, status.Code(err))
		if reflects {
			require.NotEmpty(t, r.GetFileDescriptorResponse().GetFileDescriptorProto())
		}
	}
}

// A store that fails is answered for by the policy, within the time of a decision.
func TestStoreAway(t *testing.T) {
	for policy, want := range map[limiter.OnFailure]string{
		limiter.FailClosed: "OVER: OVER 5/HOUR 0 left",
		limiter.FailOpen:   "OK: OK 0 left",
		limiter.FailLocal:  "OK: OK 5/HOUR 3 left",
	} {
		server := servertest.StartRedis(t)
		store, err := redis.Open("redis://"+server.Addr, redis.Config{IOTimeout: time.Minute})
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		local, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: 2 * time.Second})
		require.NoError(t, err)
		d := setup{store: store, rules: domain(perHour("user", 5) + "- {key: try, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}\n"), cfg: envoy.Config{OnFailure: policy, Limiter: limiter.Config{DecideWithin: 50 * time.Millisecond, Local: local}}}.open(t)
		require.Eventually(t, func() bool { return !d.over(desc("user", "7")) }, time.Minute, time.Millisecond)
		server.Pause()
		began := time.Now()
		require.Contains(t, short(d.ask(of(desc("user", "7")))), want)
		require.Less(t, time.Since(began), patience, "the time of a decision, not of the store")
		require.False(t, d.over(desc("try", "7")), "a trial denies nothing")
		require.Equal(t, policy == limiter.FailClosed, d.over(limited(desc("try", "7"), 9, typev3.RateLimitUnit_HOUR)))
		server.Resume()
		if policy == limiter.FailLocal {
			require.NoError(t, d.Close(t.Context()))
			_, err := d.try(of(desc("user", "7")))
			require.Equal(t, codes.Unavailable, status.Code(err))
		}
	}
}

// An interceptor of the server sees each call, and the error of a context is told as such.
func TestInterceptor(t *testing.T) {
	d := setup{rules: domain(perHour("user", 1)), server: []grpc.ServerOption{grpc.UnaryInterceptor(func(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		require.Equal(t, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", info.FullMethod)
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return handle(ctx, in)
	})}}.open(t)
	_, err := d.try(of(desc("user", "7")))
	require.Equal(t, codes.Canceled, status.Code(err))
	require.NoError(t, d.Close(t.Context()))
	require.NoError(t, d.Close(t.Context()))
}

// No text of a request or a file is kept at its length: kinds are labels, and values are in
// memory for as long as a limit lasts.
func TestLongTextIsCut(t *testing.T) {
	long, seen := strings.Repeat("k", 300), []limiter.Decision{}
	d := setup{rules: domain(perHour(long+"a", 1) + perHour(long+"b", 1)), cfg: envoy.Config{Limiter: limiter.Config{Observe: func(of limiter.Decision) { seen = append(seen, of) }}}}.open(t)
	for _, key := range []string{long + "a", long + "b"} {
		require.False(t, d.over(desc(key, long)))
		require.True(t, d.over(desc(key, long)))
		require.Less(t, len(seen[len(seen)-1].Kind), 200)
		require.Less(t, len(counter.Key(seen[len(seen)-1].Key).Feature), 250)
	}
}

// The page's example is a file of rules, and its feature is that of a descriptor.
func TestPageOfTheRules(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	d := setup{rules: example}.open(t)
	login := &pb.RateLimitRequest{Domain: "shop", HitsAddend: 5, Descriptors: []*common.RateLimitDescriptor{desc("path", "/login/form", "remote_address", "203.0.113.9")}}
	for _, want := range []string{"OK", "OVER"} {
		require.Equal(t, want, strings.Split(short(d.ask(login)), ":")[0])
	}
	kind, value := "/path=%2Flogin%2F*/remote_address@10m0s,1s", "8:/login/*11:203.0.113.9"
	require.Contains(t, string(page), "`"+kind+"`")
	require.Contains(t, string(page), "`"+value+"`")
	require.NoError(t, d.Limiter().Forget(t.Context(), "shop", feature.New(kind, value)))
	require.Equal(t, "OK", strings.Split(short(d.ask(login)), ":")[0])
}
