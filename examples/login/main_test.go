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

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/limitertest"
)

func TestOnlyFailuresCount(t *testing.T) {
	site, _, err := newSite(memory.New(memory.Config{}), map[string]string{"ada": "lovelace", "eve": "x"})
	require.NoError(t, err)
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	logIn := func(user, password string) (int, string) {
		answer, err := http.PostForm(server.URL+"/login", url.Values{"user": {user}, "password": {password}})
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode, string(body)
	}
	for range 50 {
		status, _ := logIn("ada", "lovelace")
		require.Equal(t, http.StatusOK, status, "good log-ins are not counted")
	}
	for range 9 {
		status, _ := logIn("ada", "guess")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	status, _ := logIn("ada", "lovelace")
	require.Equal(t, http.StatusOK, status, "a good log-in clears the failures")
	for range 10 {
		status, _ := logIn("ada", "guess")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	status, body := logIn("ada", "lovelace")
	require.Equal(t, http.StatusTooManyRequests, status, "the right password does not help any more")
	require.Regexp(t, `"detail":"Too many wrong passwords. Try again in (59|6[01]) minutes."`, body)
	status, _ = logIn("eve", "x")
	require.Equal(t, http.StatusOK, status, "others can still log in")
	status, _ = logIn("nobody", "")
	require.Equal(t, http.StatusUnauthorized, status, "who is not known is as wrong as a wrong password")
}

// A browser gets the form again, filled in, with a message and the wait in words, and
// never the password.
func TestBrowser(t *testing.T) {
	site, _, err := newSite(memory.New(memory.Config{}), map[string]string{"ada": "lovelace"})
	require.NoError(t, err)
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	post := func(user, password string) (int, string) {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/login", strings.NewReader(url.Values{"user": {user}, "password": {password}}.Encode()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "text/html; charset=utf-8", answer.Header.Get("Content-Type"))
		return answer.StatusCode, string(body)
	}
	_, body := post("ada", "lovelace")
	require.Contains(t, body, `role="alert">Welcome.`)
	status, body := post("", "guess")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, `role="alert">Please enter your name.`)
	for range 10 {
		status, body = post(`ada`, "guess")
		require.Equal(t, http.StatusUnauthorized, status)
		require.Contains(t, body, `role="alert">Wrong user or password.`)
	}
	status, body = post("ada", "lovelace")
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Regexp(t, `role="alert">Too many wrong passwords. Try again in (59|6[01]) minutes.`, body)
	require.Contains(t, body, `value="ada"`)
	require.NotContains(t, body, "lovelace")
}

func TestCountsSurviveARestart(t *testing.T) {
	free, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	listen, counts := free.Addr().String(), filepath.Join(t.TempDir(), "counts")
	require.NoError(t, free.Close())
	guess := func() int {
		answer, err := http.PostForm("http://"+listen+"/login", url.Values{"user": {"ada"}, "password": {"guess"}})
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
		require.Equal(t, 401, guess())
	}
	stop()
	stop = start()
	require.Equal(t, http.StatusTooManyRequests, guess())
	stop()
}

func TestFailuresAreCountedWithoutAStore(t *testing.T) {
	var faults limitertest.Faults
	site, _, err := newSite(faults.Wrap(memory.New(memory.Config{})), map[string]string{"ada": "lovelace"})
	require.NoError(t, err)
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	logIn := func(password string) int {
		answer, err := http.PostForm(server.URL+"/login", url.Values{"user": {"ada"}, "password": {password}})
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	for range 20 {
		require.Equal(t, http.StatusOK, logIn("lovelace"))
	}
	for range 10 {
		require.Equal(t, http.StatusUnauthorized, logIn("guess"))
	}
	require.Equal(t, http.StatusTooManyRequests, logIn("lovelace"))
}
