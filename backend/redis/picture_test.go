package redis_test

import (
	"encoding/hex"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Redis holds the bytes that the picture of a value shows: those of the leaf, and
// then those of the root.
func TestRedisHoldsTheDrawnValue(t *testing.T) {
	addr := servertest.Redis(t)
	var now time.Time
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	for _, hit := range []string{"21:40:00", "22:03:00", "22:08:00", "22:12:00", "22:17:00", "22:21:00", "22:25:00", "22:26:00", "22:34:00",
		"22:38:00", "22:45:00", "22:52:00", "22:57:00", "23:10:00", "23:10:00", "23:10:00", "23:30:33"} {
		now = try.To(time.Parse(time.DateTime, "2026-03-01 "+hit))(t)
		v := try.To(c.Take(ctx, counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, 1, counter.MustLimits("100/d")))(t)
		require.True(t, v.Allowed)
	}
	server := raw(t, addr)
	const root = "{ab:16CTp:signup:ip:203.0.113.9}P"
	const leaf = root + ":492334.1"
	require.ElementsMatch(t, []string{root, leaf}, server.Keys(ctx, "*").Val())
	stored := hex.EncodeToString([]byte(server.Get(ctx, leaf).Val() + server.Get(ctx, root).Val()))
	field := regexp.MustCompile(`font-family="ui-monospace[^>]*>([0-9a-f]+)<`)
	for _, file := range []string{"value-light.svg", "value-dark.svg"} {
		picture := try.To(os.ReadFile("../../docs/pictures/" + file))(t)
		drawn := ""
		for _, found := range field.FindAllStringSubmatch(string(picture), -1) {
			drawn += found[1]
		}
		require.Equal(t, drawn, stored, file)
		require.Contains(t, string(picture), root)
		require.Contains(t, string(picture), leaf)
	}
}
