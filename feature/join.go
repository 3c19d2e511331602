package feature

import (
	"fmt"
	"strings"

	"github.com/abacus-go/abacus/internal/words"
)

const (
	joinKinds  = "+"
	joinValues = ","
)

// A value of Join has no comma, and a percent sign in front of 25 and 2C only.
var (
	escape   = strings.NewReplacer("%", "%25", joinValues, "%2C")
	unescape = strings.NewReplacer("%25", "%", "%2C", joinValues)
)

// Join returns the feature of all features together: a rule by kind "ip+email" limits
// each pair of an address and an e-mail address.
//
//	v, err := lim.Allow(ctx, "login", feature.Join(feature.IP(addr), feature.Email(mail)))
//
// The kind has the kinds in the order of the features, with plus signs between,
// and the value the values, with commas between: each in canonical form, with %2C
// for a comma and %25 for a percent sign, so no two lists of values meet.
// [New] of the kind and the value is the same feature. If one of the
// features is missing, or has an error, so is Join; a Join within Join is its
// features.
func Join(features ...Feature) Feature {
	if len(features) == 1 {
		return features[0]
	}
	var joined Feature
	kinds, parts, missing := make([]string, len(features)), make([]Feature, 0, len(features)), len(features) == 0
	for i, f := range features {
		kinds[i] = f.kind
		missing, joined.unknown = missing || f.Missing(), joined.unknown || f.unknown
		if joined.err == nil {
			joined.err = f.err
		}
		if f.parts != nil {
			parts = append(parts, *f.parts...)
		} else {
			parts = append(parts, f)
		}
	}
	joined.kind = strings.Join(kinds, joinKinds)
	if joined.err == nil && !missing {
		joined.parts = &parts
	}
	return joined
}

// parseJoined is Join of text.
func parseJoined(kind, text string) Feature {
	f := Feature{kind: kind}
	if text == "" {
		return f
	}
	kinds, values := strings.Split(kind, joinKinds), strings.Split(text, joinValues)
	if len(values) != len(kinds) {
		f.err = fmt.Errorf("feature %q has %s, want %d with commas between, and %%2C for a comma within", kind, words.Plural(int64(len(values)), "value"), len(kinds))
		return f
	}
	parts := make([]Feature, len(kinds))
	for i, value := range values {
		value = strings.ReplaceAll(value, "%2c", "%2C")
		if text = unescape.Replace(value); escape.Replace(text) != value {
			f.err = fmt.Errorf("feature %q has a percent sign that is not of %%25 or %%2C in value %d, want %%25 for a percent sign", kind, i+1)
			return f
		}
		parts[i] = New(kinds[i], text)
	}
	return Join(parts...)
}
