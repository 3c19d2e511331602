package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/limitertest"
)

var accounts = map[string]account{
	"ada": {password: "lovelace"}, "eve": {password: "x"}, "alan": {password: "turing", pays: true}, "root": {password: "toor", support: true},
}

func start(t *testing.T, store backend.Store) (shorten func(name, target string) (*http.Response, string), server *httptest.Server) {
	t.Helper()
	site, _, err := newSite(store, accounts)
	require.NoError(t, err)
	server = httptest.NewServer(site)
	t.Cleanup(server.Close)
	return func(name, target string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, server.URL+"/links", strings.NewReader(url.Values{"url": {target}}.Encode()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth(name, accounts[name].password)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer, strings.TrimSpace(string(body))
	}, server
}

func TestLinksPerUser(t *testing.T) {
	shorten, server := start(t, memory.New(memory.Config{}))

	answer, link := shorten("ada", "https://go.dev/doc")
	require.Equal(t, http.StatusCreated, answer.StatusCode)
	require.Contains(t, answer.Header.Get("RateLimit"), `"10/m";r=9;`)
	once := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for range 20 {
		answer, err := once.Get(link)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "https://go.dev/doc", answer.Header.Get("Location"))
		require.Empty(t, answer.Header.Get("RateLimit"), "following is not limited")
	}
	for range 5 {
		answer, _ = shorten("ada", "ftp://go.dev")
		require.Equal(t, http.StatusBadRequest, answer.StatusCode, "what is no link does not count")
	}
	for range 9 {
		answer, _ = shorten("ada", "https://go.dev")
		require.Equal(t, http.StatusCreated, answer.StatusCode)
	}
	answer, _ = shorten("ada", "https://go.dev")
	require.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	require.Contains(t, answer.Header.Get("RateLimit"), `"10/m";r=0;t=`+answer.Header.Get("Retry-After"))
	answer, _ = shorten("eve", "https://go.dev")
	require.Equal(t, http.StatusCreated, answer.StatusCode, "another user has his own limit")

	stranger, err := http.Post(server.URL+"/links", "", nil)
	require.NoError(t, err)
	require.NoError(t, stranger.Body.Close())
	require.Equal(t, http.StatusUnauthorized, stranger.StatusCode)
}

// Users who pay make more links, and support sees and unlocks users of full plans.
func TestPlansAndSupport(t *testing.T) {
	shorten, server := start(t, memory.New(memory.Config{}))
	ask := func(method, path, name string) (int, string) {
		r, err := http.NewRequest(method, server.URL+path, nil)
		require.NoError(t, err)
		r.SetBasicAuth(name, accounts[name].password)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode, string(body)
	}
	for name, most := range map[string]int{"ada": 10, "alan": 60} {
		for range most {
			answer, _ := shorten(name, "https://go.dev")
			require.Equal(t, http.StatusCreated, answer.StatusCode)
		}
		answer, _ := shorten(name, "https://go.dev")
		require.Equal(t, http.StatusTooManyRequests, answer.StatusCode, name)
	}
	status, page := ask(http.MethodGet, "/users/alan", "root")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "60/m: 60 used, 0 left, full for ")
	require.Contains(t, page, "5000/d: 60 used, 4940 left\n")
	status, _ = ask(http.MethodPost, "/users/alan/unlock", "root")
	require.Equal(t, http.StatusNoContent, status)
	answer, _ := shorten("alan", "https://go.dev")
	require.Equal(t, http.StatusCreated, answer.StatusCode)
	_, page = ask(http.MethodGet, "/users/ada", "root")
	require.Contains(t, page, "100/d: 10 used, 90 left\n", "another user's counts stay")
	status, _ = ask(http.MethodGet, "/users/ada", "ada")
	require.Equal(t, http.StatusForbidden, status)
}

// A browser gets the form again, filled in, with a message and the wait in words.
func TestBrowser(t *testing.T) {
	_, server := start(t, memory.New(memory.Config{}))
	post := func(name, target string) (int, string) {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/links", strings.NewReader(url.Values{"url": {target}}.Encode()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
		r.SetBasicAuth(name, accounts[name].password)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "text/html; charset=utf-8", answer.Header.Get("Content-Type"))
		return answer.StatusCode, string(body)
	}
	for range 10 {
		status, body := post("ada", "https://go.dev")
		require.Equal(t, http.StatusCreated, status)
		require.Contains(t, body, `<a href="`+server.URL+"/")
	}
	status, body := post("ada", "https://go.dev")
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Regexp(t, `role="alert">Your plan has 10/m. Try again in \d+ seconds.`, body)
	require.Contains(t, body, `value="https://go.dev"`)
	status, body = post("nobody", "https://go.dev")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, body, "Please log in.")
	status, body = post("eve", "ftp://go.dev")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "Please enter a link that begins with https://.")
	require.Contains(t, body, `value="ftp://go.dev"`)
}

func TestLinksAreCountedWithoutAStore(t *testing.T) {
	var faults limitertest.Faults
	shorten, _ := start(t, faults.Wrap(memory.New(memory.Config{})))
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	for range 10 {
		answer, _ := shorten("ada", "https://go.dev")
		require.Equal(t, http.StatusCreated, answer.StatusCode)
	}
	answer, _ := shorten("ada", "https://go.dev")
	require.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
}

func TestCountsSurviveARestart(t *testing.T) {
	free, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	listen, counts := free.Addr().String(), filepath.Join(t.TempDir(), "counts")
	require.NoError(t, free.Close())
	shorten := func() int {
		r, err := http.NewRequest(http.MethodPost, "http://"+listen+"/links", strings.NewReader("url=https://go.dev"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth("ada", "lovelace")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, listen, counts) }()
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", listen)
			return err == nil && conn.Close() == nil
		}, 10*time.Second, 10*time.Millisecond)
		return func() {
			cancel()
			require.NoError(t, <-ended)
		}
	}
	stop := start()
	for range 10 {
		require.Equal(t, 201, shorten())
	}
	stop()
	stop = start()
	require.Equal(t, http.StatusTooManyRequests, shorten())
	stop()
}
