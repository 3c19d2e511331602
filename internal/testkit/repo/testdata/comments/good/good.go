// Package good has comments with nouns.
package good

// Limit bounds the hits of a key in a window.
type Limit struct {
	Max int // hits in a window, at most
}
