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

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// serve serves the site on a store, and returns its address.
func serve(t *testing.T, store backend.Store) string {
	t.Helper()
	site, _, err := newSite(store, map[string]string{"ada": "lovelace", "eve": "x"})
	require.NoError(t, err)
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	return server.URL
}

// post sends the form of a client that accepts a kind of content.
func post(t *testing.T, site, accept, user, password string) (answer *http.Response, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, site+"/login", strings.NewReader(url.Values{"user": {user}, "password": {password}}.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", accept)
	answer, err = http.DefaultClient.Do(r)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer, string(text)
}

func TestOnlyFailuresCount(t *testing.T) {
	site := serve(t, memory.New(memory.Config{}))
	for _, step := range []struct {
		times          int
		user, password string
		status         int
		why            string
	}{
		{50, "ada", "lovelace", 200, "good log-ins are not counted"},
		{9, "ada", "guess", 401, ""},
		{1, "ada", "lovelace", 200, "a good log-in clears the failures"},
		{10, "ada", "guess", 401, ""},
		{1, "ada", "lovelace", 429, "the right password does not help any more"},
		{1, "eve", "x", 200, "others can still log in"},
		{1, "nobody", "", 401, "who is not known is as wrong as a wrong password"},
	} {
		for range step.times {
			answer, body := post(t, site, "*/*", step.user, step.password)
			require.Equal(t, step.status, answer.StatusCode, step.why)
			if step.status == http.StatusTooManyRequests {
				require.Regexp(t, `"detail":"Too many wrong passwords. Try again in (59|6[01]) minutes."`, body)
			}
		}
	}
}

// A browser gets the form again, filled in, with a message and the wait in words, and
// never the password.
func TestBrowser(t *testing.T) {
	site := serve(t, memory.New(memory.Config{}))
	for _, step := range []struct {
		times          int
		user, password string
		status         int
		message        string
	}{
		{1, "ada", "lovelace", 200, "Welcome."},
		{1, "", "guess", 400, "Please enter your name."},
		{10, "ada", "guess", 401, "Wrong user or password."},
		{1, "ada", "lovelace", 429, "Too many wrong passwords. Try again in (59|6[01]) minutes."},
	} {
		for range step.times {
			answer, body := post(t, site, browser, step.user, step.password)
			require.Equal(t, step.status, answer.StatusCode)
			require.Equal(t, "text/html; charset=utf-8", answer.Header.Get("Content-Type"))
			require.Regexp(t, `role="alert">`+step.message, body)
			require.NotContains(t, body, "lovelace")
			if step.status != http.StatusOK {
				require.Contains(t, body, `value="`+step.user+`"`)
			}
		}
	}
}

// A program that ends writes its counts, and the next one goes on with them.
func TestCountsSurviveARestart(t *testing.T) {
	free, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	listen, counts := free.Addr().String(), filepath.Join(t.TempDir(), "counts")
	require.NoError(t, free.Close())
	for _, statuses := range [][]int{slices.Repeat([]int{401}, 10), {429}} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, listen, counts) }()
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", listen)
			return err == nil && conn.Close() == nil
		}, 10*time.Second, 10*time.Millisecond)
		for _, want := range statuses {
			answer, _ := post(t, "http://"+listen, "*/*", "ada", "guess")
			require.Equal(t, want, answer.StatusCode)
		}
		cancel()
		require.NoError(t, <-ended)
	}
}

func TestFailuresAreCountedWithoutAStore(t *testing.T) {
	var faults limitertest.Faults
	site := serve(t, faults.Wrap(memory.New(memory.Config{})))
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	for i, want := range slices.Concat(slices.Repeat([]int{200}, 20), slices.Repeat([]int{401}, 10), []int{429}) {
		password := map[bool]string{true: "guess", false: "lovelace"}[want == 401]
		answer, _ := post(t, site, "*/*", "ada", password)
		require.Equal(t, want, answer.StatusCode, i)
	}
}
