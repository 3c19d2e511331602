package envoy

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// checks is the health service. Its watches end when the service drains, after the last
// state; otherwise they would last as long as their clients.
type checks struct {
	*health.Server
	drained context.Context
	drain   context.CancelFunc
}

func newChecks() checks {
	ctx, cancel := context.WithCancel(context.Background())
	return checks{health.NewServer(), ctx, cancel}
}

// Drain has the health service answer NOT_SERVING from now on, and ends its watches, once
// they have said so. Requests are answered as before.
func (s *Service) Drain() {
	s.health.Shutdown()
	s.health.drain()
}

// Watch watches until the service drains. A client that asks again meets an error without
// an answer, upon which clients wait.
func (c checks) Watch(in *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	w := &watch{Health_WatchServer: stream}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(c.drained, cancel)()
	if c.drained.Err() == nil {
		if err := c.Server.Watch(in, w); c.drained.Err() == nil {
			return err
		}
	}
	if w.serving {
		_ = w.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}) // the client may be gone
	}
	return status.Error(codes.Unavailable, "the service ends")
}

// watch is the stream of a watch, with another context.
type watch struct {
	healthpb.Health_WatchServer
	ctx     context.Context
	serving bool // by the last answer
}

func (w *watch) Context() context.Context { return w.ctx }

func (w *watch) Send(r *healthpb.HealthCheckResponse) error {
	w.serving = r.Status == healthpb.HealthCheckResponse_SERVING
	return w.Health_WatchServer.Send(r)
}
