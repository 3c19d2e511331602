// Package parse makes values of texts that are part of the kit.
package parse

import "github.com/abacus-go/abacus/tiers"

// Ladder is tiers.Parse of a text without a mistake.
func Ladder(text string) tiers.Ladder {
	l, err := tiers.Parse(text)
	if err != nil {
		panic(err)
	}
	return l
}
