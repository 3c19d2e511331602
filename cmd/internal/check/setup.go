package check

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
)

const (
	nearlyFull = 0.9
	forgives   = "What is evicted is forgiven: keys may be admitted up to Max again."
)

// judge judges a single server; an empty status means that the check does not
// apply.
type judge func(backend.Server) (status Status, seen, means string)

// setup is a check of the setup of servers, by the kind of store.
type setup struct {
	name, promise string
	judges        map[stores.Kind]judge
}

// setups judge the eviction policy, and the free memory; memory that memcached has
// given to items of other sizes than future items; the server's part in a
// replication; a Cluster without one of its masters; and the data that outlives a
// restart.
var setups = []setup{
	{"eviction", "nothing is evicted", map[stores.Kind]judge{stores.OnRedis: redisEviction, stores.OnMemcached: memcachedEviction}},
	{"slabs", "room for any size", map[stores.Kind]judge{stores.OnMemcached: memcachedSlabs}},
	{"role", "it is the master", map[stores.Kind]judge{stores.OnRedis: redisRole}},
	{"coverage", "one master may fail", map[stores.Kind]judge{stores.OnRedis: redisCoverage}},
	{"restarts", "after a restart", map[stores.Kind]judge{stores.OnRedis: redisRestarts, stores.OnMemcached: memcachedRestarts}},
}

// Setup judges the setup of servers by what they tell, and asks no server.
func Setup(kind stores.Kind, servers []backend.Server) (all []Result) {
	for _, s := range setups {
		if result, err := s.judge(kind, servers); err == nil {
			all = append(all, result)
		}
	}
	return all
}

// judge returns the result of the worst server. The error is errNotHere.
func (s setup) judge(kind stores.Kind, servers []backend.Server) (Result, error) {
	result := Result{Name: s.name, Promise: s.promise}
	order := map[Status]int{Fact: 1, OK: 2, Warning: 3, Failed: 4}
	for _, server := range servers {
		judge := s.judges[kind]
		if judge == nil {
			break
		}
		status, seen, means := judge(server)
		if order[status] > order[result.Status] {
			if len(servers) > 1 && status != OK {
				seen = server.Name + ": " + seen
			}
			result.Status, result.Seen, result.Means = status, seen, means
		}
	}
	if result.Status == "" {
		return result, errNotHere
	}
	return result, nil
}

func redisEviction(s backend.Server) (Status, string, string) {
	policy, known := s.Facts["maxmemory_policy"]
	if !known {
		return Warning, "not known: the user may not ask for INFO", "Only noeviction breaks no limit."
	}
	limit, used, evicted := number(s, "maxmemory"), number(s, "used_memory"), number(s, "evicted_keys")
	seen := fmt.Sprintf("%s, %s used, no limit", policy, Bytes(used))
	if limit > 0 {
		seen = fmt.Sprintf("%s, %s of %s used", policy, Bytes(used), Bytes(limit))
	}
	if evicted > 0 {
		seen += fmt.Sprintf(", %.0f keys evicted", evicted)
	}
	switch {
	case policy != "noeviction" && limit == 0:
		return Warning, seen, forgives + "\nIt evicts as soon as maxmemory is set: set maxmemory-policy to noeviction."
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

func memcachedEviction(s backend.Server) (Status, string, string) {
	limit, used, evicted := number(s, "limit_maxbytes"), number(s, "bytes"), number(s, "evictions")
	seen := fmt.Sprintf("%s of %s used", Bytes(used), Bytes(limit))
	if evicted > 0 {
		seen += fmt.Sprintf(", %.0f items evicted", evicted)
	}
	switch setting, known := s.Facts["settings.evictions"]; {
	case !known:
		return Warning, seen + ", its settings are not known", "Only a memcached that was started with -M breaks no limit."
	case setting == "off" && used >= nearlyFull*limit:
		return Warning, seen + ", evictions off", "When it is full, new hits are errors: visible, and no limit is broken.\nGive it more memory."
	case setting == "off":
		return OK, seen + ", evictions off", ""
	case evicted > 0:
		return Warning, seen, forgives + "\nStart it with -M, give it more memory, or what counts a memcached of its own."
	}
	return Warning, seen + ", evictions on", "It evicts when it is full, and what is evicted is forgiven: keys may be admitted up to Max again. Start it with -M, then new hits are errors instead."
}

func memcachedSlabs(s backend.Server) (Status, string, string) {
	refused := 0.0
	for name := range s.Facts {
		if strings.HasPrefix(name, "items.") && strings.HasSuffix(name, ":outofmemory") {
			refused += number(s, name)
		}
	}
	limit, used, pages := number(s, "limit_maxbytes"), number(s, "bytes"), number(s, "slabs.total_malloced")
	switch {
	case refused > 0:
		return Warning, fmt.Sprintf("%.0f items refused for want of memory", refused),
			"Those hits were errors. Give it more memory; if it is not full, its memory is bound to items of other sizes, and a restart frees it."
	case limit > 0 && pages >= limit && used < nearlyFull*limit:
		return Warning, fmt.Sprintf("all of %s is given to sizes, %s of it used", Bytes(limit), Bytes(used)),
			"Keys that get longer or shorter (another Secret, Prefix or event, IPv6) can be evicted or refused, though it is not full. Give it more memory."
	}
	return OK, fmt.Sprintf("%s of %s given to sizes, nothing refused", Bytes(min(pages, limit)), Bytes(limit)), ""
}

func redisRole(s backend.Server) (Status, string, string) {
	switch role := s.Facts["role"]; role {
	case "":
		return Fact, "not known: the user may not ask for INFO", ""
	case "slave":
		return Warning, fmt.Sprintf("a replica of %s:%s that can be written to", s.Facts["master_host"], s.Facts["master_port"]),
			"What is counted here its master never hears of, and loses it when they are next in step. Use the master's address, or those of Sentinels with master_name."
	default:
		return OK, role, ""
	}
}

func redisCoverage(s backend.Server) (Status, string, string) {
	if s.Facts["redis_mode"] != "cluster" {
		return "", "", ""
	}
	switch s.Facts["config.cluster-require-full-coverage"] {
	case "yes":
		return Warning, "cluster-require-full-coverage yes",
			"While one master is gone without a replica in its place, keys of all masters fail.\nSet it to no: then only its own do."
	case "no":
		return OK, "cluster-require-full-coverage no", ""
	}
	return Fact, "not known: the user may not ask for CONFIG", ""
}

func redisRestarts(s backend.Server) (Status, string, string) {
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
	seen := "up for " + uptime(s, "uptime_in_seconds")
	if len(has) == 0 {
		return Fact, seen + ", no append-only file, no replica",
			"Hits since the last snapshot, if there is one, are forgiven by a restart."
	}
	return Fact, seen + ", with " + strings.Join(has, " and "), "Hits of the last moment, not yet copied, are forgiven by a restart or a failover."
}

func memcachedRestarts(s backend.Server) (Status, string, string) {
	return Fact, "up for " + uptime(s, "uptime") + ", nothing is kept on disk", "A restart forgives all hits: keys may be admitted up to Max again."
}

// number is a fact as a number, 0 if the fact is missing.
func number(s backend.Server, name string) float64 {
	n, _ := strconv.ParseFloat(s.Facts[name], 64)
	return n
}

func uptime(s backend.Server, name string) string {
	return text.Roughly(time.Duration(number(s, name)) * time.Second)
}

// Bytes formats n bytes in a suitable unit.
func Bytes(n float64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.4g GB", n)
}

// clocks tells the distances of the servers' clocks from this machine's. Callers
// stamp the counts, so the callers' clocks must agree; a server serves all callers
// as the common measure.
func (r *run) clocks(context.Context) (Result, error) {
	result := Result{Name: "clocks", Promise: "clocks agree", Status: OK}
	if r.local() || len(r.servers) == 0 {
		return result, errNotHere
	}
	var told []string
	for _, s := range r.servers {
		told = append(told, s.Clock())
		if s.Apart(counter.DefaultSkew) {
			result.Status = Warning
			result.Means = fmt.Sprintf("More than the default skew of %s. Limits hold while the callers' own clocks\nagree within counter.Config.Skew: compare their machines, set the clocks by NTP.",
				dur.Format(counter.DefaultSkew))
		}
	}
	result.Seen = "the server's is " + strings.Join(told, "; ")
	if len(told) == 1 {
		result.Numbers = map[string]float64{"ahead_ms": r.servers[0].Ahead.Seconds() * 1e3, "unsure_ms": r.servers[0].Within.Seconds() * 1e3}
	}
	return result, nil
}
