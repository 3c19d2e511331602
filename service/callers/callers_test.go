package callers

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/service/config"
)

const token = "0123456789abcdef"

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func newSet(t *testing.T, callers ...config.Caller) *Set {
	t.Helper()
	s, err := New(&config.Config{Callers: callers})
	require.NoError(t, err)
	return s
}

// peerAt is the peer of a request from an address.
func peerAt(address string, authorization []string, state *tls.ConnectionState) Peer {
	return PeerOf(&http.Request{RemoteAddr: address, Header: http.Header{"Authorization": authorization}, TLS: state})
}

func from(network string) []config.Peers {
	var p config.Peers
	if err := p.UnmarshalText([]byte(network)); err != nil {
		panic(err)
	}
	return []config.Peers{p}
}

func TestWhoMay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, token)
	uri, err := url.Parse("spiffe://shop/envoy")
	require.NoError(t, err)
	now := time.Now()
	cert := func(until time.Duration) *tls.ConnectionState {
		c := &x509.Certificate{DNSNames: []string{"envoy.internal"}, URIs: []*url.URL{uri}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(until)}
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	}
	unverified := cert(time.Hour)
	unverified.VerifiedChains = nil

	s := newSet(t,
		config.Caller{Name: "nginx", From: append(from("10.0.0.0/8"), from("2001:db8::/64")...), May: []config.Verb{config.Auth}},
		config.Caller{Name: "shop", TokenFile: file, May: []config.Verb{config.Take, config.Auth}, Events: []string{"signup"}},
		config.Caller{Name: "both", TokenFile: file, From: from("10.0.0.1"), May: []config.Verb{config.Forget}},
		config.Caller{Name: "dns", SAN: "envoy.internal", May: []config.Verb{config.Charge}},
		config.Caller{Name: "uri", SAN: "spiffe://shop/envoy", May: []config.Verb{config.Refund}},
		config.Caller{Name: "here", From: from("unix"), May: []config.Verb{config.Usage}},
	)
	bearer := []string{"Bearer " + token}
	for _, row := range []struct {
		address       string
		authorization []string
		state         *tls.ConnectionState
		verb          config.Verb
		event, want   string
	}{
		{"10.1.2.3:4", nil, nil, config.Auth, "any", "nginx"},
		{"[::ffff:10.1.2.3]:4", nil, nil, config.Auth, "any", "nginx"},
		{"[2001:db8::7%eth0]:4", nil, nil, config.Auth, "any", "nginx"},
		{"11.1.2.3:4", nil, nil, config.Auth, "any", ""},
		{"10.1.2.3:4", nil, nil, config.Take, "signup", ""},
		{"", nil, nil, config.Auth, "any", ""},
		{"@", nil, nil, config.Usage, "any", "here"},
		{"10.1.2.3:4", nil, nil, config.Usage, "any", ""},
		{"11.1.2.3:4", bearer, nil, config.Take, "signup", "shop"},
		{"11.1.2.3:4", bearer, nil, config.Take, "", "shop"},
		{"11.1.2.3:4", bearer, nil, config.Take, "mail", ""},
		{"10.1.2.3:4", bearer, nil, config.Auth, "signup", "nginx"},
		{"11.1.2.3:4", []string{"bearer  " + token + " "}, nil, config.Take, "signup", "shop"},
		{"11.1.2.3:4", []string{"Basic " + token}, nil, config.Take, "signup", ""},
		{"11.1.2.3:4", []string{token}, nil, config.Take, "signup", ""},
		{"11.1.2.3:4", []string{"Bearer"}, nil, config.Take, "signup", ""},
		{"11.1.2.3:4", []string{"Bearer " + token[:15]}, nil, config.Take, "signup", ""},
		{"11.1.2.3:4", []string{"Bearer " + token + "0"}, nil, config.Take, "signup", ""},
		{"11.1.2.3:4", []string{"Bearer " + strings.ToUpper(token)}, nil, config.Take, "signup", ""},
		{"11.1.2.3:4", append(bearer, bearer...), nil, config.Take, "signup", ""},
		{"10.0.0.1:4", bearer, nil, config.Forget, "any", "both"},
		{"10.0.0.2:4", bearer, nil, config.Forget, "any", ""},
		{"10.0.0.1:4", nil, nil, config.Forget, "any", ""},
		{"11.1.2.3:4", nil, cert(time.Hour), config.Charge, "any", "dns"},
		{"11.1.2.3:4", nil, cert(time.Hour), config.Refund, "any", "uri"},
		{"11.1.2.3:4", nil, cert(-time.Minute), config.Charge, "any", ""},
		{"11.1.2.3:4", nil, unverified, config.Charge, "any", ""},
	} {
		require.Equal(t, row.want, s.Of(peerAt(row.address, row.authorization, row.state)).May(row.verb, row.event), "%+v", row)
	}
	for at, want := range map[time.Duration]string{-2 * time.Hour: "", 59 * time.Minute: "dns", 61 * time.Minute: ""} { // a connection outlasts its certificate
		s.now = func() time.Time { return now.Add(at) }
		require.Equal(t, want, s.Of(peerAt("11.1.2.3:4", nil, cert(time.Hour))).May(config.Charge, "any"), at)
	}
}

// Without callers this machine may do what needs no token.
func TestLocal(t *testing.T) {
	s := newSet(t)
	for _, verb := range config.Verbs {
		for address, is := range map[string]bool{"127.0.0.1:4": true, "[::1]:4": true, "@": true, "192.0.2.7:4": false} {
			got := s.Of(peerAt(address, nil, nil)).May(verb, "any") == "local"
			require.Equal(t, is && !verb.Guarded(), got, "%s of %s", verb, address)
		}
	}
}

// A changed file holds within a second; a bad one has no token.
func TestTokensChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, token)
	s := newSet(t, config.Caller{Name: "shop", TokenFile: file, May: []config.Verb{config.Take}})
	now := time.Now()
	s.now = func() time.Time { return now }
	knows := func(token string) bool {
		return s.Of(Peer{Addr: netip.IPv4Unspecified(), Token: token}).May(config.Take, "") == "shop"
	}
	require.True(t, knows(token))

	next := strings.Repeat("n", leastToken)
	for _, row := range []struct {
		text     string
		old, new bool
	}{
		{"\r\n" + token + "\r\n\n  " + next + "  \n", true, true},
		{next, false, true},
		{"", false, false},
		{"\n\r\n", false, false},
		{token, true, false},
		{token + "\nshort", false, false},
		{token + " x", false, false},
		{token + "\x00", false, false},
		{token + strings.Repeat("\n", maxTokens), false, false},
	} {
		require.NoError(t, os.Remove(file))
		write(t, file, row.text)
		before := [2]bool{knows(token), knows(next)}
		require.Equal(t, before, [2]bool{knows(token), knows(next)}, "within the second")
		now = now.Add(rereadTime)
		require.Equal(t, [2]bool{row.old, row.new}, [2]bool{knows(token), knows(next)}, "%.40q", row.text)
	}
	write(t, file, token)
	now = now.Add(-time.Hour) // the clock was set
	require.True(t, knows(token))
	require.NoError(t, os.Remove(file))
	now = now.Add(rereadTime)
	require.False(t, knows(token))
	_, err := New(&config.Config{Callers: []config.Caller{{Name: "shop", TokenFile: file}}})
	require.ErrorIs(t, err, os.ErrNotExist)
	write(t, file, "a\nshort")
	_, err = New(&config.Config{Callers: []config.Caller{{Name: "shop", TokenFile: file}, {Name: "none", TokenFile: file + ".none"}}})
	require.ErrorContains(t, err, ":1: the token has 1 bytes")
	require.ErrorContains(t, err, "callers[1].token_file: open", "all files")
	require.NotContains(t, err.Error(), "short")
}

// A token that no caller has makes a client no caller in its network either, but for the
// doors, and where no caller has a token.
func TestUnknownTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, token)
	near := config.Caller{Name: "near", From: from("10.0.0.0/8"), May: []config.Verb{config.Take, config.Auth}}
	far := config.Caller{Name: "far", From: from("11.0.0.0/8"), TokenFile: file, May: []config.Verb{config.Take, config.Usage}}
	for _, row := range []struct {
		address, line string
		verb          config.Verb
		event, want   string
		status        int
	}{
		{"10.0.0.1:4", "Bearer " + token + "0", config.Take, "", "", 401},
		{"10.0.0.1:4", "Bearer " + token + "0", config.Auth, "", "near", 200},
		{"10.0.0.1:4", "Bearer " + token + "0", config.Usage, "", "", 401},
		{"10.0.0.1:4", "Bearer " + token, config.Take, "", "near", 200}, // a caller's, from elsewhere
		{"10.0.0.1:4", "Bearer " + token, config.Usage, "", "", 403},
		{"10.0.0.1:4", "Basic " + token, config.Take, "", "near", 200},
		{"10.0.0.1:4", "", config.Take, "mail", "near", 200},
		{"10.0.0.1:4", "", config.Usage, "mail", "", 403},
		{"11.0.0.1:4", "Bearer " + token, config.Usage, "mail", "far", 200},
		{"11.0.0.1:4", "Bearer " + token, config.Auth, "", "", 403},
		{"11.0.0.1:4", "", config.Usage, "", "", 401},
		{"12.0.0.1:4", "Bearer " + token, config.Take, "", "", 401},
	} {
		g := newSet(t, near, far).Of(peerAt(row.address, []string{row.line}, nil))
		require.Equal(t, row.want, g.May(row.verb, row.event), "%+v", row)
		status, reason := g.Refuse(row.verb, row.event)
		require.Equal(t, row.status, status, "%+v", row)
		require.Equal(t, row.status == 200, reason == nil)
	}
	require.Equal(t, "near", newSet(t, near).Of(peerAt("10.0.0.1:4", []string{"Bearer " + token}, nil)).May(config.Take, ""))
}
