package text

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
)

// FeatureOf is the feature of a key, as a program gives it to a limiter. A network
// stands for its first address.
func FeatureOf(key counter.Key) (feature.Feature, error) {
	kind, value, _ := strings.Cut(key.Feature, ":")
	f := Feature(kind, value, anyBits, anyBits)
	switch {
	case f.Err() != nil:
		return f, fmt.Errorf("feature %q: %w", key.Feature, f.Err())
	case f.Missing():
		return f, fmt.Errorf("feature %q: want a kind, a colon and a value", key.Feature)
	}
	return f, nil
}

// anyBits is the width of networks that may have any.
const anyBits = -1

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
		if bits == anyBits || network.Bits() == bits {
			values[i] = network.Addr().String()
		}
	}
	return feature.New(kind, strings.Join(values, ","))
}

// Funcs are the functions that templates of reports and pages have.
var Funcs = map[string]any{
	"clean": Clean, "instant": Instant, "key": Key, "list": words.List, "number": Number, "percent": Percent, "roughly": Roughly, "wrap": Wrap,
	"dur": dur.Format, "rest": Rest,
	"args":   func(all ...any) []any { return all },
	"next":   func(i int) int { return i + 1 },
	"commas": func(n any) string { return words.Commas(whole(n)) },
	"plural": func(n any, thing string) string { return words.Plural(whole(n), thing) },
}

// whole is a number of any type of whole numbers.
func whole(n any) int64 { return reflect.Indirect(reflect.ValueOf(n)).Int() }
