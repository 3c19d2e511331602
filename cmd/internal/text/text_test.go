package text

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/words"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, s, want string }{
		{"what can be seen stays", "signup of ip:203.0.113.9 – Zoë", "signup of ip:203.0.113.9 – Zoë"},
		{"what cannot is told", "a\x00\n\x1b[31m", `a\x00\n\x1b[31m`},
		{"nor what turns the text around", "\u202egpj.exe", `\u202egpj.exe`},
		{"nor what is no text", "\xff", `\xff`},
		{"too long", strings.Repeat("x", 31), strings.Repeat("x", 29) + "…"},
		{"just long enough", strings.Repeat("é", 30), strings.Repeat("é", 30)},
		{"it is the shown length that counts", strings.Repeat("\x00", 8), strings.Repeat(`\x00`, 7) + `\…`},
		{"a pile of marks", "e" + strings.Repeat("\u0301", 9) + "a\u0301", "e" + strings.Repeat("\u0301", 3) + "a\u0301"},
		{"nothing", "", ""},
	} {
		require.Equal(t, c.want, Clean(c.s, 30), c.name)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		v        float64
		decimals int
		want     string
	}{
		{0, 0, "0"}, {0, 2, "0.00"}, {1234.5678, 2, "1,234.57"}, {999.999, 2, "1,000.00"}, {0.25, 2, "0.25"}, {1e15, 0, "1,000,000,000,000,000"},
	} {
		require.Equal(t, c.want, Number(c.v, c.decimals))
	}
	require.Equal(t, []string{"12.3 %", "1.23 %", "< 0.01 %", "0.00 %", "–"},
		[]string{Percent(123, 1000), Percent(123, 10000), Percent(1, 1e6), Percent(0, 5), Percent(1, 0)})
	require.Equal(t, []string{"", "a", "a and b", "a, b and c", "a, x; b"},
		[]string{words.List(nil), words.List([]string{"a"}), words.List([]string{"a", "b"}), words.List([]string{"a", "b", "c"}), words.List([]string{"a, x", "b"})})
}

func TestTimes(t *testing.T) {
	at := time.Date(2026, 3, 1, 22, 30, 0, 0, time.FixedZone("IST", 19800))
	for d, want := range map[time.Duration]string{
		0: "0s", 40_400 * time.Microsecond: "40ms", 167 * time.Second: "2m47s", 3601 * time.Second: "1h0m1s", 5 * time.Hour: "5 hours",
		150 * time.Minute: "2.5 hours", 48 * time.Hour: "2 days", 60 * 24 * time.Hour: "60 days",
	} {
		require.Equal(t, want, Roughly(d))
	}
	require.Equal(t, []string{"", "9.5s", "11s", "never"}, []string{Rest(0), Rest(9500 * time.Millisecond), Rest(10500 * time.Millisecond), Rest(counter.Never)})
	require.Equal(t, "2026-03-01 17:00:00 UTC", Instant(at))
}
