package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httpclient"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
)

// KindHost is the kind of the only feature that Outgoing finds by itself: the host that a
// request goes to, see [httpclient.HostOf].
const KindHost = "host"

// Outgoing returns a limit for the requests that a program sends, to be set as
// [httpclient.Config.Limit]. A request waits until the rules of event in lim admit it,
// see [limiter.Limiter.Wait], and counts when it leaves.
//
// features returns the features of a request. It must not change the request or read the
// body. If features is nil, the only feature is the host, of kind KindHost. The error
// names a rule that such requests could never pass, or an event without rules.
func Outgoing(lim *limiter.Limiter, event string, features func(r *http.Request) []feature.Feature) (httpclient.Limit, error) {
	if lim == nil {
		return nil, errors.New("httplimit: the Limiter of Outgoing is nil, want one of limiter.New")
	}
	rules := lim.Rules(event)
	if len(rules) == 0 {
		return nil, fmt.Errorf("httplimit: the event of Outgoing is %q, but the Limiter has rules for %s only", event, words.Quoted(lim.Events()))
	}
	if features == nil {
		for _, r := range rules {
			if r.Kind != KindHost && r.Else != KindHost && r.IfMissing == limiter.MissingDeny {
				return nil, fmt.Errorf("httplimit: Outgoing without features finds kind %q only, but event %q has a rule by %q", KindHost, event, r.Kind)
			}
		}
		features = func(r *http.Request) []feature.Feature {
			return []feature.Feature{feature.New(KindHost, httpclient.HostOf(r))}
		}
	}
	return func(ctx context.Context, r *http.Request) (func(), error) {
		v, err := lim.Wait(ctx, event, features(r)...)
		if err != nil && v.RetryAfter > 0 && v.RetryAfter != counter.Never {
			err = &httpclient.NotSentError{Until: time.Now().Add(v.RetryAfter), Err: err}
		}
		// If the store fails, the hit stays: a request less.
		return func() { _ = lim.Refund(context.WithoutCancel(ctx), &v) }, err
	}, nil
}
