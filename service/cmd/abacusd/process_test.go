package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// As abacusd, this binary is the program: the tests know it by its listeners, its output
// and its exit status.
func TestMain(m *testing.M) {
	if os.Getenv("IS_ABACUSD") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "IS_ABACUSD=1")
	return cmd
}

// runs runs a command to its end.
func runs(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// daemon is a running "abacusd serve".
type daemon struct {
	t     *testing.T
	cmd   *exec.Cmd
	http  string // host:port, or the path of a socket
	admin string
	grpc  string
	ended chan struct{}

	mu  sync.Mutex
	log bytes.Buffer // both outputs
}

func (d *daemon) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(p)
}

func (d *daemon) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

var listening = regexp.MustCompile(`abacusd: listening for=(http|grpc|admin) at=(\S+)`)

// serve starts "abacusd serve" in the background. It ends with the test.
func serve(t *testing.T, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, cmd: command(context.Background(), append([]string{"serve"}, args...)...), ended: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = d, d
	require.NoError(t, servertest.Start(d.cmd))
	go func() {
		_ = d.cmd.Wait() // its status is in ProcessState
		close(d.ended)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // it may have ended
		<-d.ended
		if t.Failed() {
			t.Log(d.said())
		}
	})
	d.eventually("a listener for http", func() bool {
		for _, m := range listening.FindAllStringSubmatch(d.said(), -1) {
			*map[string]*string{"http": &d.http, "grpc": &d.grpc, "admin": &d.admin}[m[1]] = m[2]
		}
		return d.http != ""
	})
	return d
}

// eventually waits until is, for a minute.
func (d *daemon) eventually(what string, is func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		select {
		case <-d.ended:
			d.t.Fatalf("abacusd has ended: %s", d.said())
		default:
		}
		require.True(d.t, time.Now().Before(deadline), "want %s", what)
	}
}

// ready waits until the store answers.
func (d *daemon) ready() *daemon {
	d.t.Helper()
	d.eventually("ready", func() bool { return d.get("/readyz").status == 200 })
	return d
}

// stop sends SIGTERM, and returns the exit status.
func (d *daemon) stop() int {
	d.t.Helper()
	require.NoError(d.t, d.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		d.t.Fatal("abacusd has not ended after SIGTERM")
	}
	return d.cmd.ProcessState.ExitCode()
}

// answer is an answer over HTTP; of an error the status is 0.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request to an address, the path of a socket among them.
func ask(client *http.Client, method, url, body string, lines ...string) answer {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{body: err.Error()}
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header[name] = append(r.Header[name], value)
	}
	got, err := client.Do(r)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	return answer{got.StatusCode, got.Header, string(text)}
}

// through is a client of a socket, or of host:port.
func through(address string) (client *http.Client, base string) {
	if !strings.HasPrefix(address, "/") {
		return http.DefaultClient, "http://" + address
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", address)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, "http://abacusd"
}

func (d *daemon) get(path string, lines ...string) answer {
	client, base := through(d.http)
	return ask(client, "GET", base+path, "", lines...)
}

func (d *daemon) post(path, body string, lines ...string) answer {
	client, base := through(d.http)
	return ask(client, "POST", base+path, body, lines...)
}

// files writes files into a folder of the test, and returns it.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		replaceFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

// replaceFile writes a file as a whole.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// settings is a configuration for the tests of the doors, on a store.
func settings(store string) string {
	return fmt.Sprintf(`store: %s
rules: rules.yaml
reload: 50ms
drain: 100ms
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}
doors:
  page: {features: {ip: {header: X-Forwarded-For, proxies: [127.0.0.1]}}}
  nginx: {event: page, deny: 403, features: {ip: {header: X-Forwarded-For, proxies: [127.0.0.1]}}}
  mine: {event: mine, features: {user: {header: X-User}}}
`, store)
}

const pageRules = `events:
  page: {ip: {limits: 2/h}}
  mine: {user: {limits: 2/h}}
  mail: {user: {limits: 2/h}}
`
