package text

import (
	"reflect"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
)

// Funcs are the functions that templates of reports and pages have.
var Funcs = map[string]any{
	"clean": Clean, "instant": Instant, "key": Key, "list": List, "number": Number, "percent": Percent, "roughly": Roughly, "wrap": Wrap,
	"dur": dur.Format, "rest": Rest,
	"args":   func(all ...any) []any { return all },
	"next":   func(i int) int { return i + 1 },
	"commas": func(n any) string { return words.Commas(whole(n)) },
	"plural": func(n any, thing string) string { return words.Plural(whole(n), thing) },
}

// whole is a number of any type of whole numbers.
func whole(n any) int64 { return reflect.Indirect(reflect.ValueOf(n)).Int() }
