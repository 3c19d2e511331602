package stores

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// Memcached is the servers of a store on memcached, seen by a second client
// next to the store's, and the names of all items written by the store.
//
// The names are remembered because memcached cannot list items by prefix: the
// only list is of all items of the server, whatever their owners, and is missing
// from older servers and behind proxies.
type Memcached struct {
	Client  *gomemcache.Client
	Servers []string

	selector gomemcache.ServerSelector
	store    *memcache.Store
	written  written
}

func (o *Opened) openMemcached(timeout time.Duration) error {
	store, err := memcache.New(memcache.Config{IOTimeout: timeout}, o.Name.servers...)
	if err != nil {
		return err
	}
	selector, err := memcache.NewSelector(o.Name.servers...)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	m := &Memcached{Client: gomemcache.NewFromSelector(selector), Servers: o.Name.servers, selector: selector, store: store}
	m.Client.Timeout = patience
	m.written.items = map[string][]int64{}
	o.Store, o.Memcached, o.servers = remembering{store, &m.written}, m, m
	return nil
}

// remembering is a store with a record of the written buckets. No command forgets a
// key, so what a Forget writes is not recorded.
type remembering struct {
	*memcache.Store
	written *written
}

// Do notes the buckets before the write: an addition without an answer may have
// been made.
func (r remembering) Do(ctx context.Context, op *backend.Request) error {
	if op.N > 0 {
		r.written.note(op)
	}
	return r.Store.Do(ctx, op)
}

// written is the record of written items.
type written struct {
	mu    sync.Mutex
	items map[string][]int64 // indices of the buckets of one key and width, by the beginning of their names
}

// note notes the buckets of op. A bucket may be noted twice, if other buckets
// were written in between.
func (w *written) note(op *backend.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, slot := range op.Add {
		run := itemName(op.Key, slot.Width)
		if noted := w.items[run]; len(noted) == 0 || noted[len(noted)-1] != slot.Index {
			w.items[run] = append(noted, slot.Index)
		}
	}
}

// Written yields the names of all items that the store has written, failed
// attempts included, for keys that begin with prefix. A name may come twice.
func (m *Memcached) Written(prefix string) iter.Seq[string] {
	return func(yield func(item string) bool) {
		m.written.mu.Lock()
		defer m.written.mu.Unlock()
		for run, indices := range m.written.items {
			for _, index := range indices {
				if strings.HasPrefix(run, prefix) && !yield(run+strconv.FormatInt(index, 10)) {
					return
				}
			}
		}
	}
}

// ItemName is the name of a bucket's item, as the documentation of backend/memcache
// says.
func ItemName(key string, width time.Duration, index int64) string {
	return itemName(key, width) + strconv.FormatInt(index, 10)
}

func itemName(key string, width time.Duration) string { return key + "|" + dur.Format(width) }

// Never is the time to live of a key or item without expiry, and Gone of a
// missing key or item, as the client of Redis says.
const (
	Never time.Duration = -1
	Gone  time.Duration = -2
)

// ErrNoTTL is the error of a memcached before 1.6, which does not tell when an
// item expires.
var ErrNoTTL = errors.New("the server does not tell when an item expires")

// TTLs calls f with the time to live of each of the items, in the whole seconds of
// memcached.
func (m *Memcached) TTLs(ctx context.Context, items iter.Seq[string], f func(item string, ttl time.Duration)) error {
	return m.each(ctx, items, "mg %s t\r\n", func(item, answer string) error {
		switch answer {
		case "ERROR":
			return ErrNoTTL
		case "EN":
			f(item, Gone)
			return nil
		case "HD t-1":
			f(item, Never)
			return nil
		}
		seconds, err := strconv.ParseInt(strings.TrimPrefix(answer, "HD t"), 10, 64)
		if err != nil {
			return fmt.Errorf("mg of item %q: answer %.80q, want HD t and seconds", item, answer)
		}
		f(item, time.Duration(seconds)*time.Second)
		return nil
	})
}

// each sends the request for each item to the item's server, and calls f with the
// line of the answer. Many requests are sent before the first answer is read:
// requests in turn would wait a round trip for each item.
func (m *Memcached) each(ctx context.Context, items iter.Seq[string], request string, f func(item, answer string) error) error {
	const most = 128
	err := m.selector.Each(func(addr net.Addr) error {
		w, err := dial(ctx, addr.String())
		if err != nil {
			return err
		}
		defer w.close()
		var asked []string
		for item := range items {
			if at, err := m.selector.PickServer(item); err != nil || at != addr {
				continue // no item is without a server
			}
			if asked = append(asked, item); len(asked) == most {
				if err := w.askAll(asked, request, f); err != nil {
					return err
				}
				asked = asked[:0]
			}
		}
		return w.askAll(asked, request, f)
	})
	return cmp.Or(ctx.Err(), err)
}

// askAll sends the request for each item, and then reads the answers.
func (w *wire) askAll(items []string, request string, f func(item, answer string) error) error {
	var all strings.Builder
	for _, item := range items {
		fmt.Fprintf(&all, request, item)
	}
	if _, err := w.conn.Write([]byte(all.String())); err != nil {
		return reason(err)
	}
	for _, item := range items {
		answer, err := w.line()
		if err == nil {
			err = f(item, answer)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clean removes the written items, after a wait for the abandoned calls whose
// requests are still under way: such a request would write after the removal.
func (m *Memcached) clean(ctx context.Context, prefix string) (int64, error) {
	for st := m.store.Stats(); st.InFlight+st.Listening > 0; st = m.store.Stats() {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return m.Remove(ctx, m.Written(prefix))
}

// Remove removes items, and returns the number of those that were there.
func (m *Memcached) Remove(ctx context.Context, items iter.Seq[string]) (removed int64, err error) {
	err = m.each(ctx, items, "delete %s\r\n", func(item, answer string) error {
		switch answer {
		case "DELETED":
			removed++
		case "NOT_FOUND":
		default:
			return fmt.Errorf("delete of item %q: answer %.80q, want DELETED or NOT_FOUND", item, answer)
		}
		return nil
	})
	return removed, err
}

// slack is the extra time to live of backend/memcache: a minute for a server that
// stands still, and several seconds for memcached's clock, the rounding up to
// whole seconds, and the lag of the clock on a busy machine.
func (m *Memcached) slack(tiers.Ladder) time.Duration { return time.Minute + 10*time.Second }

func (m *Memcached) close() error { return errors.Join(m.store.Close(), m.Client.Close()) }

// wire is a connection for lines of text. Both kinds of servers understand enough
// lines to be told apart, and memcached's stats need nothing else.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	stop func() bool
}

// dial connects to host:port, or to the path of a socket. The connection ends
// with ctx.
func dial(ctx context.Context, addr string) (*wire, error) {
	network := "tcp"
	if strings.Contains(addr, "/") {
		network = "unix"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, reason(err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return &wire{conn, bufio.NewReaderSize(conn, 1<<16), stop}, nil
}

func (w *wire) close() {
	w.stop()
	w.conn.Close()
}

// ask sends a line and returns the first line of the answer.
func (w *wire) ask(line string) (string, error) {
	if _, err := w.conn.Write([]byte(line + "\r\n")); err != nil {
		return "", reason(err)
	}
	return w.line()
}

func (w *wire) line() (string, error) {
	line, err := w.in.ReadString('\n')
	if err != nil {
		return "", reason(err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// stats sends a stats command of memcached.
func (w *wire) stats(command string) (map[string]string, error) {
	line, err := w.ask(command)
	all := map[string]string{}
	for ; err == nil && line != "END"; line, err = w.line() {
		stat, is := strings.CutPrefix(line, "STAT ")
		if !is {
			return nil, fmt.Errorf("%s: answer %.80q, want STAT lines and END", command, line)
		}
		name, value, _ := strings.Cut(stat, " ")
		all[name] = value
	}
	return all, err
}

// errUnknown is the error for an answer of neither kind of server.
var errUnknown = errors.New("what answers is neither Redis nor memcached")

// kind asks a server for the version in memcached's words: a memcached tells the
// version, and a Redis is known by the form of the refusal.
func (w *wire) kind() (Kind, error) {
	answer, err := w.ask("version")
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(answer, "VERSION ") {
		return OnMemcached, nil
	}
	for _, refusal := range []string{"-ERR", "-NOAUTH", "-NOPERM", "-DENIED", "-LOADING", "-MASTERDOWN"} {
		if strings.HasPrefix(answer, refusal) {
			return OnRedis, nil
		}
	}
	if strings.HasPrefix(answer, "CLIENT_ERROR unauthenticated") {
		return OnMemcached, errors.New("the memcached wants a password, which this program cannot give")
	}
	return 0, errUnknown
}

// kindOf is the kind of the server at addr, as far as its answers tell.
func kindOf(ctx context.Context, addr string) (Kind, error) {
	w, err := dial(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer w.close()
	return w.kind()
}
