package memcache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/loan"
)

// Check asks all servers and returns nil if each answers, takes an addition, has
// a clock within [backend.DefaultSkew] of this machine's, and has evicted nothing
// since its start. Otherwise the error joins the findings; findings that leave
// hits countable are a [backend.ErrCondition]. memcached tells the time in whole
// seconds, so a clock error of 1.5 s goes unnoticed. The addition is to a key
// beginning with ab, the default Prefix of a Counter. A Counter or limiter on the
// store has a Check too, with the Counter's own clock, Skew and Prefix. Check
// keeps the deadline of ctx, and lasts no longer than Config.IOTimeout if ctx has
// none.
//
// Of a store made by NewFromClient, Check makes an addition for one key, and
// tells that clocks, evictions and restarts cannot be seen: gomemcache has no
// command to see them.
func (s *Store) Check(ctx context.Context) error { return backend.CheckStore(ctx, s) }

// CheckServers is described in [backend.Store]. Each server is asked for its
// stats on a connection of its own, beside the shared connections.
func (s *Store) CheckServers(ctx context.Context, r *backend.CheckRequest) error {
	r.Servers = nil
	deadline := r.Deadline
	if own, is := ctx.Deadline(); deadline.IsZero() && is {
		deadline = own
	}
	wait, err := s.begin(ctx, deadline)
	if err != nil {
		return err
	}
	ctx, cancel := loan.WithTimeout(ctx, wait)
	defer cancel()
	if s.selector == nil {
		if err := s.probe(ctx, r, r.Key, nil); err != nil {
			return err
		}
		return backend.Unmet("memcache: a client of NewFromClient tells no stats, want a store of New: clocks, evictions and restarts cannot be seen")
	}
	keys := s.keyOfEach(r.Key)
	names := slices.Sorted(maps.Keys(keys))
	found, errs := make([]backend.Server, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { found[i], errs[i] = s.checkServer(ctx, r, s.peers[name], keys[name]) })
	}
	all.Wait()
	for i, name := range names {
		if found[i].Name != "" {
			errs[i] = errors.Join(errs[i], onServer(name, r.Found(found[i])))
		}
	}
	return errors.Join(errs...)
}

// keyOfEach returns a key on each server, by the names of the servers. Each key
// begins with key.
func (s *Store) keyOfEach(key string) map[string]string {
	keys := map[string]string{}
	for i := 0; len(keys) < len(s.selector.servers); i++ {
		try := key + "-" + strconv.Itoa(i)
		if name := s.selector.pick(try).name; keys[name] == "" {
			keys[name] = try
		}
	}
	return keys
}

// onServer returns err with the name of the server, and nil without err.
func onServer(name string, err error) error { return onServerTo(name, "", err) }

// onServerTo is onServer with the part of the check that met err.
func onServerTo(name, do string, err error) error {
	if err == nil {
		return nil
	}
	return &checkError{name, do, err}
}

// checkError is an error with the name of a server.
type checkError struct {
	name, do string
	err      error
}

func (e *checkError) Error() string {
	text := strings.TrimPrefix(strings.TrimPrefix(e.err.Error(), "memcache: "), e.name+": ")
	return "memcache: server " + e.name + ": " + e.do + text
}

func (e *checkError) Unwrap() error { return e.err }

// checkServer looks at a server. The Server has a Name if the server has
// answered.
func (s *Store) checkServer(ctx context.Context, r *backend.CheckRequest, p *peer, key string) (server backend.Server, err error) {
	name := p.address.name
	w, err := p.statistics(ctx)
	if err != nil {
		return server, onServer(name, p.failed("dial", err))
	}
	defer w.close()
	// A server or a proxy that tells no stats may count all the same.
	unseen := func(err error) error {
		if failed := s.probe(ctx, r, key, nil); failed != nil {
			return onServer(name, p.failed("stats", err))
		}
		return onServer(name, backend.Unmet("stats: %w, want pid, time, uptime and evictions: clocks, evictions and restarts cannot be seen", err))
	}
	found := backend.Server{Name: name}
	found.Ahead, found.Within, err = r.Clock(func() (time.Time, time.Duration, error) {
		var err error
		if found.Facts, err = w.stats("stats", ""); err != nil {
			return time.Time{}, 0, err
		}
		// The clock ticks once a second, in whole seconds from a start that was
		// rounded: the true time is up to a second earlier, and up to two later.
		seconds, err := strconv.ParseInt(found.Facts["time"], 10, 64)
		return time.Unix(seconds, 0).Add(500 * time.Millisecond), 1500 * time.Millisecond, err
	})
	if err != nil {
		return server, unseen(w.because(ctx, err))
	}
	found.Run = fmt.Sprintf("process %s since %s", found.Facts["pid"], startOf(found.Facts))
	found.Evicted, _ = strconv.ParseInt(found.Facts["evictions"], 10, 64)
	for request, prefix := range map[string]string{"stats settings": "settings.", "stats items": "items.", "stats slabs": "slabs."} {
		// A proxy may not pass on all stats.
		if facts, err := w.stats(request, prefix); err == nil {
			maps.Copy(found.Facts, facts)
		}
	}
	var errs []error
	if err := s.probe(ctx, r, key, w); err != nil {
		errs = append(errs, onServerTo(name, "cannot be written to: ", err))
	}
	if found.Evicted > 0 {
		errs = append(errs, onServer(name, backend.Unmet("has evicted %d items since its start, want none: evicted hits are forgiven; give the server more memory, or start it with -M", found.Evicted)))
	}
	return found, errors.Join(errs...)
}

// startOf is the instant of the server's start, in seconds since 1970.
func startOf(facts map[string]string) string {
	now, _ := strconv.ParseInt(facts["time"], 10, 64)
	up, _ := strconv.ParseInt(facts["uptime"], 10, 64)
	return strconv.FormatInt(now-up, 10)
}

// probe adds a hit to a key, as calls do, and removes the item by w, or leaves
// the item for its life of some seconds without w.
func (s *Store) probe(ctx context.Context, r *backend.CheckRequest, key string, w *statistics) error {
	op := r.Probe(key)
	op.Deadline, _ = ctx.Deadline()
	if err := s.Do(ctx, op); err != nil || w == nil {
		return err
	}
	for _, slot := range op.Add {
		if answer, err := w.ask("delete " + itemName(key, slot.Bucket)); err != nil {
			return w.because(ctx, err)
		} else if answer != "DELETED" && answer != "NOT_FOUND" {
			return fmt.Errorf("delete: %w", unexpected([]byte(answer)))
		}
	}
	return nil
}

// statistics is a connection for stats.
type statistics struct {
	conn net.Conn
	in   *bufio.Reader
	stop func() bool
}

// statistics connects until ctx ends.
func (p *peer) statistics(ctx context.Context) (*statistics, error) {
	conn, err := p.connect.DialContext(ctx, p.address.network, p.address.name)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return &statistics{conn, bufio.NewReader(conn), stop}, nil
}

func (w *statistics) close() {
	w.stop()
	w.conn.Close()
}

// because returns the cause of err: the end of ctx closes the connection.
func (w *statistics) because(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// ask sends a line and returns the first line of the answer.
func (w *statistics) ask(line string) (string, error) {
	if _, err := io.WriteString(w.conn, line+"\r\n"); err != nil {
		return "", err
	}
	return w.line()
}

func (w *statistics) line() (string, error) {
	line, err := w.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		err = errors.New("a line of the answer is too long")
	}
	return strings.TrimRight(string(line), "\r\n"), err
}

// maxStats bounds the lines of an answer to stats.
const maxStats = 10_000

// stats asks for statistics, and puts prefix before their names.
func (w *statistics) stats(request, prefix string) (map[string]string, error) {
	facts := map[string]string{}
	line, err := w.ask(request)
	for range maxStats {
		if err != nil || line == "END" {
			return facts, err
		}
		fact, is := strings.CutPrefix(line, "STAT ")
		if !is {
			return nil, unexpected([]byte(line))
		}
		name, value, _ := strings.Cut(fact, " ")
		facts[prefix+name] = value
		line, err = w.line()
	}
	return nil, fmt.Errorf("more than %d lines", maxStats)
}

// Report returns the part of Stats that every store has. The store itself
// guesses nothing.
func (s *Store) Report() backend.Report {
	st := s.Stats()
	return backend.Report{LateAnswers: st.LateAdditions, HitsLeft: st.Unanswered + st.TakingBackFailed}
}
