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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/limitertest"
)

var accounts = map[string]account{
	"ada": {password: "lovelace"}, "eve": {password: "x"}, "alan": {password: "turing", pays: true}, "root": {password: "toor", support: true},
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// serve serves the site on a store, and returns its address.
func serve(t *testing.T, store backend.Store) string {
	t.Helper()
	site, _, err := newSite(store, accounts)
	require.NoError(t, err)
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	return server.URL
}

// ask sends a request of a user, with a form if it is not empty, and follows no
// redirection.
func ask(t *testing.T, method, address, accept, name string, form url.Values) (answer *http.Response, body string) {
	t.Helper()
	r, err := http.NewRequest(method, address, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", accept)
	if name != "" {
		r.SetBasicAuth(name, accounts[name].password)
	}
	answer, err = http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer, string(text)
}

// shorten makes links, and wants a status of each; it returns the last answer.
func shorten(t *testing.T, site, accept, name, target string, statuses ...int) (answer *http.Response, body string) {
	t.Helper()
	for i, want := range statuses {
		answer, body = ask(t, http.MethodPost, site+"/links", accept, name, url.Values{"url": {target}})
		require.Equal(t, want, answer.StatusCode, "%s, link %d: %s", name, i, body)
	}
	return answer, strings.TrimSpace(body)
}

// made is the statuses of n links, and then of one too many.
func made(n int) []int {
	return append(slices.Repeat([]int{http.StatusCreated}, n), http.StatusTooManyRequests)
}

func TestLinksPerUser(t *testing.T) {
	site := serve(t, memory.New(memory.Config{}))
	answer, link := shorten(t, site, "*/*", "ada", "https://go.dev/doc", 201)
	require.Contains(t, answer.Header.Get("RateLimit"), `"10/m";r=9;`)
	for range 20 {
		answer, _ := ask(t, http.MethodGet, link, "*/*", "", nil)
		require.Equal(t, "https://go.dev/doc", answer.Header.Get("Location"))
		require.Empty(t, answer.Header.Get("RateLimit"), "following is not limited")
	}
	shorten(t, site, "*/*", "ada", "ftp://go.dev", 400, 400, 400, 400, 400) // what is no link does not count
	answer, _ = shorten(t, site, "*/*", "ada", "https://go.dev", made(9)...)
	require.Contains(t, answer.Header.Get("RateLimit"), `"10/m";r=0;t=`+answer.Header.Get("Retry-After"))
	shorten(t, site, "*/*", "eve", "https://go.dev", 201) // another user has his own limit
	shorten(t, site, "*/*", "", "https://go.dev", 401)
}

// Users who pay make more links, and support sees and unlocks users of full plans.
func TestPlansAndSupport(t *testing.T) {
	site := serve(t, memory.New(memory.Config{}))
	for name, most := range map[string]int{"ada": 10, "alan": 60} {
		shorten(t, site, "*/*", name, "https://go.dev", made(most)...)
	}
	answer, page := ask(t, http.MethodGet, site+"/users/alan", "*/*", "root", nil)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Contains(t, page, "60/m: 60 used, 0 left, full for ")
	require.Contains(t, page, "5000/d: 60 used, 4940 left\n")
	answer, _ = ask(t, http.MethodPost, site+"/users/alan/unlock", "*/*", "root", nil)
	require.Equal(t, http.StatusNoContent, answer.StatusCode)
	shorten(t, site, "*/*", "alan", "https://go.dev", 201)
	_, page = ask(t, http.MethodGet, site+"/users/ada", "*/*", "root", nil)
	require.Contains(t, page, "100/d: 10 used, 90 left\n", "another user's counts stay")
	answer, _ = ask(t, http.MethodGet, site+"/users/ada", "*/*", "ada", nil)
	require.Equal(t, http.StatusForbidden, answer.StatusCode)
}

// A browser gets the form again, filled in, with a message and the wait in words.
func TestBrowser(t *testing.T) {
	site := serve(t, memory.New(memory.Config{}))
	for _, row := range []struct {
		name, target string
		statuses     []int
		want         string // of the last
	}{
		{"ada", "https://go.dev", []int{201}, `<a href="` + site + "/"},
		{"ada", "https://go.dev", made(9), `role="alert">Your plan has 10/m\. Try again in \d+ seconds\.(?s:.*)value="https://go.dev"`},
		{"nobody", "https://go.dev", []int{401}, `Please log in\.`},
		{"eve", "ftp://go.dev", []int{400}, `Please enter a link that begins with https://\.(?s:.*)value="ftp://go.dev"`},
	} {
		answer, body := shorten(t, site, browser, row.name, row.target, row.statuses...)
		require.Equal(t, "text/html; charset=utf-8", answer.Header.Get("Content-Type"))
		require.Regexp(t, row.want, body)
	}
}

func TestLinksAreCountedWithoutAStore(t *testing.T) {
	var faults limitertest.Faults
	site := serve(t, faults.Wrap(memory.New(memory.Config{})))
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	shorten(t, site, "*/*", "ada", "https://go.dev", made(10)...)
}

// A program that ends writes its counts, and the next one goes on with them.
func TestCountsSurviveARestart(t *testing.T) {
	free, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	listen, counts := free.Addr().String(), filepath.Join(t.TempDir(), "counts")
	require.NoError(t, free.Close())
	for _, statuses := range [][]int{slices.Repeat([]int{201}, 10), {429}} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, listen, counts) }()
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", listen)
			return err == nil && conn.Close() == nil
		}, 10*time.Second, 10*time.Millisecond)
		shorten(t, "http://"+listen, "*/*", "ada", "https://go.dev", statuses...)
		cancel()
		require.NoError(t, <-ended)
	}
}
