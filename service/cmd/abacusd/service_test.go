package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // of clients
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// The first commands of a stranger: the example, and the three lines that it prints.
func TestExample(t *testing.T) {
	d := serve(t, "--http", "127.0.0.1:0").ready()
	banner := regexp.MustCompile(`(?s)This is the example, in memory: .*\n  curl .* http://` + d.http + `/auth/signup .*\n  go run \./cmd/abacusd ask http://` + d.http + ` mail user:ada .*\n  go run \./cmd/abacusd serve cmd/abacusd/example/abacusd\.yaml `)
	d.eventually("the example's three lines", func() bool { return banner.MatchString(d.said()) })
	typed := strings.NewReplacer("go run ./cmd/abacusd", "IS_ABACUSD=1 "+os.Args[0], "curl -i", "curl -si").Replace(banner.FindString(d.said()))
	lines := strings.Split(typed, "\n")[1:]
	sh := func(line string) (out string, status int) {
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = "../.." // as the README says
		said, err := cmd.Output()
		var exit *exec.ExitError
		require.True(t, err == nil || errors.As(err, &exit), "%s: %v", line, err)
		return string(said), cmd.ProcessState.ExitCode()
	}
	for i := range 6 {
		out, _ := sh(lines[0])
		require.Contains(t, out, map[bool]string{true: " 204 No Content", false: " 429 Too Many Requests"}[i < 5], i)
	}
	for i := range 4 {
		out, status := sh(lines[1])
		if i < 3 {
			require.Equal(t, fmt.Sprintf("mail: admitted\n  user 3/h: %d left\n", 2-i), out)
			require.Zero(t, status)
		} else {
			require.Regexp(t, `^mail: over-limit, again in 3[56]\d\d(\.\d+)?s\n  user 3/h: 0 left, again in 3[56]\d\d(\.\d+)?s\n$`, out)
			require.Equal(t, 3, status)
		}
	}
	out, status := sh(strings.Replace(lines[2], " serve ", " check ", 1))
	require.Zero(t, status)
	require.Contains(t, out, "rules    2, of the events mail, signup\n")
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	call := regexp.MustCompile(`\$ (curl .*)\n    (.*)\n`).FindStringSubmatch(string(readme))
	out, _ = sh("curl -s " + strings.NewReplacer("curl ", "", "localhost:8080", d.http, "user:ada", "user:curl").Replace(call[1]))
	times := regexp.MustCompile(`"reset_after":[0-9.]+`)
	require.Equal(t, times.ReplaceAllString(call[2], ""), times.ReplaceAllString(strings.TrimSpace(out), ""))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/limited/v1/take" {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(other.Close)
	const none = "the answer is none of abacusd's; is a proxy at this address?"
	for _, row := range []struct {
		want   string
		status int
		args   []string
	}{
		{"mail: admitted\n  user 3/h: 2 left\n", 0, []string{"--peek", "http://" + d.http, "mail", "user:bob"}},
		{"mail: admitted\n  user 3/h: 2 left\n", 0, []string{"http://" + d.http + "/", "mail", "user:bob"}},
		{"mail: over-limit, and no wait will do\n  user 3/h: ", 3, []string{"--n=4", "http://" + d.http, "mail", "user:bob"}},
		{"mail: missing user, and no wait will do\n", 3, []string{"http://" + d.http, "mail", "email:bob@example.org"}},
		{`abacusd: error: 404 Not Found: no rule has the event "none".`, 1, []string{"http://" + d.http, "none", "user:bob"}},
		{"abacusd: error: 400 Bad Request: features[0] is no feature", 1, []string{"http://" + d.http, "mail", "bob"}},
		{"expected", 80, []string{"http://" + d.http, "mail"}},
		{`the address is "` + d.http + `", want a URL such as http://localhost:8080`, 80, []string{d.http, "mail", "user:bob"}},
		{`the address is "localhost", want a URL`, 80, []string{"localhost", "mail", "user:bob"}},
		{`the address is "redis://h", want a URL`, 80, []string{"redis://h", "mail", "user:bob"}},
		{"error: 429 Too Many Requests: " + none + ", again in 7s\n", 1, []string{other.URL + "/limited", "mail", "user:bob"}},
		{"error: 200 OK: " + none + "\n", 1, []string{other.URL, "mail", "user:bob"}},
	} {
		out, errs, status := runs(t, append([]string{"ask"}, row.args...)...)
		require.Contains(t, out+errs, row.want)
		require.Equal(t, row.status, status, "%s%s", out, errs)
	}
	require.Zero(t, d.stop())
	_, errs, status := runs(t, "ask", "http://"+d.http, "mail", "user:bob")
	require.Contains(t, errs, "connection refused")
	require.Equal(t, 1, status)
	_, errs, status = runs(t, "serve", "--http", "0.0.0.0:0")
	require.Contains(t, errs, "open to other machines")
	require.Equal(t, 1, status)
}

// What is read is said in a few lines, and all faults are, with their lines, in the order
// of lines: those of the file, and of all files and rules that it names.
func TestCheck(t *testing.T) {
	dir := files(t, map[string]string{
		"rules.yaml": pageRules, "short": "short", "long": "0123456789abcdef", "empty": "",
		"good.yaml":  settings("redis://u:secret-word@127.0.0.1:1/0") + `callers: [{name: a, token_file: long, may: [take, metrics], events: [page]}]`,
		"full.yaml":  strings.Replace(settings("memcached://127.0.0.1:1,127.0.0.1:2"), "listen: {", "envoy: {rules: envoy.yaml}\nlisten: {grpc: 'unix:/run/a.sock', ", 1),
		"envoy.yaml": envoyRules, "example.yaml": string(exampleConfig),
		"bad.yaml": `store: redis://u:secret-word@h:port
prefix: a b
secret_file: short
receipt_key_file: none
rules: rules.yaml
envoy: {rules: none, on_failure: fail-local}
drian: 5s
share: 7
listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}
tls: {cert_file: none, key_file: none, client_ca_file: short}
callers:
  - {name: a, token_file: none, may: [take], events: [mail, male, page, fax]}
  - {name: a, token_file: empty, may: [take]}
  - {name: c, token_file: [], may: [rls], events: [page]}
doors:
  page:
    deny: 404
    event: pagee
    features: {ip: {header: X, proxies: [127.0.0.1]}}
  mail: {features: {user: {header: X}, email: {header: X}}}
  none: {features: {user: {header: X}}}
  mine: {features: {email: {header: X}}}
  last: {event: page, features: {ip: {header: X}}}
`,
		"rules2.yaml": "events:\n  page: {ip: {limits: x}}\n  mail: {ip: {limits: y}}\n",
		"twice.yaml":  "rules: rules2.yaml\nenvoy: {rules: envoy2.yaml}\nlisten: {http: 'localhost:1', grpc: 'localhost:2'}\ntls: {cert_file: short, key_file: short, client_ca_file: none}\ndoors: {page: {deny: 404, features: {ip: {header: X, proxies: [127.0.0.1]}}}}\n",
		"envoy2.yaml": "domain: d\ndescriptors:\n  - {key: a, values: b}\n  - {key: a, limit: b}\n",
		"none.yaml":   "rules: none\nlisten: {http: 'localhost:1'}\ntls: {cert_file: none}\ndoors: {a: {features: {user: {header: X}}}}",
	})
	for file, want := range map[string]string{
		"good.yaml": `good.yaml: good
  store    redis://127.0.0.1:1/0
  listen   http 127.0.0.1:0, admin 127.0.0.1:0
  callers  a
  doors    3: mine, nginx, page
  rules    3, of the events mail, mine, page
`,
		"full.yaml": `full.yaml: good
  store    memcached://127.0.0.1:1,127.0.0.1:2
  listen   http 127.0.0.1:0, grpc /run/a.sock, admin 127.0.0.1:0
  callers  this machine alone
  doors    3: mine, nginx, page
  rules    3, of the events mail, mine, page
  envoy    1 rules, of the domains shop
`,
	} {
		out, errs, status := runs(t, "check", filepath.Join(dir, file))
		require.Equal(t, want, strings.TrimPrefix(out, dir+"/"), errs)
		require.Zero(t, status)
	}
	for file, want := range map[string][]string{
		"bad.yaml": {
			"bad.yaml:1: store: ", "bad.yaml:2: prefix: ", "bad.yaml:3: secret_file: DIR/short: the secret has 5 bytes",
			"bad.yaml:4: receipt_key_file: open DIR/none: no such file", "bad.yaml:6: envoy.rules: envoy: lstat DIR/none: no such file",
			"bad.yaml:7: drian: the key is unknown", "bad.yaml:8: share: ", "bad.yaml:10: tls.cert_file: open DIR/none: no such",
			"bad.yaml:10: tls.key_file: open DIR/none: no such", "bad.yaml:10: tls.client_ca_file: DIR/short: the file has no certificate",
			"bad.yaml:12: callers[0].token_file: open DIR/none: no such", `bad.yaml:12: callers[0].events[1]: no rule has the event "male", want "mail", "mine" and "page"`,
			`bad.yaml:12: callers[0].events[3]: no rule has the event "fax"`, `bad.yaml:13: callers[1].name: the name is "a"`,
			"bad.yaml:13: callers[1].token_file: DIR/empty: the file has no token", "bad.yaml:14: callers[2].token_file: the value is ",
			"bad.yaml:14: callers[2].events: rls has no events", "bad.yaml:17: doors.page.deny: the status is 404",
			`bad.yaml:18: doors.page.event: no rule has the event "pagee", want "mail", "mine" and "page"`,
			"bad.yaml:20: doors.mail.features.email: no rule of the event limits by", `bad.yaml:21: doors.none.event: no rule has the event "none"`,
			"bad.yaml:22: doors.mine.features.email: no rule of the event limits by", "bad.yaml:22: doors.mine.features: has nothing, but event",
			"bad.yaml:23: doors.last.features.ip.proxies: the key is missing",
		},
		"twice.yaml": {
			"twice.yaml:2: envoy.rules: envoy: DIR/envoy2.yaml:3: field values not found", "DIR/envoy2.yaml:4: field limit not found",
			"twice.yaml:4: tls.cert_file: DIR/short and DIR/short: tls: failed to find any PEM data", "twice.yaml:4: tls.client_ca_file: open DIR/none: no such",
			"twice.yaml:5: doors.page.deny: ", "DIR/rules2.yaml:2: events.page.ip.limits: ", "DIR/rules2.yaml:3: events.mail.ip.limits: ",
		},
		"none.yaml": {"none.yaml:1: rules: stat DIR/none: no such file", "none.yaml:3: tls.key_file: the key is missing", "none.yaml:3: tls.cert_file: open DIR/none: no such"},
	} {
		out, errs, status := runs(t, "check", filepath.Join(dir, file))
		require.Empty(t, out)
		require.Equal(t, 1, status)
		require.NotContains(t, errs, "secret-word")
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(errs, dir, "DIR")), "\n")
		require.Contains(t, lines[0], file+" is refused:")
		require.Len(t, lines, 1+len(want), errs)
		for i, text := range want {
			require.Contains(t, lines[1+i], text)
		}
	}
	_, errs, status := runs(t, "check", filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "none.yaml"))
	require.Equal(t, 1, status)
	require.Regexp(t, `(?s)bad\.yaml is refused.*none\.yaml is refused`, errs)
	_, errs, status = runs(t, "check", filepath.Join(dir, "none"))
	require.Contains(t, errs, "no such file")
	require.Equal(t, 1, status)
	_, errs, status = runs(t, "serve", filepath.Join(dir, "bad.yaml"))
	require.Contains(t, errs, "bad.yaml:21: doors.none.event: ")
	require.Equal(t, 1, status)
}

// The rules follow their file. A file that is bad, or leaves a door without a limit or a
// caller without its event, changes nothing.
func TestReload(t *testing.T) {
	const pageRules = pageRules + "  own: {user: {limits: 2/h}}\n" // of a caller alone
	dir := files(t, map[string]string{"abacusd.yaml": settings("memory") + "callers: [{name: here, from: [127.0.0.1], may: [auth, peek, metrics]}, {name: a, from: [10.0.0.1], may: [take], events: [own]}]", "rules.yaml": pageRules})
	d := serve(t, filepath.Join(dir, "abacusd.yaml")).ready()
	left := func() string { return d.post("/v1/peek", `{"event":"mail","features":["user:ada"]}`).body }
	reload := func() string {
		got := ask(http.DefaultClient, "GET", "http://"+d.admin+"/metrics", "")
		require.Equal(t, 200, got.status)
		_, after, _ := strings.Cut(got.body, "\nabacus_rules_last_reload_successful{limiter=\"rules\"} ")
		return after[:1]
	}
	becomes := func(text, limit, successful string) {
		t.Helper()
		replaceFile(t, filepath.Join(dir, "rules.yaml"), text)
		d.eventually(limit+" by "+text[:20], func() bool {
			return reload() == successful && (strings.Contains(left(), `"limit":"`+limit+`"`) || limit == "" && strings.Contains(left(), "404"))
		})
	}
	for _, bad := range []string{
		"events: {page: {ip: {limits: 1/h}}}",
		strings.Replace(pageRules, "own:", "owned:", 1),
		pageRules + "  mail: {user: {limits: 1/h}}",
		strings.Repeat("x", 2<<20),
		pageRules[:20],
	} {
		becomes(strings.Replace(pageRules, "mail: {user: {limits: 2/h}}", "mail: {user: {limits: 7/h}}", 1), "7/h", "1")
		becomes(bad, "7/h", "0")
	}
	becomes(strings.Replace(pageRules, "mail:", "gone:", 1), "", "1")
	becomes(pageRules, "2/h", "1")
	require.Equal(t, 204, d.get("/auth/page", "X-Forwarded-For: 192.0.2.7").status)
	require.NotContains(t, d.said(), "192.0.2.7")
}

// While the store is stopped, rules under fail-local decide, and their hits are carried
// when the process ends; all others deny, and a service with any is not ready.
func TestTheStoreStops(t *testing.T) {
	server := servertest.StartRedis(t)
	const local = "events: {mail: {user: {limits: 3/h, on_failure: fail-local}}}"
	config := fmt.Sprintf("store: redis://%s/0\nrules: rules.yaml\ndrain: 10ms\nlisten: {http: '127.0.0.1:0'}\n", server.Addr)
	start := func(rules string) *daemon {
		return serve(t, filepath.Join(files(t, map[string]string{"abacusd.yaml": config, "rules.yaml": rules}), "abacusd.yaml")).ready()
	}
	closed, here := start(pageRules), start(local)
	take := func(d *daemon) string { return d.post("/v1/take", `{"event":"mail","features":["user:ada"]}`).body }
	require.Contains(t, take(here), `"remaining":2`)
	server.Pause()
	closed.eventually("not ready", func() bool { return closed.get("/readyz").status == 503 })
	require.Contains(t, take(closed), `"outcome":"failed-closed"`)
	require.Equal(t, 200, closed.get("/livez").status)
	require.Contains(t, take(here), `"outcome":"local-admitted"`)
	require.Contains(t, take(here), `"degraded":true`)
	require.Contains(t, take(here), `"outcome":"local-over-limit"`)
	require.Equal(t, 200, here.get("/readyz").status)
	require.NoError(t, here.cmd.Process.Signal(syscall.SIGTERM))
	here.eventually("no listener", func() bool { return here.get("/livez").status == 0 })
	server.Resume()
	<-here.ended
	require.Zero(t, here.cmd.ProcessState.ExitCode())
	closed.ready()
	require.Contains(t, take(start(local)), `"outcome":"over-limit"`)
	require.NotContains(t, closed.said()+here.said(), "ada")
}

// client calls one of two services, and leaves the first when that says so.
type client struct {
	name  string
	call  func(i int) error // many goroutines use it
	calls atomic.Int64
}

// leaving returns a client over HTTP, which takes turns until left.
func leaving(name string, pair []*daemon, left *atomic.Bool, heed func(*http.Response)) *client {
	return &client{name: name, call: func(i int) error {
		d := pair[1]
		if i%2 == 0 && !left.Load() {
			d = pair[0]
		}
		got, err := http.Post("http://"+d.http+"/v1/take", "application/json", strings.NewReader(`{"event":"mail","features":["user:ada"]}`))
		if err != nil {
			return err
		}
		defer got.Body.Close()
		heed(got)
		body, err := io.ReadAll(got.Body)
		if err != nil || got.StatusCode != 200 || !strings.Contains(string(body), `"allowed":true`) {
			return fmt.Errorf("%s %s: %v", got.Status, body, err)
		}
		return nil
	}}
}

// balanced returns a client of gRPC that knows two services.
func balanced(t *testing.T, name string, pair []*daemon, health string) *client {
	both := manual.NewBuilderWithScheme("pair")
	both.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: pair[0].grpc}, {Addr: pair[1].grpc}}})
	conn, err := grpc.NewClient("pair:///x", grpc.WithResolvers(both), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]`+health+`}`))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &client{name: name, call: func(int) error {
		if got, code := asks(conn, "ada", 0); got != ok || code != codes.OK {
			return fmt.Errorf("%s, %s", got, code)
		}
		return nil
	}}
}

// No call fails while rules are replaced, and while one service of two ends, of clients over
// HTTP that heed /readyz or Connection: close, and over gRPC that heed the health or GOAWAY.
func TestDrain(t *testing.T) {
	limits := func(limit string) string {
		rules := strings.Replace(pageRules, "mail: {user: {limits: 2/h}}", "mail: {user: {limits: "+limit+"}}", 1)
		return strings.ReplaceAll(rules, "}}", ", on_failure: fail-local}}") // a machine that stands still denies no call
	}
	dir := files(t, map[string]string{"rules.yaml": limits("1000000/h"), "envoy.yaml": strings.Replace(envoyRules, ": 2}", ": 1000000}", 1)})
	config := strings.NewReplacer("drain: 100ms", fmt.Sprintf("drain: %ds", long.Rounds(3, 5)), "listen: {", "listen: {grpc: '127.0.0.1:0', ").Replace(settings("redis://" + servertest.Redis(t) + "/0"))
	replaceFile(t, filepath.Join(dir, "abacusd.yaml"), config+"envoy: {rules: envoy.yaml, on_failure: fail-local}\n")
	pair := []*daemon{serve(t, filepath.Join(dir, "abacusd.yaml")).ready(), serve(t, filepath.Join(dir, "abacusd.yaml")).ready()}
	var unready, closed atomic.Bool
	clients := []*client{
		leaving("readyz", pair, &unready, func(*http.Response) {}),
		leaving("Connection: close", pair, &closed, func(r *http.Response) {
			if r.Close {
				closed.Store(true)
			}
		}),
		balanced(t, "health", pair, `, "healthCheckConfig": {"serviceName": ""}`),
		balanced(t, "GOAWAY", pair, ""),
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	for _, c := range clients {
		for range 2 {
			running.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					if err := c.call(i); err != nil {
						t.Errorf("%s: call %d: %v", c.name, c.calls.Load(), err)
						return
					}
					c.calls.Add(1)
				}
			})
		}
	}
	callOn := func(rounds int) {
		var until []int64
		for _, c := range clients {
			until = append(until, c.calls.Load()+int64(rounds))
		}
		for i, c := range clients {
			for c.calls.Load() < until[i] && !t.Failed() {
				time.Sleep(time.Millisecond)
			}
		}
	}
	rounds := long.Rounds(100, 30_000)
	callOn(rounds)
	replaceFile(t, filepath.Join(dir, "rules.yaml"), limits("2000000/h"))
	for _, d := range pair {
		d.eventually("the next rules", func() bool {
			return strings.Contains(d.post("/v1/peek", `{"event":"mail","features":["user:eve"]}`).body, "2000000/h")
		})
		metrics := ask(http.DefaultClient, "GET", "http://"+d.admin+"/metrics", "").body
		require.Regexp(t, `(?m)^abacus_decisions_total.*limiter="rules".* [1-9]\d+$`, metrics)
		require.Regexp(t, `(?m)^abacus_decisions_total.*limiter="envoy".* [1-9]\d+$`, metrics)
	}
	require.NoError(t, pair[0].cmd.Process.Signal(syscall.SIGTERM))
	for pair[0].get("/readyz").status == 200 {
		time.Sleep(10 * time.Millisecond)
	}
	unready.Store(true)
	<-pair[0].ended
	callOn(rounds)
	close(done)
	running.Wait()
	for _, c := range clients {
		t.Logf("%s: %d calls", c.name, c.calls.Load())
	}
	require.Zero(t, pair[0].cmd.ProcessState.ExitCode())
}

// authority makes certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authority) issue(name string, until time.Duration) (certificate, key string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(until),
		BasicConstraintsValid: true, IsCA: a.cert == nil,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, k
		c.KeyUsage = x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &k.PublicKey, signer)
	require.NoError(a.t, err)
	if a.cert == nil {
		a.key = k
		a.cert, err = x509.ParseCertificate(der)
		require.NoError(a.t, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(a.t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// Callers come by network, token and certificate, on TCP with TLS and on a socket. The
// admin listener is never open.
func TestCallers(t *testing.T) {
	ca := &authority{t: t}
	caPEM, _ := ca.issue("ca.internal", time.Hour)
	cert, key := ca.issue("abacusd.internal", time.Hour)
	const token = "0123456789abcdef"
	dir := files(t, map[string]string{"rules.yaml": pageRules, "ca.pem": caPEM, "cert.pem": cert, "key.pem": key, "token": token + "\r\n"})
	const tlsLines = "tls: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem}\n"
	const callers = `callers:
  - {name: envoy, san: envoy.internal, may: [take]}
  - {name: support, token_file: token, may: [usage, pprof, erase, status]}
  - {name: prometheus, from: [127.0.0.1], may: [metrics]}
  - {name: here, from: [unix], may: [peek, auth]}
`
	replaceFile(t, filepath.Join(dir, "tls.yaml"), settings("memory")+tlsLines+callers)
	socket := filepath.Join(dir, "http.sock")
	replaceFile(t, filepath.Join(dir, "unix.yaml"), strings.Replace(settings("memory"), `http: "127.0.0.1:0"`, "http: unix:"+socket, 1)+callers[:strings.Index(callers, "  - {name: envoy")]+callers[strings.Index(callers, "  - {name: support"):])

	d := serve(t, filepath.Join(dir, "tls.yaml"))
	client := func(cert, key string) *http.Client {
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AddCert(ca.cert)
		if cert != "" {
			pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
			require.NoError(t, err)
			config.Certificates = []tls.Certificate{pair}
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	}
	nobody, envoy := client("", ""), client(ca.issue("envoy.internal", time.Hour))
	expired, other := client(ca.issue("envoy.internal", -time.Minute)), client((&authority{t: t}).issue("envoy.internal", time.Hour))
	const two = `{"event":"mail","features":["user:ada"]}`
	bearer := "Authorization: Bearer " + token
	for i, row := range []struct {
		client     *http.Client
		url, body  string
		line       string
		want       int
		listenerIs string
	}{
		{envoy, "/v1/take", two, "X: y", 200, d.http},
		{nobody, "/v1/take", two, "X: y", 403, d.http}, // prometheus by its address
		{nobody, "/v1/take", two, bearer, 403, d.http},
		{nobody, "/v1/usage", two, bearer, 200, d.http},
		{envoy, "/v1/usage", two, "X: y", 403, d.http},
		{nobody, "/v1/status", "", bearer, 200, d.http},
		{envoy, "/v1/status", "", "X: y", 403, d.http},
		{nobody, "/v1/erase", `{"features":["user:ada"]}`, bearer, 204, d.http},
		{nobody, "/v1/erase", `{"features":["user:ada"]}`, "X: y", 403, d.http},
		{expired, "/v1/take", two, "X: y", 0, d.http},
		{other, "/v1/take", two, "X: y", 403, d.http}, // it sends none
		{http.DefaultClient, "/v1/take", two, "X: y", 0, d.http},
		{nobody, "/metrics", "", "X: y", 200, d.admin},
		{nobody, "/debug/pprof/", "", "X: y", 403, d.admin},
		{nobody, "/metrics", "", bearer + "0", 401, d.admin},
		{nobody, "/v1/take", two, bearer + "0", 401, d.http},
		{envoy, "/v1/take", two, bearer + "0", 401, d.http},
		{nobody, "/debug/pprof/heap?debug=1", "", bearer, 200, d.admin},
		{nobody, "/debug/pprof/cmdline", "", bearer, 404, d.admin},
		{nobody, "/livez", "", "X: y", 200, d.admin},
		{nobody, "/metrics", "", "X: y", 404, d.http},
	} {
		got := ask(row.client, map[bool]string{true: "POST", false: "GET"}[row.body != ""], "https://"+row.listenerIs+row.url, row.body, row.line)
		require.Equal(t, row.want, got.status, "%d %s: %s", i, row.url, got.body)
	}
	require.NotContains(t, d.said(), "TLS handshake")

	stale, err := net.Listen("unix", socket)
	require.NoError(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	d = serve(t, filepath.Join(dir, "unix.yaml"))
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	require.Equal(t, 200, d.post("/v1/peek", two).status)
	require.Equal(t, 403, d.post("/v1/take", two).status)
	require.Equal(t, 204, d.get("/auth/page", "X-Forwarded-For: 192.0.2.7").status)
	_, errs, status := runs(t, "serve", filepath.Join(dir, "unix.yaml"))
	require.Contains(t, errs, "address already in use")
	require.Equal(t, 1, status)
	require.Zero(t, d.stop())
	require.NoFileExists(t, socket)
}

// Clients that send half of a request, or too much of one, get an answer or lose their
// connection, and no one else notices.
func TestHostileConnections(t *testing.T) {
	dir := files(t, map[string]string{"abacusd.yaml": settings("memory"), "rules.yaml": pageRules})
	d := serve(t, filepath.Join(dir, "abacusd.yaml")).ready()
	for range 200 {
		conn, err := net.Dial("tcp", d.http)
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"))
		require.NoError(t, err)
	}
	for want, lines := range map[int]string{
		431: "X: " + strings.Repeat("x", 80<<10),
		400: "X-Forwarded-For: 192.0.2.7\x01",
	} {
		conn, err := net.Dial("tcp", d.http)
		require.NoError(t, err)
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "GET /auth/page HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", lines)
		require.NoError(t, err)
		said := make([]byte, 12)
		_, err = conn.Read(said)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("HTTP/1.1 %d", want), string(said))
	}
	require.Equal(t, 204, d.get("/auth/page", "X-Forwarded-For: 192.0.2.7").status)
	if !long.Asked() {
		return // a server waits 5 s for a header
	}
	conn, err := net.Dial("tcp", d.http)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("POST /v1/take HTTP/1.1\r\n"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(15*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// The collector waits for more garbage than a small process needs by default, unless the
// environment says when it runs.
func TestCollector(t *testing.T) {
	config := filepath.Join(files(t, map[string]string{
		"rules.yaml":   "events: {signup: {ip: {limits: 5/m}}}",
		"abacusd.yaml": "rules: rules.yaml\nlisten: {http: '127.0.0.1:0', admin: '127.0.0.1:0'}\ncallers: [{name: here, from: [127.0.0.1], may: [metrics]}]",
	}), "abacusd.yaml")
	for gogc, runsLate := range map[string]bool{"": true, "100": false} {
		t.Setenv("GOGC", gogc)
		d := serve(t, config)
		next := regexp.MustCompile(`(?m)^go_memstats_next_gc_bytes (\S+)$`)
		d.eventually("a collection", func() bool {
			size, err := strconv.ParseFloat(next.FindStringSubmatch(ask(http.DefaultClient, "GET", "http://"+d.admin+"/metrics", "").body)[1], 64)
			require.NoError(t, err)
			return size > 60<<20 == runsLate
		})
	}
}
