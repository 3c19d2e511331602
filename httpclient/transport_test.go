package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httpclient"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
)

// service answers requests without a network.
type service func(r *http.Request) *http.Response

func (s service) RoundTrip(r *http.Request) (*http.Response, error) {
	if answer := s(r); answer != nil {
		return answer, nil
	}
	return nil, errors.New("connection refused")
}

// answering is an answer with fields as in `Retry-After: 5`.
func answering(status int, fields ...string) *http.Response {
	h := http.Header{}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody}
}

func newTransport(t *testing.T, cfg httpclient.Config) *httpclient.Transport {
	return try.To(httpclient.New(cfg))(t)
}

// send sends a request without a body.
func send(ctx context.Context, t *httpclient.Transport, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := t.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// host is the service of most tests.
const host = "https://api.example.org"

// get is send to a path of host, which must be answered.
func get(t *testing.T, tr *httpclient.Transport, path string) int {
	return try.To(send(t.Context(), tr, host+path))(t)
}

// ownLimit is a Limiter of the event "pay" by host.
func ownLimit(t *testing.T, limits string) *limiter.Limiter {
	c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{}))(t)
	lim := try.To(limiter.New(c, limiter.Config{Rules: []limiter.Rule{{Event: "pay", Kind: httplimit.KindHost, Limits: counter.MustLimits(limits)}}}))(t)
	return lim
}

func outgoing(t *testing.T, lim *limiter.Limiter) httpclient.Limit {
	return try.To(httplimit.Outgoing(lim, "pay", nil))(t)
}

// The wait of a request after an answer, true or not, to another request.
func TestTransportHears(t *testing.T) {
	const never = 0
	// Time in a bubble of synctest begins then.
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	in := func(d time.Duration, form string) string { return began.Add(d).Format(form) }
	const rfc850, asctime = "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC
	long := strings.Repeat(`"p";r=0;t=9, `, 1000) + `"p";r=0;t=9`
	for _, row := range []struct {
		wait    time.Duration
		answers []string // a status and fields, with bars between
	}{
		{5 * time.Second, []string{"429|Retry-After: 5", "503|Retry-After: 5"}},
		{never, []string{"200|Retry-After: 5", "301|Retry-After: 5", "503", "429|Retry-After: 0",
			"503|Retry-After: soon"}},
		{time.Second, []string{"429", "429|Retry-After: -5", "429|Retry-After: +5",
			"429|Retry-After: 5.5", "429|Retry-After: soon"}},
		{httpclient.DefaultMaxHold, []string{"429|Retry-After: 315360000",
			"429|Retry-After: 99999999999999999999999999"}},

		{time.Minute, []string{"429|Retry-After: " + in(time.Minute, http.TimeFormat),
			"429|Retry-After: " + in(time.Minute, rfc850),
			"503|Retry-After: " + in(time.Minute, asctime),
			"429|Retry-After: " + in(time.Hour, http.TimeFormat) + "|Date: " + in(59*time.Minute, http.TimeFormat)}},
		{never, []string{"429|Retry-After: " + in(-time.Hour, http.TimeFormat)}},
		{httpclient.DefaultMaxHold, []string{"429|Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"}},

		{7 * time.Second, []string{`200|RateLimit: "day";r=0;t=7`,
			"404|RateLimit: day;r=0;t=7;pk=:cHsdsRa894==:", `429|RateLimit: "day";r=1;t=7`,
			`429|Retry-After: soon|RateLimit: "day";r=0;t=7`,
			`200|RateLimit-Policy: "9 per day in UTC";q=9|RateLimit: "9 per day in UTC";r=0;t=7`,
			`200|RateLimit: "day";r=0;t=7|Cache-Status: "edge 1"; fwd=uri-miss; stored|Cache-Status: other; hit=?0`}},
		{time.Hour, []string{`200|RateLimit: "s";r=0;t=1, "h";r=0;t=3600|RateLimit: "d";r=9;t=9000`}},
		{2 * time.Second, []string{`429|Retry-After: 2|RateLimit: "day";r=0;t=7`}},
		{httpclient.DefaultMaxHold, []string{`200|RateLimit: "day";r=0;t=999999999999999`}},
		{never, []string{`200|RateLimit: "day";r=5;t=7`, `200|RateLimit: "day";r=0`,
			`200|RateLimit: "day";r=0;t=0`,
			`200|RateLimit: "day";r=-1;t=7|RateLimit: ("day");r=0;t=7`,
			`200|RateLimit: "day";r=0;t=7, "`, "200|RateLimit: limit=100, remaining=0, reset=50",
			"200|RateLimit: " + long, `200|RateLimit: "day";r=0;t=7|Age: 3`,
			`200|RateLimit: "day";r=0;t=7|Age: 0`,
			`200|RateLimit: "day";r=0;t=7|Cache-Status: origin; fwd=uri-miss; stored, "edge 1"; hit; ttl=9`,
			"200|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 7|Age: 0"}},
		{3 * time.Second, []string{"429|Retry-After: 3|Age: 3"}},

		{7 * time.Second, []string{"200|RateLimit-Remaining: 0|RateLimit-Reset: 7",
			"200|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 7",
			"200|X-RateLimit-Remaining: 0|" + fmt.Sprint("X-RateLimit-Reset: ", began.Unix()+7+1_000_000_000) + "|Date: " + in(1_000_000_000*time.Second, http.TimeFormat),
			"200|X-RateLimit-Remaining: 0|" + fmt.Sprint("X-RateLimit-Reset: ", (began.Unix()+7+1_000_000_000)*1000) + "|Date: " + in(1_000_000_000*time.Second, http.TimeFormat)}},
		{never, []string{"200|X-RateLimit-Remaining: 0",
			"200|X-RateLimit-Remaining: x|X-RateLimit-Reset: 7"}},
		{9 * time.Second, []string{`200|RateLimit: "day";r=0;t=9|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 7`}},
	} {
		for _, text := range row.answers {
			synctest.Test(t, func(t *testing.T) {
				require.True(t, began.Equal(time.Now()))
				fields := strings.Split(text, "|")
				status := try.To(strconv.Atoi(fields[0]))(t)
				sent := 0
				tr := newTransport(t, httpclient.Config{Base: service(func(*http.Request) *http.Response {
					if sent++; sent == 1 {
						return answering(status, fields[1:]...)
					}
					return answering(200)
				})})
				require.Equal(t, status, get(t, tr, "/"), "the answer is the caller's")
				for _, other := range []string{"https://example.org/", "http://api.example.org:8080/"} {
					try.To(send(t.Context(), tr, other))(t)
					require.Zero(t, time.Since(began), other)
				}
				try.To(send(t.Context(), tr, "https://API.example.org.:443/other"))(t)
				waited := time.Since(began)
				require.GreaterOrEqual(t, waited, row.wait, text)
				require.LessOrEqual(t, waited, row.wait+min(row.wait*3/100, time.Minute), text)
				require.Equal(t, 4, sent)
				if !strings.Contains(text, "r=5") {
					require.Zero(t, tr.Holds(), text)
				}
			})
		}
	}
}

// body reports whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

// A request whose turn comes after its end fails at once, unsent and uncounted,
// with the host and the time in the error.
func TestTransportFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var sent atomic.Int64
		lim := ownLimit(t, "3/h")
		var retryAfter atomic.Int64
		tr := newTransport(t, httpclient.Config{Limit: outgoing(t, lim), MaxWait: 2 * time.Hour, Base: service(func(*http.Request) *http.Response {
			sent.Add(1)
			return answering(429, fmt.Sprint("Retry-After: ", retryAfter.Load()))
		})})
		post := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			b := &body{Reader: strings.NewReader("x")}
			r := try.To(http.NewRequestWithContext(ctx, "POST", host+"/", b))(t)
			answer, err := tr.RoundTrip(r)
			if err == nil {
				return answer.Body.Close()
			}
			require.True(t, b.closed)
			return err
		}
		left := func() int64 {
			return try.To(lim.Peek(t.Context(), "pay", 0, feature.New(httplimit.KindHost, "api.example.org")))(t).Remaining
		}
		retryAfter.Store(100)
		require.NoError(t, post(time.Minute))
		err := post(99 * time.Second)
		require.ErrorIs(t, err, httpclient.ErrHeldBack)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var notSent *httpclient.NotSentError
		require.ErrorAs(t, err, &notSent)
		require.Equal(t, "api.example.org", notSent.Host)
		require.WithinRange(t, notSent.Until, began.Add(100*time.Second), began.Add(103*time.Second))
		require.Regexp(t, `^httpclient: request to "api.example.org" was not sent, none can be before 2000-01-01T00:01:4\d.*: the service asks for a longer wait`, err.Error())
		require.EqualValues(t, 2, left(), "nothing was counted")
		require.Zero(t, time.Since(began))

		// A request that waits already learns of a later end as soon as it is known.
		failed := make(chan error, 1)
		for _, timeout := range []time.Duration{90 * time.Minute, 90 * time.Minute, 104 * time.Second} {
			go func() {
				if err := post(timeout); timeout < time.Hour {
					failed <- err
				}
			}()
			synctest.Wait()
		}
		retryAfter.Store(600)
		time.Sleep(103 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, sent.Load())
		require.ErrorIs(t, <-failed, httpclient.ErrHeldBack)
		require.Less(t, time.Since(began), 104*time.Second)
		retryAfter.Store(0)
		time.Sleep(3 * time.Hour)

		// The own limit, and MaxWait.
		for left() > 0 {
			require.NoError(t, post(time.Minute))
		}
		before := sent.Load()
		err = post(time.Minute)
		require.ErrorIs(t, err, limiter.ErrWaitTooLong)
		require.NotErrorIs(t, err, httpclient.ErrHeldBack)
		require.ErrorAs(t, err, &notSent)
		require.True(t, notSent.Until.After(time.Now()), notSent.Until)
		retryAfter.Store(10000)
		time.Sleep(2 * time.Hour)
		require.NoError(t, post(time.Hour))
		require.ErrorIs(t, post(time.Hour*24), httpclient.ErrHeldBack, "MaxWait")
		require.Equal(t, before+1, sent.Load())
		time.Sleep(time.Hour)

		// Canceled while waiting, or before.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		for range 2 {
			began = time.Now()
			require.ErrorIs(t, try.Err(send(ctx, tr, host+"/")), context.Canceled)
			require.LessOrEqual(t, time.Since(began), time.Second)
		}
		require.Equal(t, before+1, sent.Load())
		time.Sleep(3 * time.Hour)
		require.Zero(t, lim.Stats().Waiting)
	})
}

// Requests that were held back do not leave all at once, but one, two, four ...
// as good answers come; a request that hangs keeps the others back for a while; and
// an answer that tells how many may follow has as many follow.
func TestTransportAfterAHold(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer []string
		hangs  bool
		ends   time.Duration // after the hold
		most   int           // in flight
	}{
		{"slow start", nil, false, 6 * time.Second, 32},
		{"as told", []string{`RateLimit: "m";r=20;t=60`}, false, 5 * time.Second, 20},
		{"the first hangs", nil, true, httpclient.PlacePatience + 6*time.Second, 33},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				began, flying, most, sent := time.Now(), 0, 0, 0
				until := began.Add(100 * time.Second)
				tr := newTransport(t, httpclient.Config{Base: service(func(*http.Request) *http.Response {
					mu.Lock()
					sent++
					if sent == 1 {
						mu.Unlock()
						return answering(429, "Retry-After: 100")
					}
					hangs := row.hangs && sent == 2
					flying++
					most = max(most, flying)
					mu.Unlock()
					time.Sleep(time.Second)
					if hangs {
						time.Sleep(time.Hour)
					}
					mu.Lock()
					flying--
					mu.Unlock()
					return answering(200, row.answer...)
				})})
				get(t, tr, "/")
				var all sync.WaitGroup
				for i := range 63 {
					all.Go(func() {
						if _, err := send(t.Context(), tr, host+"/"); err != nil {
							t.Error(i, err)
						}
					})
				}
				time.Sleep(time.Until(until) + 4*time.Second)
				time.Sleep(row.ends)
				mu.Lock()
				require.Equal(t, 64, sent, "each request once")
				require.LessOrEqual(t, most, row.most)
				if !row.hangs {
					require.Zero(t, flying)
				}
				mu.Unlock()
				all.Wait()
				time.Sleep(time.Hour)
				get(t, tr, "/")
				if row.answer == nil {
					require.Zero(t, tr.Holds())
				}
			})
		})
	}
}

// Many callers of a service with a quota of its own, which tells the rest with
// each answer, or not: nearly no request is denied, all are answered, none is sent
// twice, and the time is about the least.
func TestTransportAgainstAQuota(t *testing.T) {
	for _, tells := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const quota, workers, each = 50, 40, 25
			var mu sync.Mutex
			began, window, used, denied, sent := time.Now(), time.Time{}, int64(0), 0, map[string]int{}
			tr := newTransport(t, httpclient.Config{Base: service(func(r *http.Request) *http.Response {
				time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
				defer time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				now := time.Now()
				if !now.Before(window) {
					window, used = now.Add(10*time.Second), 0
				}
				reset := int64(math.Ceil(window.Sub(now).Seconds()))
				if used == quota {
					denied++
					return answering(429, fmt.Sprint("Retry-After: ", reset))
				}
				used++
				sent[r.URL.Path]++
				if tells {
					return answering(200, fmt.Sprintf(`RateLimit: "w";r=%d;t=%d`, quota-used, reset))
				}
				return answering(200)
			})})
			ticket.SideBySide(workers, func(w int) {
				for i := 0; i < each; {
					status, err := send(t.Context(), tr, fmt.Sprintf("https://api.example.org/%d/%d", w, i))
					assert.NoError(t, err)
					if status == 200 {
						i++
					}
				}
			})
			took := time.Since(began)
			require.Len(t, sent, workers*each)
			for path, n := range sent {
				require.Equal(t, 1, n, path)
			}
			const windows = workers * each / quota
			t.Logf("tells %v: %d denied of %d, %s", tells, denied, workers*each, took)
			require.LessOrEqual(t, took, windows*12*time.Second)
			if tells {
				require.LessOrEqual(t, denied, workers)
			} else {
				require.LessOrEqual(t, denied, windows*workers)
			}
		})
	}
}

// Hosts that an attacker names are forgotten, and the host that is in use is not;
// partitions do not hold one another back.
func TestTransportFloodOfHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, httpclient.Config{
			Partition: func(r *http.Request) string { return r.Header.Get("Authorization") },
			Base:      service(func(*http.Request) *http.Response { return answering(429, "Retry-After: 3600") }),
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		try.To(send(ctx, tr, host+"/"))(t)
		for i := range 5 * httpclient.MaxHolds {
			try.To(send(ctx, tr, fmt.Sprintf("https://%d.example.net/", i)))(t)
			time.Sleep(time.Millisecond)
			require.ErrorIs(t, try.Err(send(ctx, tr, host+"/")), httpclient.ErrHeldBack)
			require.LessOrEqual(t, tr.Holds(), httpclient.MaxHolds)
		}
		r := try.To(http.NewRequestWithContext(ctx, "GET", host+"/", nil))(t)
		r.Header.Set("Authorization", "Bearer 7")
		require.NoError(t, try.To(tr.RoundTrip(r))(t).Body.Close())
	})
}

// A request that waits for the own limit while an answer closes the way waits
// again, and its hit is as young as the request.
func TestTransportCountsWhenItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times []time.Duration
		began := time.Now()
		lim := ownLimit(t, "1/m, 3/d")
		tr := newTransport(t, httpclient.Config{Limit: outgoing(t, lim), Base: service(func(r *http.Request) *http.Response {
			times = append(times, time.Since(began))
			if r.URL.Path == "/slow" {
				time.Sleep(30 * time.Second)
				return answering(503, "Retry-After: 3600")
			}
			return answering(200)
		})})
		go func() { _, _ = send(t.Context(), tr, "https://api.example.org/slow") }()
		synctest.Wait()
		get(t, tr, "/")
		require.Len(t, times, 2)
		require.Greater(t, times[1], time.Hour)
		v := try.To(lim.Peek(t.Context(), "pay", 1, feature.New(httplimit.KindHost, "api.example.org")))(t)
		require.Greater(t, v.RetryAfter, 59*time.Second)
		time.Sleep(2 * time.Minute)
		v = try.To(lim.Peek(t.Context(), "pay", 1, feature.New(httplimit.KindHost, "api.example.org")))(t)
		require.True(t, v.Allowed, "two of three a day are counted")
	})
}

// Real servers: HTTP 1.1 and 2, a redirect to another host, a client's Timeout, and
// a service that is limited by the middleware of this package.
func TestTransportOnServers(t *testing.T) {
	lim := ownLimit(t, "2/h")
	limit := try.To(httplimit.New(httplimit.Config{Limiter: lim, Event: "pay", Show: []string{httplimit.KindHost}, Features: []httplimit.Source{
		httplimit.NewSource(httplimit.KindHost, func(*http.Request) (string, error) { return "all", nil }),
	}}))(t)
	for _, h2 := range []bool{false, true} {
		var mu sync.Mutex
		seen := map[string]int{}
		site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			seen[r.Proto+" "+r.URL.Path]++
			mu.Unlock()
			switch r.URL.Path {
			case "/elsewhere":
				http.Redirect(w, r, "https://localhost:"+r.URL.Query().Get("port")+"/busy", http.StatusTemporaryRedirect)
			case "/busy":
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
			case "/limited":
				limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
			}
		}))
		site.EnableHTTP2 = h2
		site.StartTLS()
		t.Cleanup(site.Close)
		base := site.Client().Transport.(*http.Transport)
		base.TLSClientConfig.ServerName = "example.com" // of the certificate
		client := &http.Client{Transport: newTransport(t, httpclient.Config{Base: base}), Timeout: 10 * time.Second}
		t.Cleanup(client.CloseIdleConnections)
		address := try.To(url.Parse(site.URL))(t)
		for range 3 {
			answer, err := client.Post(site.URL+"/elsewhere?port="+address.Port(), "text/plain", strings.NewReader("x"))
			if err == nil {
				require.Equal(t, 503, answer.StatusCode)
				require.NoError(t, answer.Body.Close())
				continue
			}
			var notSent *httpclient.NotSentError
			require.ErrorAs(t, err, &notSent)
			require.Equal(t, "localhost:"+address.Port(), notSent.Host, "the host of the redirect is held back, and not the host that redirects")
			require.ErrorIs(t, err, httpclient.ErrHeldBack)
		}
		proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2]
		require.Equal(t, map[string]int{proto + " /elsewhere": 3, proto + " /busy": 1}, seen)
		statuses := []int{}
		for range 4 {
			answer, err := client.Get(site.URL + "/limited")
			if err != nil {
				require.ErrorIs(t, err, httpclient.ErrHeldBack)
				statuses = append(statuses, 0)
				continue
			}
			statuses = append(statuses, answer.StatusCode)
			require.NoError(t, answer.Body.Close())
		}
		if h2 { // the hour is used up by HTTP 1.1
			require.Equal(t, []int{429, 0, 0, 0}, statuses)
		} else {
			require.Equal(t, []int{200, 200, 0, 0}, statuses, "r=0: a third would be denied, and is not sent")
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for want, cfg := range map[string]httpclient.Config{
		"httpclient: Config.MaxWait is -1s, want a positive duration, or 0 for none":    {MaxWait: -time.Second},
		"httpclient: Config.MaxHold is -1s, want a positive duration, or 0 for 25h0m0s": {MaxHold: -time.Second},
	} {
		require.EqualError(t, try.Err(httpclient.New(cfg)), want)
	}
	require.ErrorContains(t, try.Err(newTransport(t, httpclient.Config{}).RoundTrip(&http.Request{})), "nil Request.URL")
}

// Any function can be the limit of the caller's own: its error fails a request unsent, it
// need not give back, and it has the time that the request has.
func TestTransportUnderAnyLimit(t *testing.T) {
	no := errors.New("no")
	var limit httpclient.Limit
	tr := newTransport(t, httpclient.Config{
		MaxWait: time.Minute,
		Limit:   func(ctx context.Context, r *http.Request) (func(), error) { return limit(ctx, r) },
		Base:    service(func(*http.Request) *http.Response { return answering(200) }),
	})
	get := func() error {
		_, err := send(t.Context(), tr, host+"/")
		return err
	}
	limit = func(ctx context.Context, r *http.Request) (func(), error) {
		deadline, _ := ctx.Deadline()
		require.WithinRange(t, deadline, time.Now(), time.Now().Add(time.Minute))
		require.Equal(t, "api.example.org", r.URL.Host)
		return nil, nil
	}
	require.NoError(t, get())
	limit = func(context.Context, *http.Request) (func(), error) { return nil, no }
	require.Equal(t, &httpclient.NotSentError{Host: "api.example.org", Err: no}, get())
	until := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	limit = func(context.Context, *http.Request) (func(), error) {
		return nil, &httpclient.NotSentError{Until: until, Err: no}
	}
	require.EqualError(t, get(), `httpclient: request to "api.example.org" was not sent, none can be before 2030-01-02T03:04:05Z: no`)
}

// A limit that admits while the way is closed is asked again, with or without a way to
// give back.
func TestTransportGivesBack(t *testing.T) {
	for _, gives := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			asked, given := 0, 0
			tr := newTransport(t, httpclient.Config{
				Limit: func(_ context.Context, r *http.Request) (giveBack func(), err error) {
					if r.URL.Path == "/" {
						asked++
						time.Sleep(2 * time.Second)
					}
					if gives {
						giveBack = func() { given++ }
					}
					return giveBack, nil
				},
				Base: service(func(r *http.Request) *http.Response {
					if r.URL.Path == "/" {
						return answering(200)
					}
					time.Sleep(time.Second)
					return answering(429, "Retry-After: 60")
				}),
			})
			go func() { _, _ = send(t.Context(), tr, "https://api.example.org/busy") }()
			get(t, tr, "/")
			require.Equal(t, 2, asked)
			require.Equal(t, gives, given == 1)
		})
	}
}

// A service with a sliding window tells with each answer of a window that ends a
// little later. Its newest answer counts, not the least of all: of ten requests that
// follow a fuller window all leave at once.
func TestTransportHearsThatRoomHasComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		tr := newTransport(t, httpclient.Config{Base: service(func(*http.Request) *http.Response {
			time.Sleep(500 * time.Millisecond)
			if sent.Add(1) == 1 {
				return answering(200, `RateLimit: "m";r=1;t=60`)
			}
			return answering(200, `RateLimit: "m";r=20;t=60`)
		})})
		for range 2 {
			get(t, tr, "/")
		}
		began := time.Now()
		ticket.SideBySide(10, func(int) { _, _ = send(t.Context(), tr, host+"/") })
		require.Equal(t, 500*time.Millisecond, time.Since(began))
	})
}

// Requests that wait for a limit of their own for long lose their places, or hear a
// denial meanwhile. They leave as any other request: no more than the service has said,
// and one at first after a denial.
func TestTransportAfterALongWaitForItsOwnLimit(t *testing.T) {
	for _, row := range []struct {
		name   string
		status int
		field  string
		after  int // requests that leave before the next answer
	}{
		{"quota for one", 200, `RateLimit: "d";r=1;t=600`, 1},
		{"quota for all", 200, `RateLimit: "d";r=9;t=600`, 4},
		{"a denial", 429, "Retry-After: 5", 1},
	} {
		for _, known := range []bool{false, true} { // when the requests begin to wait
			t.Run(fmt.Sprintf("%s, known %v", row.name, known), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var sent atomic.Int64
					tr := newTransport(t, httpclient.Config{Limit: outgoing(t, ownLimit(t, "4/30s")), Base: service(func(*http.Request) *http.Response {
						switch n := sent.Add(1); {
						case n < 4:
							if !known {
								time.Sleep(time.Millisecond)
							}
							return answering(200, `RateLimit: "d";r=4;t=600`)
						case n > 4:
							time.Sleep(9 * time.Second)
							return answering(200)
						}
						time.Sleep(time.Second)
						return answering(row.status, row.field)
					})})
					var all sync.WaitGroup
					defer all.Wait()
					for range 8 {
						all.Go(func() { _, _ = send(t.Context(), tr, host+"/") })
						if known {
							synctest.Wait()
						}
					}
					time.Sleep(35 * time.Second)
					require.EqualValues(t, 4+row.after, sent.Load())
				})
			})
		}
	}
}

// Answers without fields of the service, from pages without a limit or from a balancer,
// use no place up: a Transport that has heard of places never closes by itself.
func TestTransportClosesByTheServicesWordOnly(t *testing.T) {
	for _, row := range []struct {
		name   string
		first  string
		status int
	}{
		{"pages without a limit", `RateLimit: "20/d";r=19;t=86401`, 200},
		{"a balancer's 502", `RateLimit: "20/d";r=3;t=86401`, 502},
		{"one place", `RateLimit: "20/d";r=1;t=86401`, 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent atomic.Int64
				tr := newTransport(t, httpclient.Config{Base: service(func(*http.Request) *http.Response {
					time.Sleep(time.Second)
					switch sent.Add(1) {
					case 1, 151:
						return answering(200, row.first)
					case 152:
						return answering(200, `RateLimit: "20/d";r=0;t=86401`)
					}
					return answering(row.status)
				})})
				get := func() error {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					_, err := send(ctx, tr, host+"/")
					return err
				}
				for i := range 152 {
					require.NoError(t, get(), i)
				}
				require.ErrorIs(t, get(), httpclient.ErrHeldBack, "the service has said r=0")
			})
		})
	}
}

// A host is limited once, however it is written, as net/http connects to one host for all
// of the spellings.
func TestTransportKnowsAHostInAnySpelling(t *testing.T) {
	for want, spellings := range map[string][]string{
		"api.example.org":       {"http://api.example.org", "http://API.example.org:80", "http://api.example.org:", "http://api.example.org.:0080", "http://api\u3002example.org", "https://api.example.org:443", "https://api.example.org:00443"},
		"api.example.org:8080":  {"http://api.example.org:8080", "https://api.example.org:08080", "http://api.example.org.:8080"},
		"127.0.0.1:8080":        {"http://127.0.0.1:8080", "http://[::ffff:127.0.0.1]:8080", "http://[::ffff:7f00:1]:08080", "http://[0:0:0:0:0:ffff:127.0.0.1]:8080", "http://\uff11\uff12\uff17.0.0.1:8080"},
		"[::1]":                 {"http://[::1]", "http://[0:0::1]:80", "http://[::0001]:080"},
		"[fe80::1%eth0]:81":     {"http://[fe80::1%25eth0]:81", "http://[FE80:0::1%25eth0]:081"},
		"xn--mnchen-3ya.de":     {"http://m\u00fcnchen.de", "http://M\u00dcNCHEN.de", "http://mu\u0308nchen.de", "http://xn--mnchen-3ya.de", "http://XN--MNCHEN-3YA.de."},
		"a_b.internal":          {"http://a_b.internal", "http://A_B.internal:80"},
		"api.example.org:99999": {"http://api.example.org:99999"}, // no port: the request fails
	} {
		for _, spelling := range spellings {
			require.Equal(t, want, httpclient.HostOf(try.To(http.NewRequest("GET", spelling, nil))(t)), spelling)
		}
	}
}

// Waiting requests leave in the order of arrival, and requests that give up leave the
// queue from its middle.
func TestTransportQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiting = 2000
		var left []int
		tr := newTransport(t, httpclient.Config{Base: service(func(r *http.Request) *http.Response {
			if r.URL.Path == "/" {
				return answering(429, "Retry-After: 9")
			}
			var i int
			_, _ = fmt.Sscanf(r.URL.Path, "/%d", &i)
			left = append(left, i) // one at a time: each answer tells of one place
			return answering(200, `RateLimit: "d";r=1;t=600`)
		})})
		get(t, tr, "/")
		var all sync.WaitGroup
		want := []int{}
		for i := range waiting {
			patience := time.Hour
			if i%3 == 1 { // before its turn
				patience = time.Second
			} else {
				want = append(want, i)
			}
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context()) // without a deadline: it waits
				defer cancel()
				defer time.AfterFunc(patience, cancel).Stop()
				_, _ = send(ctx, tr, fmt.Sprintf("https://api.example.org/%d", i))
			})
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, want, left)
	})
}
