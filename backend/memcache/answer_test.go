package memcache

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// Each multi-get has a proof behind it: an END that a proxy inserts for the last of
// several is noticed, though the item just added to is in the first.
func TestAnEndForTheLastOfSeveralReads(t *testing.T) {
	op := &backend.Request{
		Key: "k", N: 1,
		Add: []backend.Slot{{Bucket: tiers.Bucket{Width: time.Second, Index: 5}, TTL: time.Minute}},
		Read: []backend.Span{
			{Width: time.Second, First: 0, Counts: make([]int64, chunkSize)},
			{Width: time.Hour, First: 0, Counts: make([]int64, 10)},
		},
	}
	x := newExchanges().Get().(*exchange)
	require.NoError(t, x.encode(true, op, true))
	require.Equal(t, 2, x.chunks)
	answers := fmt.Sprintf("VA 1 O%d\r\n1\r\nVALUE k|1s5 0 1\r\n1\r\nEND\r\nEND\r\nVALUE k|1h3 0 1\r\n7\r\nEND\r\nNF O%d\r\n", x.tag, x.tag+1)
	_, complete, err := x.parse([]byte(answers))
	require.ErrorContains(t, err, "unexpected answer", "complete: %v", complete)
}

// A server behind a proxy may fail for the command at the end of a read: the read
// fails, and the other calls on the connection do not.
func TestAnErrorAtTheEndOfReads(t *testing.T) {
	op := &backend.Request{Key: "k", Read: []backend.Span{{Width: time.Second, First: 0, Counts: make([]int64, 3)}}}
	x := newExchanges().Get().(*exchange)
	require.NoError(t, x.encode(true, op, false))
	const answers = "END\r\nSERVER_ERROR backend failure\r\n"
	n, complete, err := x.parse([]byte(answers))
	require.NoError(t, err)
	require.True(t, complete)
	require.Equal(t, len(answers), n)
	require.ErrorContains(t, x.result(new(transport), op), "SERVER_ERROR backend failure")
}

// Of two answers that a broken network ran together, neither is taken for an item:
// the line of an item ends with its length.
func TestAnswersRunTogether(t *testing.T) {
	op := &backend.Request{Key: "k", Read: []backend.Span{{Width: time.Second, First: 4, Counts: make([]int64, 2)}}}
	for _, line := range []string{"VALUE k|1s4 VA 1 O17", "VALUE k|1s4 VA 1 OVALUE k|1s4 0 1", "VALUE k|1s4 0 1 0 1"} {
		x := newExchanges().Get().(*exchange)
		require.NoError(t, x.encode(true, op, true))
		_, complete, err := x.parse(fmt.Appendf(nil, "%s\r\n7\r\nEND\r\nNF O%d\r\n", line, x.tag))
		require.ErrorContains(t, err, "unexpected answer", "%s, complete: %v", line, complete)
	}
}
