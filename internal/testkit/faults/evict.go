package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// evicted is the loss of a count for want of room. The server names each lost count.
const evicted = "count evicted"

// evictions notes the counts which a full server evicts.
type evictions struct {
	*world
	seen, known  atomic.Int64 // of all keys; instant up to which all are noted
	asked, count int64        // at an earlier look, whose reports may not have come yet
}

// evictingMemcached sets up a memcached with little memory, and reads its reports of
// evicted items.
func evictingMemcached(w *world) {
	// Reports beyond the room of these buffers are dropped.
	w.serve(servertest.StartMemcached(w.campaign.stage, "-m", "2", "-o", "worker_logbuf_size=65536,watcher_logbuf_size=65536"))
	e := &evictions{world: w}
	conn := try.To(net.Dial("tcp", w.servers[0].Addr))(w.campaign.stage)
	w.campaign.stage.Cleanup(func() { conn.Close() })
	try.To(io.WriteString(conn, "watch evictions\r\n"))(w.campaign.stage)
	go e.listen(conn)
	w.watch = e.compare
}

// report is a memcached's report of an eviction; the second number is microseconds,
// without leading zeros.
var report = regexp.MustCompile(`^ts=(\d+)\.(\d+) gid=\d+ type=eviction key=(\S+) `)

// listen reads the reports.
func (e *evictions) listen(conn net.Conn) {
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		found := report.FindStringSubmatch(lines.Text())
		if found == nil {
			if lines.Text() != "OK" {
				e.fail(fmt.Errorf("a report of an eviction says %q", lines.Text()))
			}
			continue
		}
		seconds, err := strconv.ParseInt(found[1], 10, 64)
		micros, err2 := strconv.ParseInt(found[2], 10, 64)
		key, err3 := url.PathUnescape(found[3])
		if err := errors.Join(err, err2, err3); err != nil {
			e.fail(err)
		}
		at := seconds*1e9 + micros*1e3
		f := history.Fault{Name: evicted, From: at, To: at + int64(time.Microsecond), Loses: history.Bucket}
		if item := itemOf.FindStringSubmatch(key); item != nil {
			width, err := dur.Parse(item[1])
			index, err2 := strconv.ParseInt(item[2], 10, 64)
			if err := errors.Join(err, err2); err != nil {
				e.fail(err)
			}
			f.Bucket = [2]int64{index * int64(width), (index + 1) * int64(width)}
		}
		e.note(key, f)
	}
}

// compare returns the instant up to which the statistics counted no more evictions than
// there are reports by now: on a busy machine reports are late at each look.
func (e *evictions) compare() int64 {
	asked := time.Now().UnixNano()
	stats, err := servertest.Exchange(e.servers[0].Addr, time.Second, "stats", "END\r\n")
	if err != nil {
		return e.known.Load() // the server stands still
	}
	if n := statOf(stats, "log_worker_dropped") + statOf(stats, "log_watcher_skipped"); n > 0 {
		e.fail(fmt.Errorf("the server dropped %d reports of evictions", n))
	}
	if e.seen.Load() >= e.count {
		e.known.Store(e.asked)
		e.asked, e.count = asked, statOf(stats, "evictions")
	}
	return e.known.Load()
}

func statOf(stats, name string) (n int64) {
	_, rest, _ := strings.Cut(stats, "STAT "+name+" ")
	fmt.Sscan(rest, &n) // an old server has no such line
	return n
}

// evictingRedis sets up a Redis with little memory, and reads its events of evicted
// keys.
func evictingRedis(w *world) {
	w.serve(servertest.StartRedis(w.campaign.stage, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru", "--notify-keyspace-events", "Ee"))
	e := &evictions{world: w}
	e.known.Store(time.Now().UnixNano())
	client := goredis.NewClient(&goredis.Options{Addr: w.servers[0].Addr, Protocol: 2})
	events := client.Subscribe(context.Background(), "__keyevent@0__:evicted")
	var closing atomic.Bool
	w.campaign.stage.Cleanup(func() {
		closing.Store(true)
		events.Close()
		client.Close()
	})
	go func() {
		for {
			message, err := events.Receive(context.Background())
			switch m := message.(type) {
			case *goredis.Message:
				// Not before the server read the latest request with an answer.
				e.note(m.Payload, history.Fault{Name: evicted, From: e.known.Load(), To: time.Now().UnixNano(), Loses: history.Everything, Parts: true})
			case *goredis.Pong:
				asked, err := strconv.ParseInt(m.Payload, 10, 64)
				if err != nil {
					e.fail(err)
				}
				e.known.Store(asked)
			}
			if closing.Load() {
				return
			}
			if err != nil {
				e.fail(fmt.Errorf("evictions are not known any more: %w", err))
				return
			}
		}
	}()
	w.watch = func() int64 {
		if err := events.Ping(context.Background(), fmt.Sprint(time.Now().UnixNano())); err != nil {
			e.fail(err)
		}
		return e.known.Load()
	}
}

// ofCaller finds the key of a caller in the name of an item, or of a value.
var ofCaller = regexp.MustCompile(`:faults:([^|}]+)[|}]`)

// itemOf finds the bucket in the name of an item.
var itemOf = regexp.MustCompile(`\|([0-9a-z]*[a-z])(-?\d+)$`)

// note notes an eviction.
func (e *evictions) note(name string, f history.Fault) {
	if found := ofCaller.FindStringSubmatch(name); found != nil {
		e.end(e.begin(f, func(_ int, key string) bool { return key == found[1] }))
	}
	e.seen.Add(1)
}

// policies of a Redis that evicts.
var policies = []string{"volatile-lru", "volatile-lfu", "volatile-ttl", "volatile-random", "allkeys-lru", "allkeys-lfu", "allkeys-random"}

// fill floods a server with keys of no caller, about as long as the keys of callers:
// more than the server has room for.
func (s *strike) fill() error {
	redis := onRedis(s.world)
	if redis {
		s.command(s.node, "CONFIG", "SET", "maxmemory-policy", policies[s.rng.IntN(len(policies))])
	}
	conn, err := net.Dial("tcp", s.node.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for range 15 {
		var requests strings.Builder
		const batch = 1000
		for range batch {
			name := fmt.Sprintf("filler:%016x%s", s.rng.Uint64(), strings.Repeat("x", s.rng.IntN(50)))
			if redis {
				fmt.Fprintf(&requests, "SET %s %s EX %d\r\n", name, strings.Repeat("x", 20+s.rng.IntN(200)), 1+s.rng.IntN(300))
			} else {
				fmt.Fprintf(&requests, "set %s 0 300 1\r\n1\r\n", name)
			}
		}
		if _, err := io.WriteString(conn, requests.String()); err != nil {
			return err
		}
		for range batch {
			answer, err := answers.ReadString('\n')
			// A memcached can have no page to spare for items of this size, and a Redis
			// whose connections take its memory nothing left to evict.
			full := strings.HasPrefix(answer, "SERVER_ERROR out of memory") || strings.HasPrefix(answer, "-OOM ")
			if err == nil && !full && answer != "STORED\r\n" && answer != "+OK\r\n" {
				err = fmt.Errorf("the server answers %q to a filler", answer)
			}
			if err != nil {
				return err
			}
		}
		s.sleep(s.short() / 8)
	}
	return nil
}
