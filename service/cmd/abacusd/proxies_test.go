package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// recipes are the parts of service/docs/proxies.md, by the language of their fence. A
// further part in a language has a plus sign more.
func recipes(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/proxies.md")
	require.NoError(t, err)
	parts := map[string]string{}
	for _, part := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		name := part[1]
		for parts[name] != "" {
			name += "+"
		}
		parts[name] = part[2]
	}
	return parts
}

// visitor is a client at an address of the loopback network.
func visitor(address string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
}

// lies are the headers of visitors that claim to be others.
var lies = [][]string{
	{"X: y"},
	{"X-Forwarded-For: 198.51.100.7"},
	{"X-Forwarded-For: 198.51.100.7", "X-Forwarded-For: 198.51.100.8"},
	{"x-forwarded-for: 198.51.100.7, 127.0.0.1"},
	{"X-Forwarded-For: 198.51.100.7, "},
	{"X-Forwarded-For: ", "X-Real-Ip: 198.51.100.7", "Forwarded: for=198.51.100.7", "True-Client-Ip: 198.51.100.7"},
	{"X-Forwarded-For: 198.51.100.7", "Connection: X-Forwarded-For"},
	{"X-Forwarded_For: 198.51.100.7", "X-User: ada", "X-Abacus-Ip: 198.51.100.7"},
	{"Authorization: Bearer 0123456789abcdef", "X-Original-Uri: /auth/none", "X-Forwarded-Uri: /auth/none", "X-Http-Method-Override: POST"},
}

// The lines of the page in real proxies: visitors are limited by their own addresses,
// whatever they send, and get no open gate when the door or the store is away.
func TestRecipes(t *testing.T) {
	parts := recipes(t)
	store := servertest.StartRedis(t)
	config := strings.NewReplacer("127.0.0.1:6379", store.Addr, "127.0.0.1:8080", "127.0.0.1:0").Replace(parts["yaml"])
	dir := files(t, map[string]string{"abacusd.yaml": config, "rules.yaml": strings.NewReplacer("5/s, 100/m", "2/h").Replace(parts["yaml+"])})
	d := serve(t, filepath.Join(dir, "abacusd.yaml")).ready()
	var served atomic.Int64
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
	}))
	t.Cleanup(app.Close)

	for i, proxy := range []struct {
		name             string
		stopped, hanging int
		start            func(t *testing.T, with *strings.Replacer) string
	}{
		{"nginx", 503, 503, func(t *testing.T, with *strings.Replacer) string {
			lines := strings.TrimPrefix(parts["nginx"], "location / {\n")
			return servertest.Nginx(t, "", with.Replace(lines[:strings.LastIndex(lines, "}")]))
		}},
		{"caddy", 502, 504, func(t *testing.T, with *strings.Replacer) string {
			return servertest.Caddy(t, with.Replace(parts["caddy"]))
		}},
		{"haproxy", 503, 503, func(t *testing.T, with *strings.Replacer) string {
			script := filepath.Join(t.TempDir(), "abacus.lua")
			replaceFile(t, script, with.Replace(parts["lua"]))
			return servertest.HAProxy(t, "lua-load "+script, with.Replace(parts["haproxy"]))
		}},
	} {
		t.Run(proxy.name, func(t *testing.T) {
			require.NotEmpty(t, parts[proxy.name])
			in := func(door string) string {
				return "http://" + proxy.start(t, strings.NewReplacer("abacusd:8080", door, "app:80", app.Listener.Addr().String()))
			}
			at := in(d.http)
			mine, other := visitor(fmt.Sprintf("127.0.1.%d", i)), visitor(fmt.Sprintf("127.0.2.%d", i))
			before := served.Load()
			got := ask(mine, "POST", at+"/a?b=c", `{"x":1}`)
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, `POST /a?b=c {"x":1}`, got.body)
			require.Regexp(t, `^"2/h";r=1;t=\d+$`, got.header.Get("RateLimit"))
			require.Equal(t, `"2/h";q=2;w=3600`, got.header.Get("RateLimit-Policy"))
			require.Equal(t, 403, ask(mine, "GET", at+"/forbidden", "", "X-Forwarded-For: 198.51.100.7").status)
			for _, lie := range lies {
				got := ask(mine, "GET", at+"/", "", lie...)
				require.Equal(t, 429, got.status, "%q: %s", lie, got.body)
				require.Regexp(t, `^3[56]\d\d$`, got.header.Get("Retry-After"))
				require.Regexp(t, `^"2/h";r=0;t=3[56]\d\d$`, got.header.Get("RateLimit"))
				require.Equal(t, `"2/h";q=2;w=3600`, got.header.Get("RateLimit-Policy"))
			}
			require.Equal(t, before+2, served.Load())
			require.Equal(t, 200, ask(other, "GET", at+"/", "").status)

			before = served.Load()
			store.Pause()
			got = ask(other, "GET", at+"/", "")
			require.Equal(t, 503, got.status)
			require.Regexp(t, `^[12]$`, got.header.Get("Retry-After"))
			store.Resume()
			d.ready()
			hanging := servertest.Serve(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
			for door, want := range map[string]int{"127.0.0.1:1": proxy.stopped, hanging: proxy.hanging} {
				begun := time.Now()
				require.Equal(t, want, ask(other, "GET", in(door)+"/", "").status)
				long.Less(t, time.Since(begun), 5*time.Second, door)
			}
			require.Equal(t, before, served.Load())
			require.Equal(t, 200, ask(other, "GET", at+"/", "").status)
		})
	}
	require.NotContains(t, d.said(), "127.0.1")
}

// Traefik's forwardAuth asks by GET with all headers of the client, and with
// X-Forwarded-For of its own where trustForwardHeader is false.
func TestTraefik(t *testing.T) {
	require.Contains(t, recipes(t)["yaml"], "page:")
	dir := files(t, map[string]string{"abacusd.yaml": settings("memory"), "rules.yaml": pageRules})
	d := serve(t, filepath.Join(dir, "abacusd.yaml")).ready()
	for i, lie := range lies {
		lines := []string{"X-Forwarded-Method: POST", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example", "X-Forwarded-Uri: /", "X-Forwarded-For: 192.0.2.7"}
		for _, line := range lie {
			if !strings.HasPrefix(strings.ToLower(line), "x-forwarded-for") && !strings.HasPrefix(line, "Connection") {
				lines = append(lines, line)
			}
		}
		got := d.get("/auth/page", lines...)
		require.Equal(t, map[bool]int{true: 204, false: 429}[i < 2], got.status, got.body)
		require.NotEmpty(t, got.header.Get("RateLimit"))
		require.Equal(t, i >= 2, got.header.Get("Retry-After") != "")
	}
}
