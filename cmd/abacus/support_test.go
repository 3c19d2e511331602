package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
)

// must ends a program of a script after an error.
func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return v
}

// count is a program with a counter: it takes the hits of a log of seconds and keys, at
// their times, under limits.
//
//	count store prefix limits log
func count() {
	store := must(stores.Open(must(stores.Parse(os.Args[1])), 5*time.Second))
	limits := must(counter.ParseLimits(os.Args[3]))
	var now time.Time
	c := must(counter.New(store.Store, counter.Config{
		Prefix: os.Args[2], Ladder: limits.Ladder(), Skew: -1, Settle: -1, Patience: -1, Now: func() time.Time { return now },
	}))
	for _, line := range must(csv.NewReader(must(os.Open(os.Args[4]))).ReadAll()) {
		now = must(time.Parse(time.RFC3339, line[0]))
		must(c.Take(context.Background(), counter.Key{Event: line[1], Feature: line[2]}, 1, limits))
	}
}

// ask is a program with a limiter: it calls Allow so many times for each feature,
// whatever the verdicts.
//
//	ask store rules number event feature...
func ask() {
	store := must(stores.Open(must(stores.Parse(os.Args[1])), 5*time.Second))
	count := must(counter.New(store.Store, counter.Config{Patience: 5 * time.Second}))
	lim := must(limiter.New(count, limiter.Config{DecideWithin: -1, Rules: must(rules.Load(os.Args[2])).Rules}))
	for _, given := range os.Args[5:] {
		kind, value, _ := strings.Cut(given, ":")
		for range must(strconv.Atoi(os.Args[3])) {
			v := must(lim.Allow(context.Background(), os.Args[4], feature.New(kind, value)))
			must(0, v.Degraded)
		}
	}
}

// dump is a program that prints the names and values on the server of a store:
//
//	dump store
func dump() {
	store := must(stores.Open(must(stores.Parse(os.Args[1])), 5*time.Second))
	if store.Redis == nil {
		dumpMemcached(store.Memcached.Servers[0])
		return
	}
	ctx := context.Background()
	must(0, store.Redis.Scan(ctx, "*", func(server *goredis.Client, keys []string) error {
		for _, key := range keys {
			value, err := server.Get(ctx, key).Result()
			if err != nil { // of another type
				value = strings.Join(must(server.ZRange(ctx, key, 0, -1).Result()), " ")
			}
			fmt.Println(key, value)
		}
		return nil
	}))
}

func dumpMemcached(addr string) {
	conn := must(net.Dial("tcp", addr))
	must(0, conn.SetDeadline(time.Now().Add(time.Minute)))
	lines := bufio.NewScanner(conn)
	ask := func(request string) (answer []string) {
		must(io.WriteString(conn, request+"\r\n"))
		for lines.Scan() && lines.Text() != "END" {
			if strings.HasPrefix(lines.Text(), "BUSY") { // with a crawl of the server's own
				must(io.WriteString(conn, request+"\r\n"))
				continue
			}
			answer = append(answer, lines.Text())
		}
		must(0, lines.Err())
		return answer
	}
	// By "all" a dump leaves out items that the server moves meanwhile.
	for _, item := range ask("lru_crawler metadump hash") {
		name, _, _ := strings.Cut(strings.TrimPrefix(item, "key="), " ")
		for _, line := range ask("get " + must(url.PathUnescape(name))) {
			fmt.Println(line)
		}
	}
}
