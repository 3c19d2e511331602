//go:build js

// Command wasm has the races of demo serve for a page that is a file. It sets
// abacus.newRace, which transport.js calls.
package main

import (
	"context"
	"math/rand/v2"
	"syscall/js"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/world"
)

func main() {
	js.Global().Set("abacus", map[string]any{"newRace": js.FuncOf(newRace)})
	select {}
}

// newRace makes a race under the limit args[0]: an object with the methods act,
// frame and end, or with an error.
func newRace(_ js.Value, args []js.Value) any {
	race, err := world.NewRace(args[0].String(), rand.Uint64())
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	ctx := context.Background()
	// act presses a button, args[0], with a value, args[1], and returns an error or "".
	act := js.FuncOf(func(_ js.Value, args []js.Value) any {
		if err := race.Do(ctx, args[0].String(), args[1].String()); err != nil {
			return err.Error()
		}
		return ""
	})
	// frame returns an object with the frame after args[0] milliseconds, or with an
	// error. args[1] reports whether a button was pressed.
	frame := js.FuncOf(func(_ js.Value, args []js.Value) any {
		passed := time.Duration(args[0].Float() * float64(time.Millisecond))
		f, err := race.Frame(ctx, passed, args[1].Truthy())
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
		return map[string]any{"frame": f.Plain()}
	})
	var end js.Func
	end = js.FuncOf(func(js.Value, []js.Value) any {
		act.Release()
		frame.Release()
		end.Release()
		return nil
	})
	return map[string]any{"act": act, "frame": frame, "end": end}
}
