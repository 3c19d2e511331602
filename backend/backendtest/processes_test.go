package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
)

// far is a server in another process, asked over a connection for each call.
type far string

type wire struct {
	Key, Ladder, Error string
	Now                time.Time
	N                  int64
	Add                []backend.Slot
	Read               []backend.Span
}

func (f far) Do(ctx context.Context, op *backend.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := net.Dial("tcp", string(f))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(op.Deadline); err != nil {
		return err
	}
	w := wire{Key: op.Key, Ladder: op.Ladder.String(), Now: op.Now, N: op.N, Add: op.Add, Read: op.Read}
	if err := json.NewEncoder(conn).Encode(w); err != nil {
		return err
	}
	var answer wire
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return err
	}
	copy(op.Add, answer.Add)
	for i := range op.Read {
		copy(op.Read[i].Counts, answer.Read[i].Counts)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// listen serves a store until the test is over, and returns its address.
func listen(t testing.TB, store backend.Store) string {
	return servertest.Serve(t, func(conn net.Conn) {
		var w wire
		if json.NewDecoder(conn).Decode(&w) != nil {
			return
		}
		op := &backend.Request{Key: w.Key, Ladder: parse.Ladder(w.Ladder), Now: w.Now, N: w.N, Add: w.Add, Read: w.Read}
		if err := store.Do(context.Background(), op); err != nil {
			w.Error = err.Error()
		}
		_ = json.NewEncoder(conn).Encode(w)
	})
}

func dial(where string) (backend.Store, error) { return backend.FromDo(far(where).Do), nil }

func TestProcesses(t *testing.T) {
	Processes(t, func(t testing.TB) string { return listen(t, newServer("")) }, dial)
}

// Processes that share nothing, or a store that is broken, are found.
func TestProcessesBite(t *testing.T) {
	for _, row := range []struct {
		fault string
		open  func(string) (backend.Store, error)
		want  string
	}{
		{"", func(string) (backend.Store, error) { return memory.New(memory.Config{}), nil }, "40 admitted, want 7"},
		// The lost addition may be of a tier that the race does not read.
		{"adds without a lock", dial, "admitted, want 7|left after the race, want 7"},
		{"answers no counts", dial, "admitted, want 7"},
		// On a slow machine a hit is gone before another rule looks: any rule may be the
		// first that is broken.
		{"lives as long as its width", dial, "admitted(, want| within| across)|longer than a lone caller|places were taken|left after the race"},
		{"", func(string) (backend.Store, error) { return nil, errors.New("nobody is there") }, "nobody is there"},
	} {
		t.Run(fmt.Sprintf("%s, %s", row.fault, row.want), func(t *testing.T) {
			serveChild(row.open)
			err := processes(t.Name(), listen(t, newServer(row.fault)), row.open)
			require.Error(t, err)
			require.Regexp(t, row.want, err.Error())
		})
	}
}

// The worst window, by labels and in true time: a clock that is ahead brings
// together what is apart.
func TestWorst(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	hits := []admission{{at(0), at(0)}, {at(1000), at(1010)}, {at(1001), at(1001)}, {at(3000), at(3000)}, {at(4001), at(3901)}}
	require.EqualValues(t, 2, fullest(hits, 999*time.Millisecond))
	require.EqualValues(t, 2, fullest(hits[:2], time.Second), "by the labels")
	require.EqualValues(t, 2, fullest(hits[3:], time.Second), "in true time")
	require.EqualValues(t, 3, fullest(hits, 1001*time.Millisecond))
	require.EqualValues(t, 0, fullest(nil, time.Second))
}

// Where all calls fail, nobody was told to wait too long.
func TestNobodyWasTold(t *testing.T) {
	require.Negative(t, toldBeyond(time.Time{}, noon))
	require.Negative(t, toldBeyond(noon, noon))
	require.Equal(t, time.Second, toldBeyond(noon.Add(time.Second+crewSkew+counter.DefaultSettle+onTheWay), noon))
}
