//go:build !race

// Package race tells tests whether the race detector is compiled in.
package race

// On reports whether the race detector is compiled in.
const On = false
