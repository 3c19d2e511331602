package redis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// delay is the delay of the link, each way.
const delay = 2 * time.Millisecond

func TestRedisOnALink(t *testing.T) {
	rounds := measure.Pick(3, 30, 100)
	s := measure.Open(t, "On Redis: a link of 2 ms each way")
	s.Say("A proxy delays all bytes by 2 ms in each direction. %d rounds of one call, one caller, ms; a new key each time, so that nobody has an easy guess. \"To one INCR\" is the median over the rounds of the ratio "+
		"to a plain INCR in the same round. Trips are counted by the proxy. \"Side by side\": three calls at the same time, each on a connection of its own, without an order in which they could stop.", rounds)
	addr := servertest.Redis(t)
	proxy := servertest.NewProxy(t, addr, delay)
	b := &bench{T: t, addr: addr, client: connect(t, proxy.Addr, 0), now: time.Now()}
	type row struct {
		name   string
		limits string
		call   func(key string) error
		check  func(key string)
		wrong  *measure.Mishaps
	}
	plain := row{"plain INCR", "0", func(key string) error { return b.client.Incr(ctx, "plain:"+key).Err() }, func(key string) {
		require.Equal(t, 1, try.To(b.client.Get(ctx, "plain:"+key).Int())(t))
	}, new(measure.Mishaps)}
	rows := []row{plain}
	for _, r := range b.runners(kinds, 10, 1, 3) {
		rows = append(rows, row{r.name, fmt.Sprint(len(r.limits)), func(key string) error { r.take(key); return nil }, func(key string) { r.check([]string{key}) }, &r.mishaps})
	}
	limits, rates := roomy(3, 10), redis_rate.NewLimiter(b.client)
	ask := func(key string, i, n int) (*redis_rate.Result, error) {
		return rates.AllowN(ctx, fmt.Sprint("side:", key, i), redis_rate.Limit{Rate: int(limits[i].Max), Burst: int(limits[i].Max), Period: limits[i].Per}, n)
	}
	aside := new(measure.Mishaps)
	rows = append(rows, row{"redis_rate, side by side", "3", func(key string) error {
		answers := make(chan error, len(limits))
		for i := range limits {
			go func() {
				r, err := ask(key, i, 1)
				answers <- answered(err == nil && r.Allowed == 0, err)
			}()
		}
		if err := errors.Join(<-answers, <-answers, <-answers); err != nil {
			aside.Call(err)
		}
		return nil
	}, func(key string) {
		if r, err := ask(key, 2, 0); err != nil {
			aside.Call(err)
		} else if want := limits[2].Max - 1; int64(r.Remaining) != want {
			aside.Miscount("has %d of %d places left", r.Remaining, want)
		}
	}, aside})

	const tries = 5 // at the count of trips: a machine that stands still sends in two
	keys := measure.Names(t, rounds+1+tries)
	trips := make([]int, len(rows))
	for i, row := range rows {
		for range 2 { // connections are made, and scripts are known
			require.NoError(t, row.call(keys[rounds]))
		}
		for try := range tries {
			proxy.Reset()
			require.NoError(t, row.call(keys[rounds+1+try]))
			if n := proxy.Trips(); try == 0 || n < trips[i] {
				trips[i] = n
			}
		}
	}
	ms := make([]measure.Series, len(rows))
	measure.Turns(rounds, len(rows), func(i, round int) {
		began := time.Now()
		err := rows[i].call(keys[round])
		ms[i] = append(ms[i], float64(time.Since(began).Microseconds())/1e3)
		require.NoError(t, err, rows[i].name)
	})
	table := measure.Table{Head: []string{"", "limits", "trips", "ms", "to one INCR"}}
	for i, row := range rows {
		for round := 0; round < rounds; round += 1 + rounds/10 {
			row.check(keys[round])
		}
		table.Row(row.name+row.wrong.String(), row.limits, fmt.Sprint(trips[i]), ms[i].Spread(), measure.Num(ms[i].To(ms[0]).Median()))
	}
	require.Equal(t, 1, trips[1], "trips of a Take")
	s.Table("", table)
}
