package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
)

// featureOf is the feature of a key, as a program gives it to a limiter. Of a
// network it is the first address.
func featureOf(key counter.Key) (feature.Feature, error) {
	kind, value, found := strings.Cut(key.Feature, ":")
	switch {
	case !found || value == "":
		return feature.Feature{}, fmt.Errorf("feature %q: want a kind, a colon and a value", key.Feature)
	case kind == feature.KindIP:
		network, err := netip.ParsePrefix(value)
		addr := network.Addr()
		if err != nil {
			if addr, err = netip.ParseAddr(value); err != nil {
				return feature.Feature{}, fmt.Errorf("feature %q: want an address", key.Feature)
			}
		}
		return feature.IP(addr), nil
	case kind == feature.KindEmail:
		f := feature.Email(value)
		return f, f.Err()
	}
	return feature.New(kind, value), nil
}
