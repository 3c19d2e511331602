package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// standsStill is a fault by the callers themselves.
const standsStill = "caller stands still"

func network(w *world) bool      { return !w.local() }
func everywhere(*world) bool     { return true }
func none(*world) bool           { return false }
func onRedis(w *world) bool      { return worldKind(w.name) == "redis" }
func keepsData(w *world) bool    { return w.durable }
func severalNodes(w *world) bool { return w.placed != nil }
func evicts(w *world) bool       { return w.evicting }
func withReplicas(w *world) bool { return w.masters != nil }
func inCluster(w *world) bool    { return w.cluster != nil }
func onLosing(w *world) bool     { return w.losing }

// lossOfBuckets is the condition of promise 2 without which Max may be exceeded.
const lossOfBuckets = "the store keeps its buckets"

// kinds are the faults, in the order of the page.
var kinds = []kind{
	{Name: "server stands still", Means: "SIGSTOP, for 10 ms to 2.5 s", weight: 6, where: network,
		do: func(s *strike) { s.while(s.long(), s.node.Pause, s.node.Resume) }},
	{Name: "server killed, data kept", Means: "SIGKILL and a restart, `appendonly yes`, `appendfsync always`", weight: 3, where: keepsData, severs: true,
		do: func(s *strike) { s.while(s.short(), s.node.Kill, s.node.Restart) }},
	{Name: "server killed, data lost", Means: "SIGKILL and an empty restart", Breaks: lossOfBuckets, weight: 1, where: onLosing, severs: true, loses: history.Everything,
		do: func(s *strike) {
			s.node.Kill()
			s.sleep(s.short())
			if onRedis(s.world) {
				os.RemoveAll(filepath.Join(s.node.Dir(), "appendonlydir"))
			}
			s.node.Restart()
		}},
	{Name: "server emptied", Means: "`flush_all`, `FLUSHALL`", Breaks: lossOfBuckets, weight: 1, where: onLosing, loses: history.Everything,
		do: func(s *strike) {
			if onRedis(s.world) {
				s.command(s.node, "FLUSHALL")
				return
			}
			_, err := servertest.Exchange(s.node.Addr, 5*time.Second, "flush_all", "OK\r\n")
			s.report(err)
			// memcached empties itself by the second.
			s.sleep(1100 * time.Millisecond)
		}},
	{Name: "list of servers changed", Means: "a server leaves, or comes back with the counts that it had; processes end and others start, one by one", Breaks: lossOfBuckets, weight: 2,
		where: severalNodes, severs: true, loses: history.Moved, keys: (*strike).moving, do: (*strike).relist},
	{Name: "server full", Means: "15,000 other keys on a server with room for fewer; on Redis, under a policy by chance", weight: 4, where: evicts, do: func(s *strike) { s.report(s.fill()) }},
	{Name: evicted, Means: "an item or a value of a caller's key, for want of room", Breaks: lossOfBuckets, where: none},
	{Name: "master killed", Means: "SIGKILL, until a replica has its place", weight: 2, where: withReplicas, severs: true,
		do: func(s *strike) { s.masters.kill(s, false) }},
	{Name: "master killed, line cut", Means: "the same, after its replicas received nothing for 10 to 410 ms", weight: 2, where: withReplicas, severs: true,
		do: func(s *strike) { s.masters.kill(s, true) }},
	{Name: "master stands still", Means: "SIGSTOP, until a replica has its place, and for 10 to 410 ms more", weight: 2, where: withReplicas, severs: true,
		do: func(s *strike) { s.masters.freeze(s) }},
	{Name: failedOver, Means: "a replica has its master's place, by one of these faults or because the machine was busy", Breaks: lossOfBuckets, where: none},
	{Name: "slot moved", Means: "to another master, key by key", weight: 3, where: inCluster,
		do: func(s *strike) { s.masters.moveSlot(s) }},
	{Name: "scripts forgotten", Means: "`SCRIPT FLUSH`, `FUNCTION FLUSH`", weight: 4, where: onRedis, do: forgetScripts},
	{Name: "clients killed", Means: "`CLIENT KILL TYPE normal`", weight: 4, where: onRedis, severs: true,
		do: func(s *strike) { s.command(s.node, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }},
	{Name: "caller process stopped", Means: "SIGSTOP, for 10 ms to 2.5 s", weight: 6, where: everywhere,
		do: func(s *strike) { s.process.stop(s.long()) }},
	{Name: "caller process killed", Means: "SIGKILL, and another one in its place", weight: 2, where: everywhere, severs: true,
		do: func(s *strike) {
			s.while(s.short(), s.process.kill, func() { s.start(s.process.links) })
		}},
	{Name: standsStill, Means: "between reading its clock and using the reading, for up to 300 ms, in memory up to 3 s", where: none},
	{Name: "link silent", Means: "nothing arrives, either way, for 10 ms to 2.5 s", weight: 6, where: network,
		do: func(s *strike) { s.onLinks(s.long(), (*servertest.Proxy).Pause, (*servertest.Proxy).Resume) }},
	{Name: "requests late", Means: "by 10 to 410 ms, answers are not", weight: 6, where: network,
		do: func(s *strike) { s.delay(s.short(), 0) }},
	{Name: "answers late", Means: "by 10 to 410 ms, requests are not", weight: 6, where: network,
		do: func(s *strike) { s.delay(0, s.short()) }},
	{Name: "answers lost", Means: "requests arrive, answers do not, then the connections are closed", weight: 4, where: network, severs: true,
		do: func(s *strike) {
			s.onLinks(s.short(), func(p *servertest.Proxy) { p.DropReplies(true) }, func(p *servertest.Proxy) {
				p.Cut()
				p.DropReplies(false)
			})
		}},
	{Name: "connections closed", Means: "all of a process, one to five times", weight: 6, where: network, severs: true,
		do: func(s *strike) { s.often((*servertest.Proxy).Cut) }},
	{Name: "connections reset", Means: "all of a process, one to five times", weight: 6, where: network, severs: true,
		do: func(s *strike) { s.often((*servertest.Proxy).Abort) }},
	{Name: "answers garbled", Means: "the first byte of each piece that arrives", weight: 4, where: network, severs: true,
		do: func(s *strike) { s.damage(servertest.Heads) }},
	{Name: "answers flipped", Means: "the highest bit of a byte, but for the bytes of a binary text, in every second piece that arrives", weight: 4, where: network, severs: true,
		do: func(s *strike) { s.damage(servertest.Flips) }},
	{Name: "lengths lied about", Means: "in every second piece with a length: another by one, by two or by far", weight: 4, where: network, severs: true,
		do: func(s *strike) { s.damage(servertest.Lies) }},
	{Name: "answers cut and merged", Means: "every second piece ends early; then the connection is closed, or the next answer follows", weight: 4, where: network, severs: true,
		do: func(s *strike) { s.damage(servertest.Cuts) }},
	{Name: "answers in pieces", Means: "a byte at a time", weight: 2, where: network,
		do: func(s *strike) { s.damage(servertest.Pieces) }},
	{Name: "clock steps", Means: "at once, within the skew", weight: 8, where: network,
		do: func(s *strike) { s.tellClock(order{Offset: s.within()}) }},
	{Name: "clock drifts", Means: "by 5 to 55 ms a second, within the skew", weight: 8, where: network,
		do: func(s *strike) {
			s.tellClock(order{Offset: s.within(), PerSecond: 5*time.Millisecond + time.Duration(s.rng.Int64N(int64(50*time.Millisecond)))})
		}},
	{Name: "clock beyond the skew", Means: "by 50 ms to 1 s more than callers may be apart, then back", Breaks: "clocks agree within Skew", weight: 2, where: network,
		do: func(s *strike) {
			o := order{Beyond: true, Offset: skew + 50*time.Millisecond + time.Duration(s.rng.Int64N(int64(time.Second)))}
			if s.rng.IntN(2) == 0 {
				o.Offset = -o.Offset
			}
			caller := s.tellClock(o)
			s.sleep(time.Second + s.long())
			s.process.order(order{Caller: caller})
		}},
}

// while begins something, and ends it after a time.
func (s *strike) while(d time.Duration, begin, end func()) {
	begin()
	s.sleep(d)
	end()
}

// onLinks is while for each of the links.
func (s *strike) onLinks(d time.Duration, begin, end func(*servertest.Proxy)) {
	s.while(d, func() { s.links.each(begin) }, func() { s.links.each(end) })
}

// damage damages answers for some time. Sentinels do not lie about lengths: to an empty
// list of the master's address, which none sends, go-redis v9.22.0 and v9.23.0 panic.
func (s *strike) damage(kind servertest.Damage) {
	s.onLinks(s.short(), func(p *servertest.Proxy) {
		if kind != servertest.Lies || slices.Index(s.process.links, p) < len(s.servers) {
			p.Damage(kind, s.rng.Uint64())
		}
	}, func(p *servertest.Proxy) { p.Damage(servertest.Whole, 0) })
}

// delay makes the links late for some time.
func (s *strike) delay(requests, answers time.Duration) {
	s.onLinks(s.long(), func(p *servertest.Proxy) { p.Delay(requests, answers) }, func(p *servertest.Proxy) { p.Delay(0, 0) })
}

// often does something to the links, one to five times.
func (s *strike) often(do func(*servertest.Proxy)) {
	for range 1 + s.rng.IntN(5) {
		s.links.each(do)
		s.sleep(time.Duration(s.rng.Int64N(int64(20 * time.Millisecond))))
	}
}

// tellClock changes the clock of a caller by chance, and returns the caller's number.
func (s *strike) tellClock(o order) int {
	o.Caller = s.rng.IntN(callersEach)
	s.process.order(o)
	return o.Caller
}

// forgetScripts empties a server of scripts and functions. A replica refuses the
// second: its functions are its master's.
func forgetScripts(s *strike) {
	s.command(s.node, "SCRIPT", "FLUSH")
	_, err := servertest.Command(s.node.Addr, "FUNCTION", "FLUSH")
	var late net.Error
	if !strings.Contains(fmt.Sprint(err), "READONLY") && !(errors.As(err, &late) && late.Timeout()) {
		s.report(err)
	}
}

// command sends a command to a Redis, as try does; an error ends the campaign.
func (s *strike) command(node *servertest.Server, args ...string) any {
	answer, err := s.try(node, args...)
	s.report(err)
	return answer
}

// try sends a command to a Redis, several times if the machine is too busy for an
// answer, or another fault ends the connection.
func (s *strike) try(node *servertest.Server, args ...string) (answer any, err error) {
	for try := 1; ; try++ {
		answer, err = servertest.Command(node.Addr, args...)
		var lost net.Error                                                 // late, or the connection: another fault has come upon the server
		down := err != nil && strings.Contains(err.Error(), "CLUSTERDOWN") // for as long as nodes miss another one
		if try == 10 || !down && !errors.As(err, &lost) && !errors.Is(err, io.EOF) {
			return answer, err
		}
		if lost == nil || !lost.Timeout() {
			s.sleep(500 * time.Millisecond)
		}
	}
}
