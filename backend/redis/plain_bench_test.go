package redis_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// BenchmarkLayouts compares the layouts by the processor time of the server for an admitted
// Take, in turns: of the same key, of fresh keys, and of keys with 100 hits in the day.
func BenchmarkLayouts(b *testing.B) {
	for _, limits := range []string{"1000000/d", "1000000/m, 1000000/h, 1000000/d"} {
		for _, keys := range []string{"one key", "fresh keys", "keys of 100 hits a day"} {
			for _, layout := range layouts {
				b.Run(fmt.Sprintf("%s/%s/%s", limits, keys, layout), func(b *testing.B) {
					addr := servertest.Redis(b)
					now := time.Now()
					c := newCounter(b, openAs(b, "redis://"+addr, layout), counter.Config{Now: func() time.Time { return now }})
					const busy = 200
					if keys == "keys of 100 hits a day" {
						now = now.Add(-24 * time.Hour)
						for range 100 {
							now = now.Add(24 * time.Hour / 100)
							for i := range busy {
								require.NoError(b, c.Add(ctx, name(i), 1))
							}
						}
					}
					all, commands := serverTime(b, addr)
					i := 0
					for b.Loop() {
						key := name(0)
						switch keys {
						case "fresh keys":
							key = name(i)
						case "keys of 100 hits a day":
							if key = name(i % busy); i%busy == 0 {
								now = now.Add(time.Minute)
							}
						}
						i++
						require.True(b, take(b, c, key, 1, limits).Allowed)
					}
					allAfter, commandsAfter := serverTime(b, addr)
					b.ReportMetric((allAfter-all)*1e6/float64(i), "server-us/op")
					b.ReportMetric((commandsAfter-commands)*1e6/float64(i), "commands-us/op")
				})
			}
		}
	}
}

// serverTime returns the seconds of the processor that a server has used, and the seconds
// in the commands of the two layouts. The time of EXEC and of FCALL has the time of the
// commands inside.
func serverTime(b *testing.B, addr string) (all, commands float64) {
	info := try.To(raw(b, addr).InfoMap(ctx, "cpu", "commandstats").Result())(b)
	for _, part := range []string{"used_cpu_user", "used_cpu_sys"} {
		n := try.To(strconv.ParseFloat(info["CPU"][part], 64))(b)
		all += n
	}
	for _, command := range []string{"fcall", "multi", "exec"} {
		_, rest, found := strings.Cut(info["Commandstats"]["cmdstat_"+command], "usec=")
		if !found {
			continue
		}
		usec, _, _ := strings.Cut(rest, ",")
		n := try.To(strconv.ParseFloat(usec, 64))(b)
		commands += n / 1e6
	}
	return all, commands
}

// BenchmarkLayoutMemory compares the layouts by the stored keys of a key with so many hits
// in a day, at random instants.
func BenchmarkLayoutMemory(b *testing.B) {
	for _, hits := range []int{1, 10, 100, 2_000, 200_000} {
		for _, layout := range layouts {
			b.Run(fmt.Sprintf("%d hits/%s", hits, layout), func(b *testing.B) {
				for b.Loop() {
					addr := servertest.Redis(b)
					now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
					c := newCounter(b, openAs(b, "redis://"+addr, layout), counter.Config{Now: func() time.Time { return now }})
					random := rand.New(rand.NewPCG(1, uint64(hits)))
					for range hits {
						now = now.Add(time.Duration(random.ExpFloat64() * float64(24*time.Hour) / float64(hits)))
						require.NoError(b, c.Add(ctx, signup, 1))
					}
					client, bytes := raw(b, addr), int64(0)
					keys := client.Keys(ctx, "*").Val()
					for _, key := range keys {
						bytes += client.MemoryUsage(ctx, key).Val()
					}
					b.ReportMetric(float64(len(keys)), "keys")
					b.ReportMetric(float64(bytes), "bytes")
				}
			})
		}
	}
}
