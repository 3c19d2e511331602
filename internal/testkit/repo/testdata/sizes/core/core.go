// Package core has 72 lines of code.
package core

// Counter is a comment of its own, and there is one behind code.
type Counter struct{ max int } // is code

/*
Alias has a comment
of several lines.
*/
type Alias = int

type (
	// Pair has a type parameter.
	Pair[T any] struct{ a, b T }
	hidden      struct{}
)

func (c *Counter) Take() {}

func (c Counter) Max() int { return c.max }

func (c *Counter) hide() {}

func (hidden) Show() {}

// long is one line above the bound, and has an empty line in a text.
func long() string {
	return `
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text
text

`
}
