package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

func TestOutgoingRefuses(t *testing.T) {
	by := func(kind string) *limiter.Limiter {
		return newLimiter(t, newClock(), limiter.Rule{Event: "pay", Kind: kind, Limits: counter.MustLimits("2/h")})
	}
	none := func(*http.Request) []feature.Feature { return nil }
	for _, row := range []struct {
		lim      *limiter.Limiter
		event    string
		features func(*http.Request) []feature.Feature
		want     string
	}{
		{nil, "pay", none, "httplimit: the Limiter of Outgoing is nil, want one of limiter.New"},
		{by("host"), "", nil, `httplimit: the event of Outgoing is "", but the Limiter has rules for "pay" only`},
		{by("host"), "paid", none, `httplimit: the event of Outgoing is "paid", but the Limiter has rules for "pay" only`},
		{by("user"), "pay", nil, `httplimit: Outgoing without features finds kind "host" only, but event "pay" has a rule by "user"`},
		{by("user"), "pay", none, ""},
		{by("host"), "pay", nil, ""},
	} {
		_, err := httplimit.Outgoing(row.lim, row.event, row.features)
		if row.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, row.want)
		}
	}
}
