package envoy

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// answer is the answer to a request.
type answer struct {
	*Service
	*pb.RateLimitRequest
	targets []target
	call    call

	verdict    limiter.Verdict
	over       bool  // the request is
	violations []any // targets in quota_mode that are over
	quotas     bool  // all in quota_mode are
}

// decide asks the limiter.
func (a *answer) decide(ctx context.Context) error {
	lim := a.limiter.Load()
	a.verdict.Allowed = true
	if len(a.call.take) > 0 {
		var err error
		if a.verdict, err = lim.AllowN(ctx, a.Domain, int64(max(1, a.HitsAddend)), a.call.take...); err != nil {
			return err
		}
	}
	a.judge()
	if a.quotas && a.verdict.Allowed && !a.call.costs {
		_ = lim.Refund(context.WithoutCancel(ctx), &a.verdict) // hits that stay deny more
	}
	if a.over || len(a.call.credit) == 0 {
		return nil
	}
	_, err := lim.Charge(ctx, a.Domain, -int64(max(1, a.HitsAddend)), a.call.credit...)
	return err
}

// judge finds the states of the targets, and what is over.
func (a *answer) judge() {
	states, n := a.verdict.All(), 0
	trials := make([]counter.State, len(a.verdict.Soft))
	for i, s := range a.verdict.Soft {
		trials[i] = counter.State{Ask: s.Ask, Limit: s.Limit, Remaining: s.Remaining, RetryAfter: s.RetryAfter, ResetAfter: s.ResetAfter}
	}
	a.over = !a.verdict.Allowed
	for i := range a.targets {
		t := &a.targets[i]
		if !t.counted() || t.IsNegativeHits && t.n > 0 {
			continue
		}
		of := states
		if t.rule.shadow && t.HitsAddend == nil {
			of = trials
		}
		t.state = stateOf(t, a.call.asks[t.first], of)
		if t.state == nil && !a.verdict.Allowed && !t.rule.shadow { // the store has failed, and the policy denies
			t.state = &counter.State{Limit: t.rule.limits[0], RetryAfter: a.verdict.RetryAfter}
		}
		over := t.state != nil && t.state.RetryAfter > 0
		switch {
		case t.rule.shadow:
		case t.rule.quota:
			if n++; over {
				a.violations = append(a.violations, i)
			}
		case over:
			a.over = true
		}
	}
	a.quotas = n > 0 && n == len(a.violations)
	a.over = a.over || a.quotas
}

// stateOf returns the state of the limit of t that binds, among the states of a call, nil if
// there is none. Where the rules have changed since the call began, the limit has another
// maximum by now, and the window alone says which it is.
func stateOf(t *target, ask int, states []counter.State) (binds *counter.State) {
	changed := false
	of := func(s counter.State) bool {
		return s.Ask == ask && slices.ContainsFunc(t.rule.limits, func(l counter.Limit) bool {
			return l == s.Limit || changed && l.Per == s.Limit.Per && l.Period == s.Limit.Period
		})
	}
	changed = !slices.ContainsFunc(states, of)
	for i := range states {
		if s := &states[i]; of(*s) && (binds == nil || s.RetryAfter > binds.RetryAfter || binds.RetryAfter == 0 && s.Remaining < binds.Remaining) {
			binds = s
		}
	}
	return binds
}

// response is the response of the protocol.
func (a *answer) response() (_ *pb.RateLimitResponse, err error) {
	response := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: make([]*pb.RateLimitResponse_DescriptorStatus, len(a.targets))}
	if a.over {
		response.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	var binds *pb.RateLimitResponse_DescriptorStatus
	all := make([]answered, len(a.targets))
	for i := range a.targets {
		s := a.statusOf(&a.targets[i], &all[i])
		response.Statuses[i] = s
		if s.CurrentLimit != nil && (binds == nil || s.Code > binds.Code || s.Code == binds.Code && s.LimitRemaining < binds.LimitRemaining) {
			binds = s
		}
	}
	if binds != nil {
		add := func(name string, n uint64) {
			if name != "" {
				response.ResponseHeadersToAdd = append(response.ResponseHeadersToAdd, &core.HeaderValue{Key: name, Value: strconv.FormatUint(n, 10)})
			}
		}
		add(a.cfg.Settings.LimitHeader, uint64(binds.CurrentLimit.RequestsPerUnit))
		add(a.cfg.Settings.RemainingHeader, uint64(binds.LimitRemaining))
		add(a.cfg.Settings.ResetHeader, uint64(binds.DurationUntilReset.GetSeconds()))
	}
	if a.cfg.Settings.Metadata {
		response.DynamicMetadata, err = a.metadata()
	}
	return response, err
}

// answered is a status with all that it points to, for one allocation.
type answered struct {
	status pb.RateLimitResponse_DescriptorStatus
	limit  pb.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// statusOf is the status of a target, in the room of in.
func (a *answer) statusOf(t *target, in *answered) *pb.RateLimitResponse_DescriptorStatus {
	status := &in.status
	status.Code = pb.RateLimitResponse_OK
	if t.rule != nil && t.rule.unlimited() && !t.replaced {
		status.LimitRemaining = math.MaxUint32
	}
	s := t.state
	if s == nil {
		return status
	}
	wait, left := s.ResetAfter, s.Remaining
	if s.RetryAfter > 0 {
		wait, left = s.RetryAfter, 0
		if wait == counter.Never {
			wait = s.Limit.Window()
		}
		if t.rule.shadow && a.cfg.Settings.Shadow || t.rule.quota && a.quotas || !t.rule.shadow && !t.rule.quota {
			status.Code = pb.RateLimitResponse_OVER_LIMIT
		}
	}
	in.limit.Name, in.limit.RequestsPerUnit, in.limit.Unit = t.rule.name, clamp(s.Limit.Max), unitsOf[s.Limit.Per]
	in.reset.Seconds = int64((wait + time.Second - 1) / time.Second)
	status.CurrentLimit, status.LimitRemaining, status.DurationUntilReset = &in.limit, clamp(left), &in.reset
	return status
}

func clamp(n int64) uint32 { return uint32(min(max(0, n), math.MaxUint32)) }

// metadata is the dynamic metadata of the answer, with the names of the reference. The
// metadata of a rule are with its descriptor, unless the rule is over.
func (a *answer) metadata() (*structpb.Struct, error) {
	quota, descriptors := false, make([]any, len(a.targets))
	for i := range a.targets {
		t := &a.targets[i]
		entries := make([]any, len(t.Entries))
		for j, e := range t.Entries {
			entries[j] = e.Key + "=" + e.Value
		}
		of := map[string]any{"entries": entries}
		if t.Limit != nil {
			of["limit"] = fmt.Sprintf("requests_per_unit:%d unit:%s", t.Limit.RequestsPerUnit, t.Limit.Unit)
		}
		if t.HitsAddend != nil {
			of["hitsAddend"] = t.HitsAddend.Value
		}
		if t.rule != nil && !t.replaced {
			quota = quota || t.rule.quota
			if t.rule.metadata != nil && (t.state == nil || t.state.RetryAfter == 0) {
				of["metadata"] = t.rule.metadata
			}
		}
		descriptors[i] = of
	}
	all := map[string]any{"domain": a.Domain, "descriptors": descriptors, "quotaModeEnabled": quota}
	if a.HitsAddend > 0 {
		all["hitsAddend"] = a.HitsAddend
	}
	if len(a.violations) > 0 {
		all["quotaModeViolations"] = a.violations
	}
	return structpb.NewStruct(all)
}
