//go:build race

package backendtest

// With the race detector the mistakes that are races cannot be tried: it finds
// them itself, and fails whatever test is running.
const raceDetector = true
