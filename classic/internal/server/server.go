// Package server has what the limiters ask of a store that other processes share.
package server

import (
	"context"
	"time"
)

// Server is a store with counters. Its errors begin with its name. All methods are
// safe for many goroutines.
type Server interface {
	String() string // the name, without a password

	// Counts returns the counts under names, 0 where there is nothing.
	Counts(ctx context.Context, names []string, cost *Cost) ([]int64, error)

	// Add adds n to each of the counters.
	Add(ctx context.Context, n int64, to []Counter, cost *Cost) error

	// Usage returns the memory of the values under names, in bytes.
	Usage(ctx context.Context, names []string) (int64, error)
}

// Counter is a counter on a server, and how long it matters.
type Counter struct {
	Name string
	Life time.Duration
}

// Cost is the cost of calls so far: each call adds to it.
type Cost struct{ Trips, Reads, Writes int64 }

// Scripted is a Server that runs a Script in one step.
type Scripted interface {
	Server

	// Run runs a script on the value of name, and returns its answer: numbers, of
	// which none is missing. A script is never sent again if it may have run.
	Run(ctx context.Context, script Script, name string, numbers []int64, cost *Cost) ([]int64, error)
}

// Script is a program in Lua.
type Script string
