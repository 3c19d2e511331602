package envoy

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// drains is the stream of a watch during whose first answer the service drains.
type drains struct {
	healthpb.Health_WatchServer
	service *Service
	sent    []healthpb.HealthCheckResponse_ServingStatus
}

func (d *drains) Context() context.Context { return context.Background() }

func (d *drains) Send(r *healthpb.HealthCheckResponse) error {
	if d.sent = append(d.sent, r.Status); len(d.sent) == 1 {
		d.service.Drain()
		synctest.Wait()
	}
	return nil
}

// A watch says NOT_SERVING before its end, also if it could not wait for the change.
func TestWatchDuringADrain(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			d := &drains{service: &Service{health: newChecks()}}
			err := d.service.health.Watch(&healthpb.HealthCheckRequest{}, d)
			require.Equal(t, codes.Unavailable, status.Code(err))
			require.Equal(t, []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING}, d.sent)
		})
	}
}
