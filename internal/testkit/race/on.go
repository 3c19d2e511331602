//go:build race

package race

// On reports whether the race detector is compiled in.
const On = true
