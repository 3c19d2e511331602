package limiter_test

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
)

var receiptKey = []byte("0123456789abcdef")

// withReceipts is a process on a store: a Limiter with receipts and these rules.
func withReceipts(t testing.TB, store backend.Store, cfg counter.Config, rules ...limiter.Rule) *limiter.Limiter {
	t.Helper()
	cfg.Patience = patience
	c := derivingCounter(t, store, cfg)
	return newLimiter(t, c, limiter.Config{Rules: rules, DecideWithin: 2 * patience, ReceiptKey: receiptKey})
}

func receiptOf(t testing.TB, lim *limiter.Limiter, v limiter.Verdict) []byte {
	receipt := try.To(lim.Receipt(&v))(t)
	require.NotEmpty(t, receipt)
	return receipt
}

// A receipt is refunded by another process, with other rules, once: all keys get their
// hits back, that of a soft rule too.
func TestReceiptIsRefundedByAnotherProcess(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		cfg := counter.Config{Now: newClock().now}
		rules := []limiter.Rule{by("ip", "3/h"), by("user", "3/h"), soft(0, by("ip", "2/h"))}
		one := withReceipts(t, store, cfg, rules...)
		other := withReceipts(t, store, cfg, limiter.Rule{Event: "login", Kind: "user", Limits: counter.MustLimits("1/d")})
		features := featuresOf(ip("192.0.2.1"), user("ada"))
		v := allowN(t, one, 2, features...)
		require.Equal(t, []bool{true, false}, []bool{v.Allowed, v.Soft[0].Denied})
		same := v
		receipt := try.To(one.Receipt(&v))(t)
		for _, text := range []string{"192.0.2.1", "ada", "user", "signup"} {
			require.NotContains(t, string(receipt), text)
		}
		t.Logf("%d bytes", len(receipt))
		_, err := one.Receipt(&same)
		require.EqualError(t, err, "limiter: Receipt: the Verdict was refunded, settled or has a receipt already, want one of them")
		require.NoError(t, one.Refund(ctx, &v))
		require.NoError(t, one.Refund(ctx, &same))
		full := allowN(t, one, 2, features...)
		require.False(t, full.Allowed, "the receipt alone gives back")

		require.NoError(t, other.RefundReceipt(ctx, receipt))
		for _, lim := range []*limiter.Limiter{other, one, withReceipts(t, store, cfg, rules...)} {
			err = lim.RefundReceipt(ctx, receipt)
			require.ErrorIs(t, err, limiter.ErrReceiptUsed)
			require.ErrorIs(t, err, limiter.ErrReceipt)
			require.EqualError(t, err, "limiter: RefundReceipt: the receipt is refused: its hits were given back before")
		}
		one = withReceipts(t, store, cfg, rules...) // does not remember its denial for a second
		v = allowN(t, one, 2, features...)
		require.True(t, v.Allowed)
		require.False(t, v.Soft[0].Denied, "the hits of the soft rule are given back")
		require.True(t, allow(t, one, features...).Allowed)
		require.False(t, allow(t, one, features...).Allowed, "no hit more is given back")
	})
}

// Many refunds of a receipt at once, by several processes, give back once.
func TestReceiptIsRefundedOnce(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		cfg := counter.Config{Now: newClock().now}
		var processes []*limiter.Limiter
		for range 4 {
			processes = append(processes, withReceipts(t, store, cfg, by("user", "9/h")))
		}
		for range 5 {
			receipt := receiptOf(t, processes[0], allow(t, processes[0], user("ada")))
			var refunded atomic.Int64
			ticket.SideBySide(16, func(i int) {
				switch err := processes[i%4].RefundReceipt(ctx, receipt); {
				case err == nil:
					refunded.Add(1)
				case !strings.Contains(err.Error(), limiter.ErrReceiptUsed.Error()):
					t.Error(err)
				}
			})
			require.EqualValues(t, 1, refunded.Load())
		}
		require.EqualValues(t, 9, try.To(processes[1].Peek(ctx, "signup", 0, user("ada")))(t).Remaining)
	})
}

// Whatever is not the very bytes of a receipt is refused, and gives nothing back.
func TestForgedReceipts(t *testing.T) {
	store := memory.New(memory.Config{})
	rule := by("ip", "9/h")
	lim := withReceipts(t, store, counter.Config{}, rule)
	receipt := receiptOf(t, lim, allow(t, lim, ip("192.0.2.1")))
	refused := func(lim *limiter.Limiter, receipt []byte) {
		err := lim.RefundReceipt(ctx, receipt)
		require.ErrorIs(t, err, limiter.ErrReceipt)
		require.NotErrorIs(t, err, limiter.ErrReceiptUsed)
		require.NotErrorIs(t, err, limiter.ErrReceiptExpired)
	}
	for i := range receipt {
		for bit := range 8 {
			forged := bytes.Clone(receipt)
			forged[i] ^= 1 << bit
			refused(lim, forged)
		}
		refused(lim, receipt[:i])
		refused(lim, receipt[i+1:])
	}
	refused(lim, nil)
	refused(lim, append(bytes.Clone(receipt), 0))
	refused(lim, append(bytes.Clone(receipt), receipt...))
	refused(lim, make([]byte, 1<<26))
	refused(lim, bytes.Repeat([]byte{1}, limiter.MaxReceipt))
	for _, cfg := range []counter.Config{{Prefix: "other"}, {Secret: []byte("secret")}, {Skew: time.Second}, {Settle: time.Second}} {
		refused(withReceipts(t, store, cfg, rule), receipt)
	}
	c := derivingCounter(t, store, counter.Config{})
	refused(newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{rule}, ReceiptKey: []byte("another secret of sixteen bytes")}), receipt)
	v := peek(t, lim, 0, ip("192.0.2.1"))
	require.EqualValues(t, 8, v.Remaining, "nothing was given back")
	require.NoError(t, lim.RefundReceipt(ctx, receipt))
}

func FuzzRefundReceipt(f *testing.F) {
	lim := withReceipts(f, memory.New(memory.Config{}), counter.Config{}, by("ip", "9/h"))
	receipt := receiptOf(f, lim, allow(f, lim, ip("192.0.2.1")))
	f.Add(receipt[1:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if !bytes.Equal(data, receipt) {
			require.ErrorIs(t, lim.RefundReceipt(ctx, data), limiter.ErrReceipt)
		}
	})
}

// A receipt is good for as long as its ladder keeps the hits.
func TestReceiptExpires(t *testing.T) {
	clock := newClock()
	lim := withReceipts(t, memory.New(memory.Config{}), counter.Config{Now: clock.now}, on("1s:1m, 1m:1h", by("ip", "9/h")))
	first, second := receiptOf(t, lim, allow(t, lim, ip("192.0.2.1"))), receiptOf(t, lim, allow(t, lim, ip("192.0.2.1")))
	clock.pass(59 * time.Minute)
	require.NoError(t, lim.RefundReceipt(ctx, first))
	clock.pass(62 * time.Second)
	err := lim.RefundReceipt(ctx, first)
	require.ErrorIs(t, err, limiter.ErrReceiptExpired)
	require.ErrorIs(t, err, limiter.ErrReceipt)
	require.ErrorIs(t, lim.RefundReceipt(ctx, second), limiter.ErrReceiptExpired)
}

// While a ladder changes, a receipt gives back by the ladders by which its hits were
// counted, and by no other.
func TestReceiptKeepsItsLadders(t *testing.T) {
	store := memory.New(memory.Config{})
	rule := by("user", "4/h")
	old := withReceipts(t, store, counter.Config{}, on(fine, rule))
	both := withReceipts(t, store, counter.Config{}, on(fine, rule))
	require.NoError(t, both.Replace(on(coarse, rule)))
	changed := withReceipts(t, store, counter.Config{}, on(coarse, rule))
	byOld, byBoth := allow(t, old, user("7")), allow(t, both, user("7"))
	remaining := func(lim *limiter.Limiter, want int64) {
		v := peek(t, lim, 0, user("7"))
		require.Equal(t, want, v.Remaining)
	}
	remaining(old, 2)
	remaining(changed, 3)
	require.NoError(t, changed.RefundReceipt(ctx, receiptOf(t, old, byOld)))
	remaining(old, 3)
	remaining(changed, 3)
	require.NoError(t, old.RefundReceipt(ctx, receiptOf(t, both, byBoth)))
	remaining(old, 4)
	remaining(changed, 4)
}

func TestReceiptErrors(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	_, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{by("ip", "9/h")}, ReceiptKey: []byte("short")})
	require.EqualError(t, err, "limiter: Config.ReceiptKey has 5 bytes, want at least 16 random bytes, or none for no receipts")
	without := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "9/h")}})
	v := allow(t, without, ip("192.0.2.1"))
	_, err = without.Receipt(&v)
	require.EqualError(t, err, "limiter: Receipt: Config.ReceiptKey is empty, want at least 16 random bytes, the same in all processes")
	require.ErrorContains(t, without.RefundReceipt(ctx, nil), "limiter: RefundReceipt: Config.ReceiptKey is empty, want")

	lim := withReceipts(t, memory.New(memory.Config{}), counter.Config{}, by("user", "1/h"))
	_, err = lim.Receipt(&v)
	require.EqualError(t, err, "limiter: Receipt: the Verdict is of another Counter")
	long := try.To(lim.Allow(ctx, "signup", user(strings.Repeat("x", limiter.MaxReceipt))))(t)
	_, err = lim.Receipt(&long)
	require.ErrorContains(t, err, "limiter: Receipt: the receipt has 656")
	require.ErrorContains(t, err, " bytes, want at most 65536")
	require.NoError(t, lim.Refund(ctx, &long), "the Verdict is as it was")

	allow(t, lim, user("ada"))
	for name, v := range map[string]limiter.Verdict{"denied": allow(t, lim, user("ada")), "missing": allow(t, lim), "zero": {}} {
		require.Nil(t, try.To(lim.Receipt(&v))(t), name)
	}
}

// A store that fails before the refund has begun leaves the receipt as it is.
func TestReceiptOfAFailingStore(t *testing.T) {
	s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "2/h"))}, ReceiptKey: receiptKey})
	receipt := receiptOf(t, s.lim, allow(t, s.lim, ip("192.0.2.1")))
	s.store.broken.Store(true)
	err := s.lim.RefundReceipt(ctx, receipt)
	require.ErrorIs(t, err, counter.ErrStore)
	require.NotErrorIs(t, err, limiter.ErrReceipt)
	local := allow(t, s.lim, ip("192.0.2.1"))
	require.Equal(t, limiter.OutcomeLocalAdmitted, local.Outcome())
	require.EqualError(t, try.Err(s.lim.Receipt(&local)), "limiter: Receipt: the hits were counted in this process, since the store has failed, want a Refund of the Verdict")
	require.NoError(t, s.lim.Refund(ctx, &local))
	s.store.broken.Store(false)
	require.NoError(t, s.lim.RefundReceipt(ctx, receipt))
	require.NoError(t, s.lim.Close(ctx)) // the local hit may have been on its way to the store
	require.Zero(t, counted(t, s.c, "ip:192.0.2.1"))
}

// A receipt ends the time in which hits are open.
func TestReceiptOfOpenHits(t *testing.T) {
	lim := withReceipts(t, memory.New(memory.Config{}), counter.Config{}, by("ip", "1/h"))
	v := allowOpen(t, lim, 1, ip("192.0.2.1"))
	require.Less(t, allow(t, lim, ip("192.0.2.1")).RetryAfter, time.Minute)
	receipt := receiptOf(t, lim, v)
	require.Greater(t, allow(t, lim, ip("192.0.2.1")).RetryAfter, time.Minute)
	require.NoError(t, lim.RefundReceipt(ctx, receipt))
	require.True(t, allow(t, lim, ip("192.0.2.1")).Allowed)
}
