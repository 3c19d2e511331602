package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// Config is the configuration of a [Service].
type Config struct {
	// Counter counts. Required.
	Counter *counter.Counter

	// Rules is the path of a file of rules, or of a folder of files. Required.
	Rules string

	// Settings are those that the reference service takes from its environment.
	Settings Settings

	// Limiter is the configuration of the limiter. Its Rules are those of the files.
	Limiter limiter.Config

	// Opened, if set, is called once with the limiter, by New or when rules are first good.
	Opened func(*limiter.Limiter)

	// OnFailure is the policy of all rules for a store that fails. Under FailClosed the
	// answer is OVER_LIMIT, and not an error, which lets the request pass in a gateway
	// without failure_mode_deny. Default: FailClosed.
	OnFailure limiter.OnFailure

	// MayOverride, if set, reports whether the caller with this context may bring limits
	// of its own, and give hits back. The limits of other callers do not hold, and a
	// request that would give hits back is denied. Default: every caller may.
	MayOverride func(context.Context) bool

	// Every is the time between two reads of the rules, at least a millisecond. Default:
	// five seconds.
	Every time.Duration

	// Metrics, if set, gets numbers under the names of the reference service. The rules
	// say which values of requests are labels.
	Metrics prometheus.Registerer

	// Reflection has Register register gRPC's reflection as well.
	Reflection bool
}

// Settings are the settings that the reference service takes from its environment, where
// package envoy goes by them. The zero Settings are its defaults.
type Settings struct {
	Shadow       bool // no request is denied; statuses say what would be
	Quota        bool // all rules are in quota_mode
	Metadata     bool // answers have dynamic metadata
	MergeDomains bool // a domain may be in several files
	ForceStart   bool // New returns no error for rules: without rules each request is an error, until there are some

	// LimitHeader, RemainingHeader and ResetHeader are names of headers of all answers.
	// Default: no headers.
	LimitHeader, RemainingHeader, ResetHeader string
}

// Service answers envoy.service.ratelimit.v3.RateLimitService. [New] makes a Service, and
// Close ends it. Many goroutines may use a Service at once.
type Service struct {
	cfg     Config
	limiter atomic.Pointer[limiter.Limiter] // nil: there are no rules yet
	rules   atomic.Pointer[ruleset]         // nil: there are none yet
	health  checks
	numbers *numbers // nil: none
	stop    chan struct{}
	once    sync.Once
	done    sync.WaitGroup

	good, bad atomic.Int64
	unready   atomic.Bool

	applied [32]byte   // digest of the files of rules; New and then watch alone use it
	refused bool       // the last read; likewise
	former  []*ruleset // before the last change, with calls under way then; likewise
}

// New makes a Service with the rules of cfg.Rules, and reads them again from time to time.
// Bad rules are an error that names the file and the line of each fault.
func New(cfg Config) (*Service, error) {
	cfg.Every = cmp.Or(cfg.Every, 5*time.Second)
	names := cfg.Settings.LimitHeader + cfg.Settings.RemainingHeader + cfg.Settings.ResetHeader
	switch {
	case cfg.Every < time.Millisecond:
		return nil, fmt.Errorf("envoy: Config.Every is %s, want at least %s, or 0 for the default", cfg.Every, time.Millisecond)
	case strings.Trim(names, ofHeaders) != "":
		return nil, fmt.Errorf("envoy: the names of headers are %q, want letters, digits and hyphens", names)
	}
	s := &Service{cfg: cfg, health: newChecks(), stop: make(chan struct{})}
	s.healthy()
	if cfg.Metrics != nil {
		var err error
		if s.numbers, err = newNumbers(cfg.Metrics); err != nil {
			return nil, fmt.Errorf("envoy: Config.Metrics: %w", err)
		}
	}
	files, err := read(cfg.Rules)
	if err == nil {
		err = s.apply(files)
	}
	if err != nil && !cfg.Settings.ForceStart {
		return nil, fmt.Errorf("envoy: %w", err)
	}
	s.noted(err)
	s.done.Go(s.watch)
	return s, nil
}

// Close ends the reading of rules, and closes the limiter: see [limiter.Limiter.Close].
// Requests are errors afterwards. Further calls do nothing.
func (s *Service) Close(ctx context.Context) error {
	s.once.Do(func() { close(s.stop) })
	s.done.Wait()
	if lim := s.limiter.Load(); lim != nil {
		return lim.Close(ctx)
	}
	return nil
}

// Limiter is the limiter of the rules, whose events are the domains. It is nil as long as
// there were no rules.
func (s *Service) Limiter() *limiter.Limiter { return s.limiter.Load() }

// Text returns the rules for people, each with its path in a line.
func (s *Service) Text() string {
	if set := s.rules.Load(); set != nil {
		return set.text.String()
	}
	return ""
}

// Loads returns how often rules were loaded and applied, and how often a read found rules
// that cannot be used.
func (s *Service) Loads() (good, bad int64) { return s.good.Load(), s.bad.Load() }

// Register registers the service, gRPC's health service and, by Config.Reflection, its
// reflection.
func (s *Service) Register(server *grpc.Server) {
	server.RegisterService(&description, s)
	healthpb.RegisterHealthServer(server, s.health)
	if s.cfg.Reflection {
		reflection.Register(server)
	}
}

// Serving says whether the health service may answer SERVING, as it does from New on
// while there are rules.
func (s *Service) Serving(serving bool) {
	s.unready.Store(!serving)
	s.healthy()
}

// healthy tells the health service, under the names by which clients ask: of the server, of
// the reference service, and of the service.
func (s *Service) healthy() {
	is := healthpb.HealthCheckResponse_NOT_SERVING
	if s.rules.Load() != nil && !s.unready.Load() {
		is = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range []string{"", "ratelimit", description.ServiceName} {
		s.health.SetServingStatus(name, is)
	}
}

// description is that of the generated code, with a handler that reads requests by decode.
var description = grpc.ServiceDesc{
	ServiceName: pb.RateLimitService_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: pb.RateLimitService_ServiceDesc.Methods[0].MethodName, Handler: handle}},
	Metadata:    pb.RateLimitService_ServiceDesc.Metadata,
}

// handle handles a call. An interceptor gets an Empty with the fields of the request, which
// it does not know.
func handle(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := &emptypb.Empty{}
	if err := decode(in); err != nil {
		return nil, err
	}
	answer := func(ctx context.Context, in any) (any, error) {
		return srv.(*Service).answer(ctx, in.(*emptypb.Empty).ProtoReflect().GetUnknown())
	}
	if interceptor == nil {
		return answer(ctx, in)
	}
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: pb.RateLimitService_ShouldRateLimit_FullMethodName}, answer)
}

// begin returns the rules for a call, to be ended by calls.Add(-1); nil if there are none.
func (s *Service) begin() *ruleset {
	for {
		set := s.rules.Load()
		if set == nil {
			return nil
		}
		if set.calls.Add(1); s.rules.Load() == set { // else apply may not have seen the call
			return set
		}
		set.calls.Add(-1)
	}
}

// answer answers a request.
func (s *Service) answer(ctx context.Context, message []byte) (*pb.RateLimitResponse, error) {
	set := s.begin()
	if set == nil {
		return nil, status.Error(codes.Unavailable, "there are no rules yet")
	}
	defer set.calls.Add(-1)
	r, err := decode(message)
	if err != nil {
		return nil, err
	}
	mayOverride := s.cfg.MayOverride == nil || s.cfg.MayOverride(ctx)
	a := &answer{Service: s, RateLimitRequest: r, targets: targetsOf(r, set, mayOverride)}
	if a.call = callOf(a.targets); a.call.keys > counter.MaxKeys {
		return nil, invalid("the request has %d keys, two for each descriptor in shadow_mode, want at most %d", a.call.keys, counter.MaxKeys)
	}
	if len(a.call.credit) > 0 && !mayOverride {
		return nil, status.Error(codes.PermissionDenied, "the caller may not give hits back")
	}
	if err := a.decide(ctx); err != nil {
		return nil, errorOf(ctx, err)
	}
	if s.numbers != nil {
		s.numbers.count(a, set.domains[r.Domain])
	}
	return a.response()
}

// errorOf is the error of the protocol for an error of the limiter.
func errorOf(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, counter.ErrStore), errors.Is(err, limiter.ErrClosed):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// ofHeaders are the characters of names of headers.
const ofHeaders = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// ServeHTTP answers a request in JSON, for the path /json: 200 if it is OK, 429 if it is
// OVER_LIMIT, both with the response in JSON, 400 for a request that is wrong, 403 if the
// caller may not do this, and 503 if there is no answer.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20)) // as gRPC by default
	in := &pb.RateLimitRequest{}
	if err == nil {
		err = protojson.Unmarshal(body, in)
	}
	var message []byte
	if err == nil {
		message, err = proto.Marshal(in)
	}
	if err != nil {
		http.Error(w, "the body is no RateLimitRequest in JSON", http.StatusBadRequest)
		return
	}
	response, err := s.answer(r.Context(), message)
	code := cmp.Or(map[codes.Code]int{codes.OK: 200, codes.InvalidArgument: 400, codes.PermissionDenied: 403}[status.Code(err)], 503)
	if err == nil {
		body, err = protojson.Marshal(response)
	}
	if err != nil {
		http.Error(w, status.Convert(err).Message(), code)
		return
	}
	if response.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		code = http.StatusTooManyRequests
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone
}
