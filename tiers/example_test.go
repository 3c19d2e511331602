package tiers_test

import (
	"fmt"
	"log"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// The buckets of the last 24 hours at 23:30:33: seconds at the left edge, and
// coarser buckets from there on.
func ExampleLadder_Cover() {
	now := time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC)
	cover, err := tiers.Default.Cover(now, 24*time.Hour, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, run := range cover {
		fmt.Println(run)
	}
	fmt.Println(cover.Reads(), "buckets, not 86400")
	// Output:
	// 1s x 27 [2026-03-01T23:30:33Z, 2026-03-01T23:31:00Z)
	// 1m x 29 [2026-03-01T23:31:00Z, 2026-03-02T00:00:00Z)
	// 1h x 24 [2026-03-02T00:00:00Z, 2026-03-03T00:00:00Z)
	// 80 buckets, not 86400
}

// A ladder for limits of five seconds and of a week.
func ExampleFor() {
	ladder := tiers.For(5*time.Second, 7*24*time.Hour)
	fmt.Println(ladder)
	for _, window := range []time.Duration{5 * time.Second, 7 * 24 * time.Hour} {
		finest, err := ladder.Finest(window)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(window, "is exact to", ladder.At(finest).Width)
	}
	// Output:
	// 50ms:5s, 1s:7d, 1m:7d, 1h:7d, 1d:7d
	// 5s is exact to 50ms
	// 168h0m0s is exact to 1s
}

// A ladder from a configuration file: seconds are kept for an hour only.
func ExampleParse() {
	ladder, err := tiers.Parse("1s:1h, 1m:1d")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ladder.Len(), ladder.At(0))
	_, err = tiers.Parse("1m:1d, 90s:1d")
	fmt.Println(err)
	// Output:
	// 2 1s:1h
	// tiers: width 1m30s is not a multiple of 1m
}

// The buckets that a hit is added to.
func ExampleLadder_Buckets() {
	for _, bucket := range tiers.Default.Buckets(time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC)) {
		fmt.Println(bucket)
	}
	// Output:
	// 1s@2026-03-02T23:30:33Z
	// 1m@2026-03-02T23:30:00Z
	// 1h@2026-03-02T23:00:00Z
}
