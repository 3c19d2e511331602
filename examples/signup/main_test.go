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

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/limitertest"
)

const (
	browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8" // its Accept
	html    = "text/html; charset=utf-8"
	problem = "application/problem+json"
)

// serve serves the site on a store, and returns its address.
func serve(t *testing.T, store backend.Store) string {
	t.Helper()
	site, _, err := newSite(store)
	require.NoError(t, err)
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	return server.URL
}

// post sends the form of a client that accepts a kind of content.
func post(t *testing.T, site, accept, email string) (answer *http.Response, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, site+"/signup", strings.NewReader(url.Values{"email": {email}}.Encode()))
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

func TestSignUps(t *testing.T) {
	site := serve(t, memory.New(memory.Config{}))
	for _, step := range []struct {
		email  string
		status int
		why    string
	}{
		{"ada@example.org", 200, "first"},
		{"ADA@example.org", 200, "the same address again"},
		{"ada+news@example.org", 429, "and once more: two a day"},
		{"not an address", 400, "counts for its network"},
		{"", 400, "that too"},
		{"b@example.org", 200, "somebody else from the same network: the fifth that counts"},
		{"c@example.org", 429, "five an hour from one network"},
	} {
		answer, body := post(t, site, "*/*", step.email)
		require.Equal(t, step.status, answer.StatusCode, "%s: %s", step.why, body)
		switch step.status {
		case http.StatusOK:
			require.Contains(t, body, step.email)
		case http.StatusTooManyRequests:
			require.NotContains(t, body, "ada")
		}
	}
	form, err := http.Get(site)
	require.NoError(t, err)
	require.NoError(t, form.Body.Close())
	require.Equal(t, http.StatusOK, form.StatusCode, "looking at the form is not limited")
}

// A browser gets the form again, filled in, with a message and the wait in words.
func TestBrowser(t *testing.T) {
	site := serve(t, memory.New(memory.Config{}))
	for _, row := range []struct {
		accept, email string
		status        int
		kind          string
		want          []string
	}{
		{browser, "ada@example.org", 200, html, []string{"We have sent a mail to ada@example.org."}},
		{browser, "ada@example.org", 200, html, nil},
		{browser, "ada@example.org", 429, html, []string{`role="alert">Too many sign-ups. Try again in 25 hours.`, `value="ada@example.org"`}},
		{"*/*", "ada@example.org", 429, problem, []string{`"detail":"Too many sign-ups. Try again in 25 hours."`, "quota-exceeded"}},
		{browser, `"><script>`, 400, html, []string{`role="alert">Please enter an e-mail address,`, `value="&#34;&gt;&lt;script&gt;"`}},
		{browser, strings.Repeat("a", 20_000), 413, html, []string{"The request is larger than 16384 bytes", `value=""`}},
		{"*/*", "", 400, problem, []string{`"detail":"Please enter an e-mail address, such as ada@example.org."`}},
	} {
		answer, body := post(t, site, row.accept, row.email)
		require.Equal(t, row.status, answer.StatusCode, body)
		require.Equal(t, row.kind, answer.Header.Get("Content-Type"))
		require.Equal(t, row.status == 429, answer.Header.Get("Retry-After") != "")
		for _, text := range row.want {
			require.Contains(t, body, text)
		}
	}
}

// A program that ends writes its counts, and the next one goes on with them.
func TestCountsSurviveARestart(t *testing.T) {
	free, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	listen, counts := free.Addr().String(), filepath.Join(t.TempDir(), "counts")
	require.NoError(t, free.Close())
	for _, statuses := range [][]int{{200, 200}, {429}} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, listen, counts) }()
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", listen)
			return err == nil && conn.Close() == nil
		}, 10*time.Second, 10*time.Millisecond)
		for _, want := range statuses {
			answer, _ := post(t, "http://"+listen, "*/*", "ada@example.org")
			require.Equal(t, want, answer.StatusCode)
		}
		cancel()
		require.NoError(t, <-ended)
	}
}

func TestSignUpsAreCountedWithoutAStore(t *testing.T) {
	var faults limitertest.Faults
	site := serve(t, faults.Wrap(memory.New(memory.Config{})))
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	for _, want := range []int{200, 200, 429} {
		answer, _ := post(t, site, "*/*", "ada@example.org")
		require.Equal(t, want, answer.StatusCode)
	}
}
