package redis

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/redisscript"
)

//go:embed lua
var luaFiles embed.FS

// programs are the library with its name, and the scripts.
type programs struct {
	library, name    string
	take, do, forget program
	peek, read       program // as functions that may not write, which a server without memory runs as well
}

// scripts returns the programs. They are built for the first store: a process that has
// none does not pay for them at its start.
//
// A function costs time even without a call: in a script, slowly makes the functions of
// change.lua on demand. In the library all functions are made once, by the first call,
// since a library has no redis.call, struct and string while it is loaded.
var scripts = sync.OnceValue(func() *programs {
	p := &programs{library: expand(lua("library"))}
	sum := sha256.Sum256([]byte(p.library))
	p.name = libraryPrefix + hex.EncodeToString(sum[:8])
	build := func(function string, counts bool, text string) program {
		return program{Script: redisscript.New(expand(text)), function: p.name + function, counts: counts}
	}
	slowly := "local function slowly()\n" + lua("change") + "return change, bundle, rewrite, insert\nend\n"
	p.take = build("_take", true, lua("base")+lua("holds")+slowly+lua("add")+lua("take"))
	p.do = build("_act", true, lua("base")+slowly+lua("add")+lua("read")+lua("do"))
	p.forget = build("_forget", false, lua("base")+lua("forget"))
	p.peek = program{Script: p.take.Script, function: p.name + "_peek"}
	p.read = program{Script: p.do.Script, function: p.name + "_read"}
	return p
})

// names has constants and expressions of the scripts. A name in a script is expanded
// when the script is built, at no cost to the server. lua/base.lua explains the
// variables in the expressions.
var names = map[string]string{
	"MANY":     "128",  // entries of a root: with more, a stretch is moved to a leaf before its end
	"FEW":      "12",   // buckets of a stretch: with fewer, a stretch is not moved to a leaf
	"SPARSE":   "1200", // bytes of a sparse leaf: with more, the leaf is made dense
	"MOST":     fmt.Sprint(int64(backend.MaxCount)),
	"BACKWARD": fmt.Sprint(int64(maxLive * perBucket)), // room of a new root before the first bucket, in positions
	"BIAS":     fmt.Sprint(int64(bias * perBucket)),    // position of the bucket of 1970

	"COUNT": fmt.Sprint(modeCount), "PEEK": fmt.Sprint(modePeek), "BACK": fmt.Sprint(modeBack),
	"DENIED": char(deniedByte), "ADDED": char(addedByte), "LATE": char(lateByte), "PART": char(partByte), "TIMES": char(timesByte),
	"ADDEDBYTE": fmt.Sprint(addedByte), "DENIEDBYTE": fmt.Sprint(deniedByte),
	"FIRSTROOT": "'>I1I1I7I6I6I6I7I2I1I2'", // of a request to take.lua, with its head
	"ROOT":      "'>I6I6I6I7I2I1I2'",       // and another root
	"BEGIN":     fmt.Sprint(requestHead + 1),
	"GROUP":     "'>I2I6I6I6I2I2I1I2'", // of a request to do.lua

	// A root v: w in a byte, origin in six, the newest entry; then, of the other entries,
	// room for how many more in a byte, and their number in three; the sums before the
	// newest stretch, the stretch before and the first entry; the other entries; and room.
	"SINGLE": "'>I1I6I4I2'",  // a root with a single entry, and sums of two bytes
	"SHORT":  "(11 + w)",     // bytes of a root with a single entry
	"HEAD":   "(15 + 4 * w)", // bytes before the other entries
	"FIELDS": "(w == 2 and '>I1I6I4I2I1I3I2I2I2I4I2' or w == 4 and '>I1I6I4I4I1I3I4I4I4I4I4' or '>I1I6I4I7I1I3I7I7I7I4I7')",
	"PAIR":   "(w == 2 and '>I4I2' or w == 4 and '>I4I4' or '>I4I7')",                         // an entry
	"ALL":    "(w == 2 and '>I4I2I1I3I2I2' or w == 4 and '>I4I4I1I3I4I4' or '>I4I7I1I3I7I7')", // the newest entry, room, and so on
	"ROOMS":  "(w == 2 and 65536 or w == 4 and 4294967296 or MOST)",                           // no sum of w bytes is as great

	// A root with fewer than LONG other entries is rewritten when its room is used up.
	// A longer root grows at its end.
	"LONG": "160",
	"TAIL": "150", // entries at the end of a long root that are read first for a change; four times as many next

	// A list s: a byte for w, six for origin, the sum before the first entry, and entries.
	"OPEN":   "local w, origin = unpack('>I1I6', s)\nlocal f, size = FORMAT, 4 + w",
	"FORMAT": "(w == 2 and '>I2' or w == 4 and '>I4' or '>I7')",
	"BASE":   "unpack(f, s, 8)",                                    // the sum before the first entry
	"FIRST":  "(8 + w)",                                            // the byte of the first entry
	"EDGED":  "unpack(f, s, 12 + w) == unpack(f, s, 8)",            // whether the first entry has no hits: entries were dropped
	"LAST":   "unpack('>I4', s, #s - w - 3)",                       // the last entry
	"TOTAL":  "unpack(f, s, #s - w + 1)",                           // sum of the last entry
	"NEWEST": "(s and LAST + origin or 0)",                         // position of the last entry
	"FAR":    "(x < origin or x - origin >= 4294967296 - stretch)", // whether the root has no position for x

	// Whether n more would exceed MOST, also without the stale entries.
	"FULL": "total - BASE + n > MOST and total - unpack(f, s, rank(s, '>I4', size, FIRST, stale - origin) - w) + n > MOST",

	// Whether the stretch of the last entry has limit entries.
	"CROWDED": "#s > limit * size + 7 + w and unpack('>I4', s, #s - limit * size + 1) >= last - last % stretch",

	// The name of the leaf of the kind, with position x. NAMED is the same, and faster.
	"LEAF":  "r .. ':' .. (x - x % stretch - BIAS) / stretch .. DOT",
	"NAMED": "r .. ':' .. text((x - x % stretch - BIAS) / stretch) .. DOT",
	"DOT":   "(kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4')",
	"WIDE":  "(kind < 3 and 2 or kind == 3 and 4 or 7)",

	"CHANGES": lua("change"), "PARTS": lua("base") + lua("holds") + lua("read"), // of the library
	"ADD": lua("add"), "TAKE": lua("take"), "ACT": lua("do"), "FORGET": lua("forget"),

	"SEARCH": lua("search"), "BEFORE": lua("before"), "DROP": lua("drop"), "DUE": lua("due"),
}

// char returns a string of a single byte in Lua.
func char(b byte) string { return fmt.Sprintf(`'\%d'`, b) }

// lua returns a file of the folder lua.
func lua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// expand leaves out comments, and replaces names by values, in values too. The value of
// a name alone in a line gets the indentation of the name.
func expand(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		line = strings.TrimRight(line, " \n")
		name := strings.TrimLeft(line, " ")
		if name == "" {
			continue
		}
		if value, is := names[name]; is {
			for inner := range strings.Lines(expand(value)) {
				b.WriteString(line[:len(line)-len(name)] + inner)
			}
			continue
		}
		for expanded := replacer().Replace(line); expanded != line; expanded = replacer().Replace(line) {
			line = expanded
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// replacer replaces names once. Of names with the same beginning the longest comes first.
var replacer = sync.OnceValue(func() *strings.Replacer {
	var pairs []string
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(names))) {
		pairs = append(pairs, name, names[name])
	}
	return strings.NewReplacer(pairs...)
})
