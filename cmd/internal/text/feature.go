package text

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
)

// FeatureOf is the feature of a key, as a program gives it to a limiter. Of a
// network it is the first address.
func FeatureOf(key counter.Key) (feature.Feature, error) {
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

// Feature makes a feature from text as a key of the store has the text, or as people
// write it: a network that a limiter counts by stands for its addresses.
func Feature(kind, text string, ipv4Bits, ipv6Bits int) feature.Feature {
	kinds, values := strings.Split(kind, "+"), strings.Split(text, ",")
	for i := range min(len(kinds), len(values)) {
		network, err := netip.ParsePrefix(values[i])
		if kinds[i] != feature.KindIP || err != nil || network != network.Masked() {
			continue
		}
		bits := ipv6Bits
		if network.Addr().Is4() {
			bits = ipv4Bits
		}
		if network.Bits() == bits {
			values[i] = network.Addr().String()
		}
	}
	return feature.New(kind, strings.Join(values, ","))
}
