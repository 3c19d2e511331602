package frameworks

import (
	"context"
	"log"
	"net/netip"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// GRPC counts calls that fail, under the rules of Event: calls that succeed are
// given back.
type GRPC struct {
	Limiter *limiter.Limiter
	Event   string

	// Features are the features of a call. request is nil for a stream, whose
	// messages come later.
	Features func(ctx context.Context, request any) []feature.Feature
}

// Unary is for grpc.UnaryInterceptor.
func (g GRPC) Unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	err = g.limit(ctx, request, func() error {
		answer, err = handler(ctx, request)
		return err
	})
	return answer, err
}

// Stream is for grpc.StreamInterceptor. A stream is a single call.
func (g GRPC) Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return g.limit(stream.Context(), nil, func() error { return handler(server, stream) })
}

func (g GRPC) limit(ctx context.Context, request any, call func() error) error {
	v, err := g.Limiter.Allow(ctx, g.Event, g.Features(ctx, request)...)
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return status.Error(codes.Internal, err.Error())
	case !v.Allowed:
		return denial(&v)
	}
	if err := call(); err != nil {
		return err // counted
	}
	if err := g.Limiter.Refund(context.WithoutCancel(ctx), &v); err != nil {
		log.Print(err) // the call is good all the same, but was counted
	}
	return nil
}

// denial is the error of a call that v denies. Clients look at its RetryInfo.
func denial(v *limiter.Verdict) error {
	var s *status.Status
	var details []protoadapt.MessageV1
	switch v.Outcome() {
	case limiter.OutcomeMissing:
		s = status.New(codes.InvalidArgument, v.Missing+" is missing")
	case limiter.OutcomeFailedClosed:
		s = status.New(codes.Unavailable, "try again later")
	default:
		s = status.New(codes.ResourceExhausted, "too many calls")
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: v.Kind(), Description: v.Limit.String()},
		}})
	}
	if v.RetryAfter != counter.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(v.RetryAfter)})
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}

// PeerIP is the address of the peer of a call: of the last proxy, if there are
// proxies.
func PeerIP(ctx context.Context) feature.Feature {
	var addr netip.Addr
	if p, ok := peer.FromContext(ctx); ok {
		if at, err := netip.ParseAddrPort(p.Addr.String()); err == nil {
			addr = at.Addr()
		}
	}
	return feature.IP(addr)
}
