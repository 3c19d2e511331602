// Command bench sets the service of package envoy next to its reference, and writes
// docs/reports/envoy.md.
//
//	go run .                                   prints
//	go run . -write ../../docs/reports/envoy.md
//
// The program builds abacusd, and the reference from its module. Both run with the same
// environment, on the same servers and with the same rules, and are asked in turn. A wrong
// answer ends the program, and nothing is written.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

const (
	callers = 16
	warmUp  = 2_000 // calls
	rules   = `domain: bench
descriptors:
- {key: a, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
- {key: b, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
- {key: c, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
- {key: once, rate_limit: {unit: day, requests_per_unit: 1}}
`
)

// cases are the kinds of requests, each with the share of the reference's processor time
// that the service may take, on Redis and on memcached.
var cases = []struct {
	name   string
	keys   []string
	denied bool
	bars   [2]float64
}{
	{"admitted, one descriptor", []string{"a"}, false, [2]float64{0.8, 0.5}},
	{"admitted, three descriptors", []string{"a", "b", "c"}, false, [2]float64{0.8, 0.5}},
	{"denied", []string{"once"}, true, [2]float64{0.5, 0.5}},
}

func main() {
	write := flag.String("write", "", "write the page to this `file`; default: print it")
	calls := flag.Int("calls", 10_000, "calls in a `block`")
	blocks := flag.Int("blocks", 7, "blocks of each service, in turn")
	flag.Parse()
	if err := run(*write, *calls, *blocks); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// service is a running service.
type service struct {
	process *os.Process
	client  pb.RateLimitServiceClient
	values  atomic.Int64 // of the descriptors that were asked for
}

func run(path string, calls, blocks int) (err error) {
	stage := &servertest.Stage{}
	defer stage.End()
	done, page := make(chan struct{}), ""
	go func() { // a failure of stage ends the goroutine
		defer close(done)
		page, err = measure(stage, calls, blocks)
	}()
	<-done
	switch err = errors.Join(err, stage.Err()); {
	case err != nil:
		return err
	case path == "":
		fmt.Print(page)
		return nil
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// measure returns the page.
func measure(stage *servertest.Stage, calls, blocks int) (string, error) {
	dir := stage.TempDir()
	build := exec.Command("go", "build", "-o", dir, "github.com/abacus-go/abacus/service/cmd/abacusd", "github.com/envoyproxy/ratelimit/src/service_cmd")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	folder := filepath.Join(dir, "rules", "config")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(rules), 0o644); err != nil {
		return "", err
	}
	var page strings.Builder
	fmt.Fprintf(&page, `# Beside the reference of Envoy

Written by service/bench on %s, with %s on %d processors. The reference is
%s.

%d callers ask abacusd and the reference in turn, %d blocks of %d calls each, on the same server
and with the same rules. Both keep numbers for Prometheus, and have the settings of garbage
collection with which they come. Times are microseconds of a processor for a call, of the service
and of the store, in the median of the blocks. A quotient is that of the medians, and the bar is the
most that it may be. The last two columns are the time of a call, in the median.
`, time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), revision(), callers, blocks, calls)
	for i, name := range []string{"Redis", "memcached"} {
		server := servertest.StartRedis
		if name == "memcached" {
			server = servertest.StartMemcached
		}
		at := server(stage)
		ours, err := start(stage, exec.Command(filepath.Join(dir, "abacusd"), "serve"), filepath.Dir(folder), name, at.Addr)
		if err != nil {
			return "", err
		}
		reference := exec.Command(filepath.Join(dir, "service_cmd"))
		reference.Env = []string{fmt.Sprint("MEMCACHE_MAX_IDLE_CONNS=", callers), "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0"}
		theirs, err := start(stage, reference, filepath.Dir(folder), name, at.Addr)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&page, "\n## %s\n\n| request | abacus | reference | quotient | bar | store: abacus | reference | quotient | a call: abacus | reference |\n|---|---|---|---|---|---|---|---|---|---|\n", name)
		for _, c := range cases {
			both := [2]*sample{{}, {}}
			for range blocks {
				for j, s := range []*service{ours, theirs} {
					if err := both[j].add(s, at.Pid(), c.keys, c.denied, calls); err != nil {
						return "", fmt.Errorf("%s, %s, service %d: %w", name, c.name, j, err)
					}
				}
			}
			a, b := both[0].medians(), both[1].medians()
			fmt.Fprintf(&page, "| %s | %.1f | %.1f | **%.2f** | %.1f | %.1f | %.1f | %.2f | %.0f | %.0f |\n", c.name, a[0], b[0], a[0]/b[0], c.bars[i], a[1], b[1], a[1]/b[1], a[2], b[2])
		}
	}
	return page.String(), nil
}

// start starts a service by the environment of the reference, and waits until it listens.
func start(stage *servertest.Stage, cmd *exec.Cmd, root, store, addr string) (*service, error) {
	var ports [3]int
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports[i] = listener.Addr().(*net.TCPAddr).Port
		_ = listener.Close()
	}
	cmd.Env = append(append(cmd.Env, os.Environ()...), "USE_STATSD=false", "LOG_LEVEL=error", "RUNTIME_ROOT="+root, "RUNTIME_WATCH_ROOT=false", "RUNTIME_SUBDIRECTORY=.",
		fmt.Sprint("PORT=", ports[0]), fmt.Sprint("GRPC_PORT=", ports[1]), fmt.Sprint("DEBUG_PORT=", ports[2]), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1")
	if store == "Redis" {
		cmd.Env = append(cmd.Env, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+addr)
	} else {
		cmd.Env = append(cmd.Env, "BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT="+addr)
	}
	if err := servertest.Start(cmd); err != nil {
		return nil, err
	}
	stage.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return connect(stage, cmd.Process, fmt.Sprint("127.0.0.1:", ports[1]))
}

func connect(stage *servertest.Stage, process *os.Process, addr string) (*service, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}
	stage.Cleanup(func() { _ = conn.Close() })
	s := &service{process: process, client: pb.NewRateLimitServiceClient(conn)}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err = s.client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "none", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k"}}}}})
	return s, err
}

// sample has a block's numbers in each row: microseconds of the service, of the store, and of
// a call in the median.
type sample struct{ rows [3][]float64 }

// add measures a block of calls.
func (m *sample) add(s *service, store int, keys []string, denied bool, calls int) error {
	if _, err := s.ask(keys, denied, warmUp); err != nil {
		return err
	}
	before, stored := used(s.process.Pid), used(store)
	times, err := s.ask(keys, denied, calls)
	if err != nil {
		return err
	}
	slices.Sort(times)
	for i, took := range []time.Duration{used(s.process.Pid) - before, used(store) - stored, times[len(times)/2] * time.Duration(calls)} {
		m.rows[i] = append(m.rows[i], float64(took.Nanoseconds())/1000/float64(calls))
	}
	return nil
}

func (m *sample) medians() (all [3]float64) {
	for i, row := range m.rows {
		slices.Sort(row)
		all[i] = row[len(row)/2]
	}
	return all
}

// ask asks as often as calls says, by all callers, and returns the time of each call. Values
// repeat after 1,000 calls, so that a denied one was denied before.
func (s *service) ask(keys []string, denied bool, calls int) ([]time.Duration, error) {
	times, errs := make([]time.Duration, calls), make([]error, callers)
	var next atomic.Int64
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			for n := next.Add(1) - 1; n < int64(calls); n = next.Add(1) - 1 {
				value := strconv.FormatInt(s.values.Add(1)%1000, 10) + "-" + strconv.Itoa(s.process.Pid)
				in := &pb.RateLimitRequest{Domain: "bench"}
				for _, key := range keys {
					in.Descriptors = append(in.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}})
				}
				began := time.Now()
				answer, err := s.client.ShouldRateLimit(context.Background(), in)
				times[n] = time.Since(began)
				if over := answer.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT; err == nil && over != denied && calls != warmUp {
					err = fmt.Errorf("%v is over: %v, want %v", in, over, denied)
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wait.Wait()
	return times, errors.Join(errs...)
}

// used is the processor time of a process, of /proc; its clock ticks a hundred times a second.
func used(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		panic(err) // the process ends with this one
	}
	after := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.Atoi(after[11])
	system, _ := strconv.Atoi(after[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// revision is the version of the reference in this module.
func revision() string {
	out, err := exec.Command("go", "list", "-m", "github.com/envoyproxy/ratelimit").Output()
	if err != nil {
		return "github.com/envoyproxy/ratelimit"
	}
	return strings.TrimSpace(string(out))
}
