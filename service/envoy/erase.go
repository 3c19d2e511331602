package envoy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
)

// maxErased bounds the keys of an Erase.
const maxErased = 10_000

// HasKey reports whether a descriptor of the rules has this key, so that there may be
// counts by its values.
func (s *Service) HasKey(key string) bool {
	set := s.rules.Load()
	return set != nil && set.keys[key]
}

// Erase removes entries of descriptors, each key:value, from the store and from the memory
// of this process: the counts of all domains by descriptors of these entries, and of values
// that the rules name. Where a rule counts by several entries, all of them must be given.
// The counts of share_threshold, which are of many, stay. For errors, and for calls under
// way, see [limiter.Limiter.Erase].
func (s *Service) Erase(ctx context.Context, entries ...string) error {
	set := s.rules.Load()
	if set == nil {
		return errors.New("envoy: there are no rules yet")
	}
	values, all := map[string][]string{}, []byte(nil)
	var found []feature.Feature
	for _, text := range entries {
		key, val, _ := strings.Cut(text, ":")
		values[key] = append(values[key], val)
		all = appendText(appendText(all, key), val)
		found = append(found, bringing(appendText(appendText(nil, key), val))...)
	}
	if len(entries) > 1 {
		found = append(found, bringing(all)...)
	}
	for _, root := range set.domains {
		if found = root.spell(found, values, nil, false); len(found) > maxErased {
			return fmt.Errorf("envoy: the entries are of more than %d keys, want fewer entries", maxErased)
		}
	}
	return s.limiter.Load().Erase(ctx, found...)
}

// bringing returns the features by the limits that a request brings, of all units.
func bringing(text []byte) (all []feature.Feature) {
	for _, per := range units {
		all = append(all, feature.New(kindOf(wildcard, counter.Limits{{Per: per}}), value(text)))
	}
	return all
}

// spell appends the features of the rules at n and below that are counted by values, and by
// the values that rules name, at least one of values among them: has, for those above n.
func (n *node) spell(found []feature.Feature, values map[string][]string, text []byte, has bool) []feature.Feature {
	if has && n.rule != nil && !n.rule.unlimited() {
		found = append(found, feature.New(n.rule.kind, value(text)))
	}
	below := func(key string, next *node) {
		named := next.value
		if strings.Contains(named, wildcard) {
			named = next.pattern
		}
		for _, val := range values[key] {
			if len(found) <= maxErased && val != named && next.pattern == "" && n.next(key, val) == next {
				found = next.spell(found, values, appendText(slices.Clip(text), val), true)
			}
		}
		if named != "" {
			found = next.spell(found, values, appendText(slices.Clip(text), named), has || next.pattern == "" && slices.Contains(values[key], named))
		}
	}
	for e, next := range n.exact {
		below(e.key, next)
	}
	for key, next := range n.fallback {
		below(key, next)
	}
	return found
}
