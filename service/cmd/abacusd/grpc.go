package main

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/service/callers"
	"github.com/abacus-go/abacus/service/config"
	"github.com/abacus-go/abacus/service/envoy"
)

// mayOverride is the key of a context, for whether the caller may use override.
type mayOverride struct{}

// openEnvoy makes the rate limit service of Envoy.
func (s *service) openEnvoy(c *counter.Counter) error {
	limits, observed, err := s.limits(c, "envoy")
	if err != nil {
		return err
	}
	var registry prometheus.Registerer
	if s.cfg.Envoy.Metrics {
		registry = s.registry
	}
	s.envoy, err = envoy.New(envoy.Config{
		Counter: c, Rules: s.cfg.Envoy.Rules, Settings: s.cfg.Envoy.Settings, Limiter: limits, Opened: observed, Metrics: registry,
		OnFailure: s.cfg.Envoy.OnFailure, Every: s.cfg.Reload, Reflection: s.cfg.Envoy.Reflection,
		MayOverride: func(ctx context.Context) bool { return ctx.Value(mayOverride{}) == true },
	})
	if err != nil {
		return s.cfg.Fault("envoy.rules", err)
	}
	s.envoy.Serving(false) // until look has seen the store
	s.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "abacusd_envoy_rules_refused_total", Help: "Reads of envoy.rules that found rules with a fault.",
	}, func() float64 {
		_, refused := s.envoy.Loads()
		return float64(refused)
	}))
	return nil
}

// overHTTP lets callers through who may use the rate limit service.
func (s *service) overHTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if grants, may := s.may(w, r, config.RLS); may {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), mayOverride{}, grants.May(config.Override, "") != "")))
		}
	})
}

// may answers a client that may not use verb, and reports whether it may.
func (s *service) may(w http.ResponseWriter, r *http.Request, verb config.Verb) (callers.Grants, bool) {
	grants := s.callers.Of(callers.PeerOf(r))
	code, reason := grants.Refuse(verb, "")
	if reason != nil {
		http.Error(w, reason.Error(), code)
	}
	return grants, reason == nil
}

// admitted returns the context of a call that may be answered. The health is for all.
func (s *service) admitted(ctx context.Context, method string) (context.Context, error) {
	if strings.HasPrefix(method, "/grpc.health.v1.Health/") {
		return ctx, nil
	}
	p, known := peer.FromContext(ctx)
	if !known {
		return nil, status.Error(codes.Unauthenticated, "the connection has no address")
	}
	info, _ := p.AuthInfo.(credentials.TLSInfo) // without TLS no certificate is verified
	var from netip.Addr                         // the zero Addr on a unix socket
	if tcp, is := p.Addr.(*net.TCPAddr); is {
		from = tcp.AddrPort().Addr()
	}
	grants := s.callers.Of(callers.NewPeer(from, metadata.ValueFromIncomingContext(ctx, "authorization"), &info.State))
	switch code, reason := grants.Refuse(config.RLS, ""); code {
	case http.StatusUnauthorized:
		return nil, status.Error(codes.Unauthenticated, reason.Error())
	case http.StatusForbidden:
		return nil, status.Error(codes.PermissionDenied, reason.Error())
	}
	return context.WithValue(ctx, mayOverride{}, grants.May(config.Override, "") != ""), nil
}

// maxStreams bounds the calls under way of a connection.
const maxStreams = 1000

// grpcServer is a grpc.Server in the form of a http.Server.
type grpcServer struct{ *grpc.Server }

// newGRPC returns the server of the rate limit service, nil without one.
func (s *service) newGRPC() server {
	if s.envoy == nil {
		return nil
	}
	options := []grpc.ServerOption{
		// Workers keep the stacks that calls have grown. Further calls have goroutines of their own.
		grpc.MaxHeaderListSize(64 << 10), grpc.ConnectionTimeout(headerTimeout), grpc.MaxConcurrentStreams(maxStreams), grpc.NumStreamWorkers(64),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
		// Streams are those of reflection, which describes a public protocol, and of health.
		grpc.UnaryInterceptor(func(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			if ctx, err = s.admitted(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, in)
		}),
	}
	if s.tls != nil && s.cfg.Listen.GRPC.Network == "tcp" {
		options = append(options, grpc.Creds(credentials.NewTLS(s.tls.config())))
	}
	g := grpcServer{grpc.NewServer(options...)}
	s.envoy.Register(g.Server)
	return g
}

// Shutdown ends the calls that ctx does not leave time for.
func (g grpcServer) Shutdown(ctx context.Context) error {
	defer context.AfterFunc(ctx, g.Stop)()
	g.GracefulStop()
	return ctx.Err()
}
