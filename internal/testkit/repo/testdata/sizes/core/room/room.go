// Package room is a room below.
package room

type Room struct{}
