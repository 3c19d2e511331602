package envoy_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/service/envoy"
)

// With these variables this binary is a service in a process of its own.
const storeOf, rulesOf = "ENVOY_TEST_STORE", "ENVOY_TEST_RULES"

// patience is the time of a call on a busy machine.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(storeOf) == "" {
		os.Exit(m.Run())
	}
	if err := serve(os.Getenv(storeOf), os.Getenv(rulesOf)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// serve serves on the loopback interface, and writes the address.
func serve(at, rules string) error {
	var store backend.Store
	var err error
	if addr, isRedis := strings.CutPrefix(at, "redis://"); isRedis {
		store, err = redis.Open("redis://"+addr, redis.Config{IOTimeout: patience})
	} else {
		store, err = memcache.New(memcache.Config{IOTimeout: patience}, at)
	}
	if err != nil {
		return err
	}
	c, err := counter.New(store, counter.Config{Patience: patience, Settle: patience})
	if err != nil {
		return err
	}
	service, err := envoy.New(envoy.Config{Counter: c, Rules: rules, Limiter: limiter.Config{DecideWithin: patience}})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := grpc.NewServer()
	service.Register(server)
	return server.Serve(listener)
}

// process starts a service in a process of its own, and returns a client.
func process(t *testing.T, store, rules string) pb.RateLimitServiceClient {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), storeOf+"="+store, rulesOf+"="+rules)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, servertest.Start(cmd))
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	conn, err := grpc.NewClient(strings.TrimSpace(line), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewRateLimitServiceClient(conn)
}

// race has racers ask at once for the same descriptors, each of one of the clients in turn,
// and returns how many were admitted.
func race(t *testing.T, racers int, clients []pb.RateLimitServiceClient, descriptors ...*common.RateLimitDescriptor) int64 {
	var admitted atomic.Int64
	var wait sync.WaitGroup
	start := make(chan struct{})
	for i := range racers {
		wait.Go(func() {
			<-start
			answer, err := clients[i%len(clients)].ShouldRateLimit(t.Context(), of(descriptors...))
			if err != nil {
				t.Error(err)
			} else if answer.OverallCode == pb.RateLimitResponse_OK {
				admitted.Add(1)
			}
		})
	}
	close(start)
	wait.Wait()
	return admitted.Load()
}

// Of 60 racers at two processes exactly as many are admitted as the tighter limit says, and
// the other limit has lost no more.
func TestTwoProcesses(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"r.yaml": domain(perHour("tight", 10) + perHour("wide", 50))})
	for name, store := range map[string]string{"redis": "redis://" + servertest.Redis(t) + "/0", "memcached": servertest.Memcached(t)} {
		clients := []pb.RateLimitServiceClient{process(t, store, folder), process(t, store, folder)}
		for round := range long.Rounds(3, 50) {
			value := fmt.Sprintf("%s %d", name, round)
			require.EqualValues(t, 10, race(t, 60, clients, desc("tight", value)), value)
			require.EqualValues(t, 10, race(t, 60, clients, desc("tight", value+" two"), desc("wide", value)), value)
			answer, err := clients[0].ShouldRateLimit(t.Context(), of(with(desc("wide", value), 0)))
			require.NoError(t, err)
			require.EqualValues(t, 40, answer.Statuses[0].LimitRemaining, value)
		}
	}
}

// What the reference has been seen to get wrong, on each store.
func TestWhereTheReferenceIsWrong(t *testing.T) {
	stores(t, func(t *testing.T, store func() backend.Store) {
		d := setup{store: store(), rules: domain(`
- {key: second, rate_limit: {unit: second, requests_per_unit: 5}}
- {key: few, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: ten, rate_limit: {unit: hour, requests_per_unit: 10}}
` + perHour("one", 1) + perHour("col", 1) + perHour("col_x", 1) + perHour("wide", 100))}.open(t)
		client := []pb.RateLimitServiceClient{pb.NewRateLimitServiceClient(d.conn)}

		// A window slides: no second has more than 5, wherever it begins.
		var before, after []time.Time
		for len(after) < 8 {
			began := time.Now()
			if !d.over(desc("second", "")) {
				before, after = append(before, began), append(after, time.Now())
			}
			time.Sleep(time.Millisecond)
		}
		for i := range 3 {
			require.GreaterOrEqual(t, after[i+5].Sub(before[i]), time.Second, "from admission %d to the sixth", i)
		}

		// A denied call counts nothing, for itself and for others of its request.
		for i := range 12 {
			require.Equal(t, i >= 2, d.over(desc("few", "7"), desc("wide", "7")), "call %d", i)
		}
		require.Contains(t, short(d.ask(of(with(desc("wide", "7"), 0)))), "98 left")

		// A race is not over, and on two limits the one with room keeps it.
		require.EqualValues(t, 10, race(t, 60, client, desc("ten", "race")))
		require.EqualValues(t, 10, race(t, 60, client, desc("ten", "two"), desc("wide", "two")))
		require.Contains(t, short(d.ask(of(with(desc("wide", "two"), 0)))), "90 left")

		// Long values, and values with spaces, are limited; values do not meet.
		for _, texts := range [][]string{{"one", strings.Repeat("x", 300)}, {"one", "a b"}, {"col", "x_1"}, {"col_x", "1"}} {
			require.False(t, d.over(desc(texts...)), "%.20q", texts)
			require.True(t, d.over(desc(texts...)), "%.20q", texts)
		}

		// A unit that is none ends no process, and none of this stops the service.
		_, err := d.try(of(limited(desc("one", "1"), 1, 0)))
		require.Error(t, err)
		require.False(t, d.over(desc("one", "still here")))
	})
	// A store that stands still is answered for in time: see TestStoreAway.
}

// Rules change under load without an error, and without a call that no rule sees.
func TestReloadUnderLoad(t *testing.T) {
	folder := t.TempDir()
	units := []string{"hour", "day", "week"}
	write(t, folder, map[string]string{"r.yaml": domain(perHour("user", 1))})
	d := setup{folder: folder, cfg: envoy.Config{Every: 5 * time.Millisecond}}.open(t)
	stop, calls := make(chan struct{}), atomic.Int64{}
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				answer, err := pb.NewRateLimitServiceClient(d.conn).ShouldRateLimit(context.Background(), of(desc("user", fmt.Sprint(i, n))))
				if err != nil || answer.Statuses[0].CurrentLimit == nil {
					t.Errorf("%v, %v, want a limit", answer, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for i := range long.Rounds(6, 60) {
		write(t, folder, map[string]string{"r.yaml": domain(fmt.Sprintf("- {key: user, rate_limit: {unit: %s, requests_per_unit: %d}}", units[i%len(units)], 1+i))})
		require.Eventually(t, func() bool { good, _ := d.Loads(); return good == int64(i+2) }, time.Minute, time.Millisecond)
	}
	close(stop)
	wait.Wait()
	require.Positive(t, calls.Load())
}

// A call meets the rules with which it has begun, however often they change meanwhile. Where
// only the maximum is another, it meets and reports the one in force.
func TestManyReloadsDuringACall(t *testing.T) {
	for name, test := range map[string]struct {
		units []string
		want  uint32
	}{
		"units":   {[]string{"day", "week", "month"}, 1},
		"maximum": {[]string{"hour"}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			begun, reloaded := make(chan struct{}, 1), make(chan struct{})
			write(t, folder, map[string]string{"r.yaml": domain(perHour("user", 1))})
			d := setup{folder: folder, cfg: envoy.Config{Every: 5 * time.Millisecond, MayOverride: func(context.Context) bool {
				begun <- struct{}{}
				<-reloaded
				return true
			}}}.open(t)
			answered := make(chan *pb.RateLimitResponse, 1)
			go func() {
				answer, err := pb.NewRateLimitServiceClient(d.conn).ShouldRateLimit(context.Background(), of(desc("user", "7")))
				if err != nil {
					t.Error(err)
				}
				answered <- answer
			}()
			<-begun
			for i, unit := range test.units {
				write(t, folder, map[string]string{"r.yaml": domain(fmt.Sprintf("- {key: user, rate_limit: {unit: %s, requests_per_unit: 5}}", unit))})
				require.Eventually(t, func() bool { good, _ := d.Loads(); return good == int64(i+2) }, time.Minute, time.Millisecond)
			}
			close(reloaded)
			answer := <-answered
			require.Equal(t, test.want, answer.Statuses[0].GetCurrentLimit().GetRequestsPerUnit(), "%v", answer)
			go func() { <-begun }()
			require.False(t, d.over(desc("user", "7")))
		})
	}
}

// No answer takes longer than a decision, while the store stands still.
func TestDecideWithin(t *testing.T) {
	server := servertest.StartRedis(t)
	store, err := redis.Open("redis://"+server.Addr, redis.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	const within = 15 * time.Millisecond
	d := setup{store: store, rules: domain(perHour("user", 5)), cfg: envoy.Config{Limiter: limiter.Config{DecideWithin: within}}}.open(t)
	require.Eventually(t, func() bool { return !d.over(desc("user", "7")) }, time.Minute, time.Millisecond)
	server.Pause()
	defer server.Resume()
	var times []time.Duration
	for range long.Rounds(20, 200) {
		began := time.Now()
		require.True(t, d.over(desc("user", "7")))
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	t.Logf("in the median %s, at most %s", times[len(times)/2], times[len(times)-1])
	long.Less(t, times[len(times)/2], counter.DefaultPatience/2, "the time of a decision, not of the store")
}

// 2,000 rules cost what 3 cost.
func TestManyRules(t *testing.T) {
	doors := [2]*door{}
	for i, n := range []int{3, 2000} {
		rules := domain("")
		for j := range n {
			rules += fmt.Sprintf("- {key: user, value: u%d, rate_limit: {unit: hour, requests_per_unit: 1000000}}\n", j)
		}
		doors[i] = setup{rules: rules}.open(t)
	}
	cost := func(d *door) time.Duration {
		const calls = 300
		began := time.Now()
		for i := range calls {
			require.False(t, d.over(desc("user", fmt.Sprintf("u%d", i%3))))
		}
		return time.Since(began) / calls
	}
	var ratios []float64
	for range long.Rounds(1, 15) {
		few, many := cost(doors[0]), cost(doors[1])
		ratios = append(ratios, float64(many)/float64(few))
	}
	slices.Sort(ratios)
	t.Logf("2,000 rules cost %.2f of 3", ratios[len(ratios)/2])
	if long.Asked() {
		require.Less(t, ratios[len(ratios)/2], 3.0, "a search through the rules costs hundreds of times as much")
	}
}
