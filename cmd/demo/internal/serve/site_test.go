package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/internal/watch"
	"github.com/abacus-go/abacus/cmd/internal/web"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

const asBrowser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// visit sends a form, or gets a path without one.
func visit(s *Server, path, accept string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, "http://localhost"+path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Accept", accept)
	r.RemoteAddr = "127.0.0.1:4711"
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func newServer(t *testing.T) *Server { return try.To(New(t.Context()))(t) }

// A visitor is denied until the last second of Retry-After, and then admitted.
func TestSiteAdmitsAtRetryAfter(t *testing.T) {
	addresses := func(yield func(url.Values) bool) {
		for i := 0; yield(url.Values{"email": {fmt.Sprintf("visitor-%d@example.org", i)}}); i++ {
		}
	}
	for name, row := range map[string]struct {
		path     string
		forms    func(func(url.Values) bool)
		admitted int
		status   int
		rule     string
	}{
		"an address":  {"/site/signup", forever(url.Values{"email": {"ada@example.org"}}), 1, 200, "1/15s by email"},
		"addresses":   {"/site/signup", addresses, 3, 200, "3/20s by ip"},
		"short links": {"/site/shorten", forever(url.Values{"url": {"https://example.org/"}}), 5, 201, "5/30s by ip"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				var denied url.Values
				n := 0
				for form := range row.forms {
					if n++; n > row.admitted {
						denied = form
						break
					}
					w := visit(s, row.path, "*/*", form)
					require.Equal(t, row.status, w.Code, w.Body)
					require.NotEmpty(t, w.Header().Get("RateLimit-Policy"))
				}
				time.Sleep(1234 * time.Millisecond)
				send := func(want int) *httptest.ResponseRecorder {
					w := visit(s, row.path, "*/*", denied)
					require.Equal(t, want, w.Code, w.Body)
					return w
				}
				w := send(http.StatusTooManyRequests)
				require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
				require.Contains(t, w.Body.String(), row.rule)
				after := try.To(strconv.Atoi(w.Header().Get("Retry-After")))(t)
				require.Contains(t, w.Body.String(), fmt.Sprintf("Try again in %d s.", after))
				time.Sleep(time.Duration(after-1) * time.Second)
				send(http.StatusTooManyRequests)
				time.Sleep(time.Second)
				send(row.status)
			})
		})
	}
}

func forever(form url.Values) func(func(url.Values) bool) {
	return func(yield func(url.Values) bool) {
		for yield(form) {
		}
	}
}

// Without JavaScript the page itself is the answer.
func TestSiteAnswersForms(t *testing.T) { synctest.Test(t, testSiteAnswersForms) }

func testSiteAnswersForms(t *testing.T) {
	s := newServer(t)
	for _, row := range []struct {
		path, value string
		status      int
		want        []string
	}{
		{"signup", "ada@example.org", 200, []string{`data-status="200"`, "Signed up: ada@example.org", `<dd data-name="RateLimit-Policy">`, `value="https://example.org/"`}},
		{"signup", "ADA+news@example.org", 429, []string{`429 Too Many Requests`, `The limit 1/15s by email is used up. Try again in 1`, `<dd data-name="Retry-After">1`, `value="ADA&#43;news@example.org"`}},
		{"signup", `"><script>alert(1)</script>`, 400, []string{`role="alert">Want a mail address`, `aria-invalid="true"`, `value="&#34;&gt;&lt;script&gt;`}},
		{"signup", "", 400, []string{`role="alert">Want a mail address`}},
		{"signup", "eve@example.org", 429, []string{"The limit 3/20s by ip is used up."}}, // mistakes count for the client
		{"shorten", "javascript:alert(1)", 400, []string{`role="alert">Want an address of http or https`, `value="javascript:alert(1)"`}},
		{"shorten", "", 400, []string{`role="alert">Want an address of http or https`}},
		{"shorten", "https:example.org", 400, nil},
		{"shorten", "//example.org", 400, nil},
		{"shorten", "https://example.org/" + strings.Repeat("a", maxTarget), 400, []string{"The address has 2020 bytes, want at most 2000."}},
		{"shorten", strings.Repeat("a", web.MaxBody+1), 413, []string{"The form has more than 16384 bytes."}},
		{"shorten", `https://example.org/"><script>?a=1&b=2`, 201, []string{`<a id="shorten-link" href="http://localhost/s/0">`}}, // the first that counts
	} {
		w := visit(s, "/site/"+row.path, asBrowser, url.Values{siteFields[row.path].name: {row.value}})
		require.Equal(t, row.status, w.Code, "%.40s", row.value)
		// The script of the layout is the only one.
		require.Equal(t, 1, strings.Count(w.Body.String(), "<script"))
		require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
		require.Equal(t, row.status == 429, w.Header().Get("Retry-After") != "")
		for _, text := range row.want {
			require.Contains(t, w.Body.String(), text)
		}
	}
	require.Len(t, s.site.numbers.Snapshot(10).MostDenied, 2, "the watch page has them")

	large := visit(newServer(t), "/site/signup", "*/*", url.Values{"email": {strings.Repeat("a", web.MaxBody+1)}})
	require.Equal(t, http.StatusRequestEntityTooLarge, large.Code)
	follow := visit(s, "/s/0", asBrowser, nil)
	require.Equal(t, http.StatusFound, follow.Code)
	require.Equal(t, "https://example.org/%22%3E%3Cscript%3E?a=1&b=2", follow.Header().Get("Location"))
	for _, id := range []string{"1", "-1", "rs", "%2e", "zzzzzzzzzzzzzzzzzz"} {
		require.Equal(t, http.StatusNotFound, visit(s, "/s/"+id, asBrowser, nil).Code, id)
	}
}

func TestSiteKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		for _, email := range []string{"ada@example.org", "eve@example.org"} {
			require.Equal(t, http.StatusOK, visit(s, "/site/signup", "*/*", url.Values{"email": {email}}).Code)
		}
		look := func(query string) (keys []watch.Key) {
			w := visit(s, "/site/key?"+query, "*/*", nil)
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &keys))
			return keys
		}
		keys := look("event=signup&email=Ada%2Bx@example.org")
		require.Len(t, keys, 2)
		ip, email := keys[0], keys[1]
		require.Equal(t, "ip:127.0.0.1", ip.Feature)
		require.Equal(t, []watch.KeyLimit{{Limit: "3/20s", Low: 2, Used: 2, Room: 1}, {Limit: "30/h", Low: 2, Used: 2, Room: 28}}, ip.Limits)
		require.Equal(t, "email:ada@example.org", email.Feature)
		require.Equal(t, int64(1), email.Limits[0].Used)
		require.Greater(t, email.Limits[0].RetryAfter, 14_000.0)
		for _, key := range keys {
			var beads int64
			for _, n := range key.Rods.Rods[0].Counts {
				beads += n
			}
			require.Equal(t, key.Limits[0].Used, beads, "the window's rod has every hit")
		}
		require.Len(t, look("event=signup&email=none"), 1, "what is no address has no key")
		require.Equal(t, int64(0), look("event=shorten")[0].Limits[0].Used)
		require.Equal(t, http.StatusBadRequest, visit(s, "/site/key?event=x", "*/*", nil).Code)

		time.Sleep(21 * time.Second)
		keys = look("event=signup")
		require.Equal(t, []watch.KeyLimit{{Limit: "3/20s", Low: 0, Used: 0, Room: 3}, {Limit: "30/h", Low: 2, Used: 2, Room: 28}}, keys[0].Limits)
	})
}

func TestSiteDropsTheOldestLink(t *testing.T) {
	var l links
	follow := func(name string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(http.MethodGet, "/s/"+name, nil), httptest.NewRecorder()
		r.SetPathValue("id", name)
		l.follow(w, r)
		return w
	}
	first, second := l.add("https://example.org/first"), l.add("https://example.org/second")
	for range maxLinks - 2 {
		l.add("https://example.org/")
	}
	require.Equal(t, "https://example.org/first", follow(first).Header().Get("Location"))
	last := l.add("https://example.org/last")
	require.Equal(t, http.StatusNotFound, follow(first).Code)
	require.Equal(t, "https://example.org/second", follow(second).Header().Get("Location"))
	require.Equal(t, "https://example.org/last", follow(last).Header().Get("Location"))
}
