package check

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
	"github.com/abacus-go/abacus/internal/dur"
)

const (
	nearlyFull = 0.9
	forgives   = "What is evicted is forgiven: keys may be admitted up to Max again."
)

// room sees what the servers do when they are full, and whether they are.
func (r *run) room(context.Context) (Result, error) {
	return r.worst("room", "nothing is evicted", map[stores.Kind]judge{stores.OnRedis: redisRoom, stores.OnMemcached: memcachedRoom})
}

// restarts sees what outlives a restart.
func (r *run) restarts(context.Context) (Result, error) {
	return r.worst("restarts", "after a restart", map[stores.Kind]judge{stores.OnRedis: redisRestarts, stores.OnMemcached: memcachedRestarts})
}

// judge says of one server what it is like.
type judge func(stores.Server) (status Status, seen, means string)

// worst is what the judge says of the worst of all servers.
func (r *run) worst(name, promise string, judges map[stores.Kind]judge) (Result, error) {
	result := Result{Name: name, Promise: promise}
	judge := judges[r.store.Name.Kind]
	if judge == nil {
		return result, errNotHere
	}
	order := map[Status]int{Fact: 1, OK: 2, Warning: 3, Failed: 4}
	for _, s := range r.servers {
		status, seen, means := judge(s)
		if order[status] > order[result.Status] {
			if len(r.servers) > 1 && status != OK {
				seen = s.Addr + ": " + seen
			}
			result.Status, result.Seen, result.Means = status, seen, means
		}
	}
	return result, nil
}

func redisRoom(s stores.Server) (Status, string, string) {
	policy, known := s.Facts["maxmemory_policy"]
	if !known {
		return Warning, "not known: the user may not ask for INFO", "Only noeviction breaks no limit."
	}
	limit, used, evicted := number(s, "maxmemory"), number(s, "used_memory"), number(s, "evicted_keys")
	seen := fmt.Sprintf("%s, %s used, no limit", policy, bytes(used))
	if limit > 0 {
		seen = fmt.Sprintf("%s, %s of %s used", policy, bytes(used), bytes(limit))
	}
	if evicted > 0 {
		seen += fmt.Sprintf(", %.0f keys evicted", evicted)
	}
	switch {
	case limit == 0:
		return OK, seen, ""
	case policy == "noeviction" && used >= nearlyFull*limit:
		return Warning, seen, "When it is full, new hits are errors: visible, and no limit is broken."
	case policy == "noeviction":
		return OK, seen, ""
	default:
		return Warning, seen, forgives + "\nSet maxmemory-policy to noeviction."
	}
}

func memcachedRoom(s stores.Server) (Status, string, string) {
	limit, used, evicted := number(s, "limit_maxbytes"), number(s, "bytes"), number(s, "evictions")
	seen := fmt.Sprintf("%s of %s used", bytes(used), bytes(limit))
	if s.Facts["settings.evictions"] == "off" {
		if used >= nearlyFull*limit {
			return Warning, seen + ", evictions off", "When it is full, new hits are errors: visible, and no limit is broken."
		}
		return OK, seen + ", evictions off", ""
	}
	switch {
	case evicted > 0:
		return Warning, fmt.Sprintf("%s, %.0f items evicted", seen, evicted), forgives + "\nGive it more memory, or a memcached of its own to what counts."
	case used >= nearlyFull*limit:
		return Warning, seen + ", nothing evicted yet", forgives + "\nGive it more memory."
	}
	return OK, seen + ", nothing evicted yet", ""
}

func redisRestarts(s stores.Server) (Status, string, string) {
	if s.Facts["role"] == "" {
		return Fact, "not known: the user may not ask for INFO", ""
	}
	var has []string
	if s.Facts["aof_enabled"] == "1" {
		has = append(has, "an append-only file")
	}
	if n := number(s, "connected_slaves"); n > 0 {
		has = append(has, strings.TrimSuffix(fmt.Sprintf("%.0f replicas", n), map[bool]string{true: "s"}[n == 1]))
	}
	seen := "up for " + uptime(number(s, "uptime_in_seconds"))
	if len(has) == 0 {
		return Fact, seen + ", no append-only file, no replica",
			"Hits since the last snapshot, if there is one, are forgiven by a restart."
	}
	return Fact, seen + ", with " + strings.Join(has, " and "), "Hits of the last moment, not yet copied, are forgiven by a restart or a failover."
}

func memcachedRestarts(s stores.Server) (Status, string, string) {
	return Fact, "up for " + uptime(number(s, "uptime")) + ", nothing is kept on disk", "A restart forgives all hits: keys may be admitted up to Max again."
}

// number is a fact that is a number, 0 if it is not there.
func number(s stores.Server, name string) float64 {
	n, _ := strconv.ParseFloat(s.Facts[name], 64)
	return n
}

func uptime(seconds float64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d > 2*dur.Day:
		d = d.Truncate(dur.Day)
	case d > 2*time.Hour:
		d = d.Truncate(time.Hour)
	}
	return dur.Format(d)
}

// bytes is n in the unit that suits it.
func bytes(n float64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.4g GB", n)
}
