package limiter

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/abacus-go/abacus/internal/words"
)

const (
	joinKinds  = "+"
	joinedText = "," // between values
)

// A value of Join has no comma, and a percent sign in front of 25 and 2C only.
var (
	escape   = strings.NewReplacer("%", "%25", joinedText, "%2C")
	unescape = strings.NewReplacer("%25", "%", "%2C", joinedText, "%2c", joinedText)
)

// Join is the feature of all features together: a rule by kind "ip+email" limits
// each pair of an address and an e-mail address.
//
//	v, err := lim.Allow(ctx, "login", limiter.Join(limiter.IP(addr), limiter.Email(mail)))
//
// The kind has the kinds in the order of the features, with plus signs between,
// and the value the values, with commas between: each in canonical form, with %2C
// for a comma and %25 for a percent sign, so no two lists of values meet.
// [NewFeature] of the kind and the value is the same feature. If one of the
// features is missing, or has an error, so is Join; a Join within Join is its
// features.
func Join(features ...Feature) Feature {
	if len(features) == 1 {
		return features[0]
	}
	var t Feature
	kinds, parts, missing := make([]string, len(features)), make([]Feature, 0, len(features)), len(features) == 0
	for i, f := range features {
		kinds[i] = f.kind
		missing, t.unknown = missing || f.Missing(), t.unknown || f.unknown
		if t.err == nil {
			t.err = f.err
		}
		if f.parts != nil {
			parts = append(parts, *f.parts...)
		} else {
			parts = append(parts, f)
		}
	}
	t.kind = strings.Join(kinds, joinKinds)
	if t.err == nil && !missing {
		t.parts = &parts
	}
	return t
}

// parseJoined is Join of text.
func parseJoined(kind, text string) Feature {
	if text == "" {
		return Feature{kind: kind}
	}
	kinds, values := strings.Split(kind, joinKinds), strings.Split(text, joinedText)
	if len(values) != len(kinds) {
		return Feature{kind: kind, err: fmt.Errorf("limiter: feature %q has %s, want %d with commas between, and %%2C for a comma within", kind, words.Plural(int64(len(values)), "value"), len(kinds))}
	}
	parts := make([]Feature, len(kinds))
	for i, value := range values {
		if strings.Count(value, "%") != strings.Count(value, "%25")+strings.Count(value, "%2C")+strings.Count(value, "%2c") {
			return Feature{kind: kind, err: fmt.Errorf("limiter: feature %q has a percent sign that is not of %%25 or %%2C in value %d, want %%25 for a percent sign", kind, i+1)}
		}
		parts[i] = NewFeature(kinds[i], unescape.Replace(value))
	}
	return Join(parts...)
}

// joinValues is the Value of Join.
func joinValues(parts []Feature) string {
	values := make([]string, len(parts))
	for i, part := range parts {
		values[i] = escape.Replace(part.Value())
	}
	return strings.Join(values, joinedText)
}

// appendJoined appends the value of Join by which the Limiter counts.
func (c *normalizer) appendJoined(dst []byte, parts []Feature) []byte {
	for i := range parts {
		if i > 0 {
			dst = append(dst, joinedText...)
		}
		start := len(dst)
		dst = c.appendValue(dst, &parts[i])
		if value := dst[start:]; bytes.ContainsAny(value, "%"+joinedText) {
			dst = append(dst[:start], escape.Replace(string(value))...)
		}
	}
	return dst
}
