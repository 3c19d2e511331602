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

func TestSignUps(t *testing.T) {
	site, _, err := newSite(memory.New(memory.Config{}))
	require.NoError(t, err)
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)

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
		answer, err := http.PostForm(server.URL+"/signup", url.Values{"email": {step.email}})
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, step.status, answer.StatusCode, "%s: %s", step.why, body)
		switch step.status {
		case http.StatusOK:
			require.Contains(t, string(body), step.email)
		case http.StatusTooManyRequests:
			require.NotEmpty(t, answer.Header.Get("Retry-After"))
			require.NotContains(t, string(body), "ada")
		}
	}
	form, err := http.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, form.Body.Close())
	require.Equal(t, http.StatusOK, form.StatusCode, "looking at the form is not limited")
}

// A browser gets the form again, filled in, with a message and the wait in words.
func TestBrowser(t *testing.T) {
	site, _, err := newSite(memory.New(memory.Config{}))
	require.NoError(t, err)
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	for _, row := range []struct {
		accept, email string
		status        int
		kind          string
		want          []string
	}{
		{browser, "ada@example.org", 200, html, []string{"We have sent a mail to ada@example.org."}},
		{browser, "ada@example.org", 200, html, nil},
		{browser, "ada@example.org", 429, html, []string{`role="alert">Too many sign-ups. Try again in 25 hours.`, `value="ada@example.org"`}},
		{"*/*", "ada@example.org", 429, "application/problem+json", []string{`"detail":"Too many sign-ups. Try again in 25 hours."`, "quota-exceeded"}},
		{browser, `"><script>`, 400, html, []string{`role="alert">Please enter an e-mail address,`, `value="&#34;&gt;&lt;script&gt;"`}},
		{browser, strings.Repeat("a", 20_000), 413, html, []string{"The request is larger than 16384 bytes", `value=""`}},
		{"*/*", "", 400, "application/problem+json", []string{`"detail":"Please enter an e-mail address, such as ada@example.org."`}},
	} {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/signup", strings.NewReader(url.Values{"email": {row.email}}.Encode()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", row.accept)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, row.status, answer.StatusCode, string(body))
		require.Equal(t, row.kind, answer.Header.Get("Content-Type"))
		require.Equal(t, row.status == 429, answer.Header.Get("Retry-After") != "")
		for _, text := range row.want {
			require.Contains(t, string(body), text)
		}
	}
}

// browser is the Accept of a browser.
const (
	browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	html    = "text/html; charset=utf-8"
)

func TestCountsSurviveARestart(t *testing.T) {
	free, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	listen, counts := free.Addr().String(), filepath.Join(t.TempDir(), "counts")
	require.NoError(t, free.Close())
	signUp := func() int {
		answer, err := http.PostForm("http://"+listen+"/signup", url.Values{"email": {"ada@example.org"}})
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
	for range 2 {
		require.Equal(t, 200, signUp())
	}
	stop()
	stop = start()
	require.Equal(t, http.StatusTooManyRequests, signUp())
	stop()
}

func TestSignUpsAreCountedWithoutAStore(t *testing.T) {
	var faults limitertest.Faults
	site, _, err := newSite(faults.Wrap(memory.New(memory.Config{})))
	require.NoError(t, err)
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		answer, err := http.PostForm(server.URL+"/signup", url.Values{"email": {"ada@example.org"}})
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.StatusCode)
	}
}
