package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// featureOf is the feature of a key, as a program gives it to a limiter. Of a
// network it is the first address.
func featureOf(key counter.Key) (limiter.Feature, error) {
	kind, value, found := strings.Cut(key.Feature, ":")
	switch {
	case !found || value == "":
		return limiter.Feature{}, fmt.Errorf("feature %q: want a kind, a colon and a value", key.Feature)
	case kind == limiter.KindIP:
		network, err := netip.ParsePrefix(value)
		addr := network.Addr()
		if err != nil {
			if addr, err = netip.ParseAddr(value); err != nil {
				return limiter.Feature{}, fmt.Errorf("feature %q: want an address", key.Feature)
			}
		}
		return limiter.IP(addr), nil
	case kind == limiter.KindEmail:
		f := limiter.Email(value)
		return f, f.Err()
	}
	return limiter.NewFeature(kind, value), nil
}
