//go:build race

package backendtest

// With the race detector the mistakes that are races cannot be tried: the detector
// finds the race, and fails the running test.
const raceDetector = true
