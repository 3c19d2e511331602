package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/idna"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
)

// KindHost is the kind of the feature of a request without
// TransportConfig.Features: the host that the request goes to, as "api.example.org" or
// "192.0.2.7:8080". Spellings of a host are one: names are ASCII in small letters,
// addresses and ports are written as netip and strconv write them, and the port of the
// scheme is left out. Another name of the host, or one that only the system's resolver
// reads as an address, such as "127.1", is another host.
const KindHost = "host"

// DefaultMaxHold is the default of TransportConfig.MaxHold: the longest day of a
// calendar, on which clocks are put back.
const DefaultMaxHold = 25 * time.Hour

// TransportConfig configures a [Transport]. All fields may be left out: a
// Transport without a Limiter heeds the answers of services alone.
type TransportConfig struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper

	// Limiter, if set, counts each request under the rules of Event before the
	// request is sent. A request over a limit waits, see [limiter.Limiter.Wait].
	Limiter *limiter.Limiter
	Event   string

	// Features returns the features of a request that goes out. Features must not
	// change the request, nor read the body. Default: the host alone, a feature of
	// kind KindHost.
	Features func(r *http.Request) []limiter.Feature

	// Partition names the quota of the service that a request takes from: the account
	// of the request's key, or a separately counted part of the API. An answer holds
	// back the requests to the same host with the same Partition. Features' rules
	// apply: no change, no reading of the body. Default: a host has one quota.
	Partition func(r *http.Request) string

	// MaxWait bounds the wait of a request beside the request's context. A request
	// whose turn would come later fails at once. Default: the context alone.
	MaxWait time.Duration

	// MaxHold bounds the time for which an answer holds requests back, whatever the
	// service says. After MaxHold a single request is sent to hear again. Default:
	// DefaultMaxHold.
	MaxHold time.Duration
}

// ErrHeldBack is the reason of a NotSentError: the service has said that requests
// before a time after the deadline would be denied. [errors.Is] also finds
// limiter.ErrWaitTooLong and context.DeadlineExceeded in ErrHeldBack, though the
// deadline has not passed yet.
var ErrHeldBack = fmt.Errorf("the service asks for a longer wait: %w", limiter.ErrWaitTooLong)

// NotSentError is the error of a request that a [Transport] has not sent. The
// request counts under no limit.
type NotSentError struct {
	Host  string
	Until time.Time // no request could be sent before, as far as is known; zero: not known
	Err   error     // ErrHeldBack, an error of limiter.Limiter.Wait such as ErrWaitTooLong, or the context's
}

func (e *NotSentError) Error() string {
	s := fmt.Sprintf("httplimit: request to %q was not sent", e.Host)
	if !e.Until.IsZero() {
		s += ", none can be before " + e.Until.Format(time.RFC3339)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap is Err.
func (e *NotSentError) Unwrap() error { return e.Err }

// Transport is an [http.RoundTripper] for calls to services that limit their callers.
// Before a request is sent, the request waits for a limit of the caller's own, and
// then as long as the service has asked. Set http.Client.Transport to a Transport.
// Many goroutines may use a Transport at once.
//
// An answer 429, or 503 with Retry-After, holds back the requests to the same host
// and Partition until Retry-After, a number of seconds or a date. An answer of any
// status with RateLimit fields (draft-ietf-httpapi-ratelimit-headers-11) lets as
// many requests be in flight as remain, until quota is made available; with none
// remaining, no request leaves. The older RateLimit-Remaining and
// X-RateLimit-Remaining, each with a Reset, are read where RateLimit is missing.
// Malformed text is ignored; an answer 429 without a time counts as a second. An
// answer without any of these fields changes nothing and uses no quota: the page
// may have no limit, or the answer is a balancer's. Only the service's own word
// stops requests. When the time is over, requests do not leave all at once: a first
// request is sent, and each good answer lets one more be in flight, or as many as
// the answer says. Up to 3 % of the time, a minute at most, is added at random,
// since other processes have heard the same.
//
// A request whose context, or MaxWait, ends before its turn fails at once with a
// [*NotSentError]. RoundTrip sends a request once and returns the answer unchanged, a
// 429 too: only the caller knows whether the request may be sent again. A redirect is
// a request of its own, to its own host. A proxy or a cache that answers in the place
// of the host is heard as the host, except RateLimit fields of an answer with Age or with
// a hit in Cache-Status: they are another client's.
//
// A Transport remembers the last used hosts that have told of limits, up to a
// thousand, and hosts with requests under way.
type Transport struct {
	base      http.RoundTripper
	limiter   *limiter.Limiter
	event     string
	features  func(r *http.Request) []limiter.Feature
	partition func(r *http.Request) string
	maxWait   time.Duration
	holds     holds
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport makes a Transport. An error names the field of cfg.
func NewTransport(cfg TransportConfig) (*Transport, error) {
	t := &Transport{
		base: cfg.Base, limiter: cfg.Limiter, event: cfg.Event, features: cfg.Features,
		partition: cfg.Partition, maxWait: cfg.MaxWait,
	}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	if cfg.MaxWait < 0 {
		return nil, fmt.Errorf("httplimit: TransportConfig.MaxWait is %s, want a positive duration, or 0 for none", cfg.MaxWait)
	}
	if cfg.MaxHold < 0 {
		return nil, fmt.Errorf("httplimit: TransportConfig.MaxHold is %s, want a positive duration, or 0 for %s", cfg.MaxHold, DefaultMaxHold)
	}
	t.holds.init(cfg.MaxHold)
	if cfg.Limiter == nil {
		if cfg.Event != "" || cfg.Features != nil {
			return nil, errors.New("httplimit: TransportConfig.Limiter is nil, want one of limiter.New for Event and Features")
		}
		return t, nil
	}
	rules := cfg.Limiter.Rules(cfg.Event)
	if len(rules) == 0 {
		return nil, fmt.Errorf("httplimit: TransportConfig.Event is %q, but TransportConfig.Limiter has rules for %s only", cfg.Event, words.Quoted(cfg.Limiter.Events()))
	}
	if t.features == nil {
		for _, r := range rules {
			if r.Kind != KindHost && r.Else != KindHost && r.IfMissing == limiter.MissingDeny {
				return nil, fmt.Errorf("httplimit: TransportConfig.Features is nil, which finds kind %q only, but event %q has a rule by %q", KindHost, cfg.Event, r.Kind)
			}
		}
		t.features = func(r *http.Request) []limiter.Feature {
			return []limiter.Feature{limiter.NewFeature(KindHost, hostOf(r))}
		}
	}
	return t, nil
}

// RoundTrip sends r when its turn has come. See Transport.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil {
		return t.base.RoundTrip(r) // an error
	}
	p, err := t.await(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	answer, err := t.base.RoundTrip(r)
	if err == nil {
		p.heard(answer)
	}
	p.leave()
	return answer, err
}

// CloseIdleConnections calls the method of Base of the same name, if Base has one.
// See [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// await returns when r may be sent, and has counted r.
func (t *Transport) await(r *http.Request) (*place, error) {
	lent := loan.Of(r.Context())
	defer lent.End()
	ctx, cancel := context.Context(lent), context.CancelFunc(func() {})
	if t.maxWait > 0 {
		ctx, cancel = context.WithTimeout(ctx, t.maxWait)
	}
	defer cancel()
	host, partition := hostOf(r), ""
	if t.partition != nil {
		partition = t.partition(r)
	}
	for {
		p, until, err := t.holds.enter(ctx, host, partition)
		if err != nil {
			return nil, &NotSentError{host, until, err}
		}
		if t.limiter == nil {
			return p, nil
		}
		v, err := t.limiter.Wait(ctx, t.event, t.features(r)...)
		if err != nil {
			p.leave()
			if v.RetryAfter > 0 && v.RetryAfter != counter.Never {
				until = time.Now().Add(v.RetryAfter)
			}
			return nil, &NotSentError{host, until, err}
		}
		if p.stays() {
			return p, nil
		}
		// Meanwhile an answer has closed the way. The hit would be older than the
		// request. If the store fails, the hit stays: a request less.
		p.leave()
		_ = t.limiter.Refund(context.WithoutCancel(ctx), &v)
	}
}

// hostOf is the host that r goes to in the one spelling of its name or address, with the
// port unless the scheme has no other.
func hostOf(r *http.Request) string {
	host, port := r.URL.Hostname(), r.URL.Port()
	if ascii, err := idna.Lookup.ToASCII(host); err == nil { // as net/http does
		host = ascii
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		port = strconv.FormatUint(n, 10)
	}
	if port == "" || r.URL.Scheme == "http" && port == "80" || r.URL.Scheme == "https" && port == "443" {
		return host
	}
	return host + ":" + port
}
