package httpclient

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/idna"

	"github.com/abacus-go/abacus/internal/loan"
)

// DefaultMaxHold is the default of Config.MaxHold: the longest day of a calendar, on
// which clocks are put back.
const DefaultMaxHold = 25 * time.Hour

// Config configures a [Transport]. All fields may be left out.
type Config struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper

	// Limit, if set, is a limit of the caller's own, asked before each request is sent.
	Limit Limit

	// Partition returns the quota of the service that a request takes from: the account
	// of the request's key, or a part of the API that is counted separately. An answer
	// holds back the requests to the same host with the same Partition. Partition must
	// not change the request or read the body. Default: a host has one quota.
	Partition func(r *http.Request) string

	// MaxWait bounds the wait of a request, in addition to the request's context. A
	// request that would be sent later fails at once. Default: the context alone.
	MaxWait time.Duration

	// MaxHold bounds the time for which an answer holds requests back, whatever the
	// service says. After MaxHold a single request is sent to hear again. Default:
	// DefaultMaxHold.
	MaxHold time.Duration
}

// Limit waits until the caller's own limit admits r, and counts r. The context is that
// of r, with the deadline of Config.MaxWait. A Limit must not change r or read the body.
// Many goroutines may call a Limit at once.
//
// If an answer arrives meanwhile that holds r back, the Transport calls giveBack, unless
// it is nil, to uncount r, and asks again when r may be sent. An error fails the request
// with a [*NotSentError]. The error may itself be one, to say Until; the Host is filled
// in.
type Limit func(ctx context.Context, r *http.Request) (giveBack func(), err error)

// ErrHeldBack is the reason of a NotSentError: the service has said that it would deny
// requests until a time after the deadline. [errors.Is] also finds
// limiter.ErrWaitTooLong and context.DeadlineExceeded in ErrHeldBack, though the
// deadline has not passed yet.
var ErrHeldBack = fmt.Errorf("the service asks for a longer wait: %w", loan.ErrTooLate)

// NotSentError is the error of a request that a [Transport] has not sent. The request
// counts under no limit.
type NotSentError struct {
	Host  string
	Until time.Time // no request could be sent before, as far as is known; zero: not known
	Err   error     // ErrHeldBack, the error of Config.Limit, or the context's
}

func (e *NotSentError) Error() string {
	s := fmt.Sprintf("httpclient: request to %q was not sent", e.Host)
	if !e.Until.IsZero() {
		s += ", none can be before " + e.Until.Format(time.RFC3339)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *NotSentError) Unwrap() error { return e.Err }

// Transport is an [http.RoundTripper] for calls to services that limit their callers.
// A request waits as long as the service has asked, and then for Config.Limit, so that
// it is counted when it leaves. Set http.Client.Transport to a Transport. Many goroutines
// may use a Transport at once.
//
// An answer 429, or 503 with Retry-After, holds back the requests to the same host and
// Partition until Retry-After, a number of seconds or a date. An answer of any status
// with RateLimit fields (draft-ietf-httpapi-ratelimit-headers-11) lets as many requests
// be in flight as remain, until quota is made available; with none remaining, no request
// leaves. The older RateLimit-Remaining and X-RateLimit-Remaining, each with a Reset, are
// read if RateLimit is missing. Malformed text is ignored; an answer 429 without a time
// counts as a second. An answer without any of these fields changes nothing and uses no
// quota: the page may have no limit, or the answer is a balancer's. Only the service's
// own word stops requests. When the time is over, requests do not leave all at once: a
// first request is sent, and each good answer lets one more be in flight, or as many as
// the answer says. Up to 3 % of the time, a minute at most, is added at random, since
// other processes have heard the same.
//
// A request fails at once with a [*NotSentError] if its context, or MaxWait, ends before
// its turn. RoundTrip sends a request once and returns the answer unchanged, a 429 too:
// only the caller knows whether the request may be sent again. A redirect is a request
// of its own, to its own host. A proxy or a cache that answers for the host is heard as
// the host, except RateLimit fields of an answer with Age or with a hit in Cache-Status:
// they are another client's.
//
// A Transport remembers the last used hosts that have spoken of limits, up to a thousand,
// and hosts with requests under way.
type Transport struct {
	cfg   Config
	holds holds
}

var _ http.RoundTripper = (*Transport)(nil)

// New makes a Transport. An error names the field of cfg.
func New(cfg Config) (*Transport, error) {
	if cfg.MaxWait < 0 {
		return nil, fmt.Errorf("httpclient: Config.MaxWait is %s, want a positive duration, or 0 for none", cfg.MaxWait)
	}
	if cfg.MaxHold < 0 {
		return nil, fmt.Errorf("httpclient: Config.MaxHold is %s, want a positive duration, or 0 for %s", cfg.MaxHold, DefaultMaxHold)
	}
	cfg.Base = cmp.Or(cfg.Base, http.DefaultTransport)
	return &Transport{cfg, holds{most: cmp.Or(cfg.MaxHold, DefaultMaxHold), seed: maphash.MakeSeed(), of: map[uint64]*hold{}}}, nil
}

// RoundTrip sends r when its turn has come. See Transport.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil {
		return t.cfg.Base.RoundTrip(r) // an error
	}
	p, err := t.await(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	answer, err := t.cfg.Base.RoundTrip(r)
	if err == nil {
		p.heard(answer)
	}
	p.leave()
	return answer, err
}

// CloseIdleConnections calls the method of Base of the same name, if Base has one.
// See [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// await returns when r may be sent and has been counted.
func (t *Transport) await(r *http.Request) (*place, error) {
	lent := loan.Of(r.Context())
	ctx, end := context.Context(lent), lent.End
	if t.cfg.MaxWait > 0 {
		ctx, end = loan.WithTimeout(r.Context(), t.cfg.MaxWait)
	}
	defer end()
	host, partition := HostOf(r), ""
	if t.cfg.Partition != nil {
		partition = t.cfg.Partition(r)
	}
	for {
		p, until, err := t.holds.enter(ctx, host, partition)
		if err != nil {
			return nil, &NotSentError{host, until, err}
		}
		if t.cfg.Limit == nil {
			return p, nil
		}
		giveBack, err := t.cfg.Limit(ctx, r)
		if err != nil {
			p.leave()
			if e, ok := err.(*NotSentError); ok {
				until, err = e.Until, e.Err
			}
			return nil, &NotSentError{host, until, err}
		}
		if p.stays() {
			return p, nil
		}
		// An answer has closed the way meanwhile: the hit would be older than the request.
		p.leave()
		if giveBack != nil {
			giveBack()
		}
	}
}

// HostOf returns the host of r.URL, as "api.example.org" or "192.0.2.7:8080". All
// spellings of a host are one: names are ASCII in small letters, addresses and ports are
// written as netip and strconv write them, and the port of the scheme is left out.
// Another name of the host, or one that only the system's resolver reads as an address,
// such as "127.1", is another host.
func HostOf(r *http.Request) string {
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
