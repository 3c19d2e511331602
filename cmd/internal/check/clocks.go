package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
)

// clocks tells the distances of the servers' clocks from this machine's. Callers
// stamp the counts, so the callers' clocks must agree; a server serves all callers
// as the common measure.
func (r *run) clocks(context.Context) (Result, error) {
	result := Result{Name: "clocks", Promise: "clocks agree", Status: OK}
	if r.local() || len(r.servers) == 0 {
		return result, errNotHere
	}
	var told []string
	for _, s := range r.servers {
		told = append(told, s.Clock())
		if s.Apart(counter.DefaultSkew) {
			result.Status = Warning
			result.Means = fmt.Sprintf("More than the default skew of %s. Limits hold while the callers' own clocks\nagree within counter.Config.Skew: compare their machines, set the clocks by NTP.",
				dur.Format(counter.DefaultSkew))
		}
	}
	result.Seen = "the server's is " + strings.Join(told, "; ")
	if len(told) == 1 {
		result.Numbers = map[string]float64{"ahead_ms": r.servers[0].Ahead.Seconds() * 1e3, "unsure_ms": r.servers[0].Within.Seconds() * 1e3}
	}
	return result, nil
}
