package limiter

import (
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/inside"
)

// inner returns what a Limiter needs of a Counter and users do not.
func inner(c *counter.Counter) inside.Counter[counter.Key, counter.Ask, counter.Verdict] {
	return inside.Of(c).(inside.Counter[counter.Key, counter.Ask, counter.Verdict])
}
