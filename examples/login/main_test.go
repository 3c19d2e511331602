package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
)

func TestOnlyFailuresCount(t *testing.T) {
	site, err := newSite(memory.New(memory.Config{}), map[string]string{"ada": "lovelace", "eve": "x"})
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
	for range 10 {
		status, _ := logIn("ada", "guess")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	status, body := logIn("ada", "lovelace")
	require.Equal(t, http.StatusTooManyRequests, status, "the right password does not help any more")
	require.Regexp(t, `^Too many wrong passwords. Try again in (1h0m[01]|59m5\d)s.\n$`, body)
	status, _ = logIn("eve", "x")
	require.Equal(t, http.StatusOK, status, "others can still log in")
	status, _ = logIn("nobody", "")
	require.Equal(t, http.StatusUnauthorized, status, "who is not known is as wrong as a wrong password")
}
