package document

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
)

// Reader reads the nodes of a document, and is called with each fault. Unlike package yaml
// it refuses anchors, aliases, tags, empty values, and values of another type.
type Reader func(line int, path, format string, args ...any)

// Want is called with a fault unless ok.
func (r Reader) Want(ok bool, line int, path, format string, args ...any) {
	if !ok {
		r(line, path, format, args...)
	}
}

// Parse returns the root of the only document of data, nil after a fault: see [Parse].
func (r Reader) Parse(data []byte, largest int, want string) *yaml.Node {
	root, line, err := Parse(data, largest, want)
	if err != nil {
		r(line, "", "%w", err)
	}
	return root
}

// Field is a key of a mapping, and the function that reads its value.
type Field = struct {
	Key  string
	Read func(n *yaml.Node, path string)
}

// Mapping reads the fields of a mapping: each key once, and no other keys.
func (r Reader) Mapping(n *yaml.Node, path, want string, fields ...Field) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Key
	}
	r.Each(n, path, want, func(key string, k, v *yaml.Node, path string) {
		i := slices.Index(names, key)
		if i < 0 {
			r(k.Line, path, "the key is unknown, want %s", words.Quoted(names))
			return
		}
		fields[i].Read(v, path)
	})
}

// Each calls f with all entries of a mapping whose keys are text, and differ.
func (r Reader) Each(n *yaml.Node, path, want string, f func(key string, k, v *yaml.Node, path string)) {
	if !r.Is(n, yaml.MappingNode, path, want) {
		return
	}
	r.Want(len(n.Content) > 0, n.Line, path, "the mapping is empty, want %s", want)
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key, ok := r.Text(k, path, "a key as text")
		if !ok {
			continue
		}
		under := Join(path, key)
		if line := lines[key]; line > 0 {
			r(k.Line, under, "the key is in line %d already, want each key once", line)
			continue
		}
		lines[key] = k.Line
		f(key, k, v, under)
	}
}

var simple = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Join is the path of a key in the mapping at path.
func Join(path, key string) string {
	if !simple.MatchString(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// List calls f with all entries of a list, of which there is one at least.
func (r Reader) List(n *yaml.Node, path, want string, f func(i int, n *yaml.Node, path string)) {
	if !r.Is(n, yaml.SequenceNode, path, want) {
		return
	}
	r.Want(len(n.Content) > 0, n.Line, path, "the list is empty, want %s", want)
	for i, n := range n.Content {
		f(i, n, fmt.Sprintf("%s[%d]", path, i))
	}
}

// Is wants a node of a kind, written out.
func (r Reader) Is(n *yaml.Node, kind yaml.Kind, path, want string) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		r(n.Line, path, "the alias *%s is not supported, want %s, written out", n.Value, want)
	case n.Anchor != "":
		r(n.Line, path, "the anchor &%s is not supported, want %s without an anchor", n.Anchor, want)
	case n.Style&yaml.TaggedStyle != 0:
		r(n.Line, path, "the tag %s is not supported, want %s without a tag", n.Tag, want)
	case n.Kind != kind:
		r(n.Line, path, "the value is %s, want %s", Describe(n), want)
	default:
		return true
	}
	return false
}

// Describe says in an error of which type a value is.
func Describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return "the text " + strconv.Quote(n.Value)
	case "!!null":
		return "empty"
	case "!!int", "!!float":
		return "the number " + n.Value
	}
	return n.Value + ", not text"
}

// Text reads text that is not empty.
func (r Reader) Text(n *yaml.Node, path, want string) (string, bool) {
	if !r.Is(n, yaml.ScalarNode, path, want) {
		return "", false
	}
	switch tag := n.ShortTag(); {
	case tag == "!!str" && n.Value != "":
		return n.Value, true
	case tag == "!!str", tag == "!!null":
		r(n.Line, path, "the value is empty, want %s", want)
	default:
		r(n.Line, path, "the value is %s, want %s; in quotes %q is text", Describe(n), want, n.Value)
	}
	return "", false
}

// Bool reads true or false.
func (r Reader) Bool(n *yaml.Node, path string) bool {
	if r.Is(n, yaml.ScalarNode, path, "true or false") {
		r.Want(n.ShortTag() == "!!bool" && (n.Value == "true" || n.Value == "false"), n.Line, path, "the value is %s, want true or false", Describe(n))
	}
	return n.Value == "true"
}

// Duration reads a duration above zero.
func (r Reader) Duration(n *yaml.Node, path string) time.Duration {
	const want = `a duration, such as "30m" or "1d"`
	text, ok := r.Text(n, path, want)
	if !ok {
		return 0
	}
	length, err := dur.Parse(text)
	switch {
	case err != nil:
		r(n.Line, path, "%w", err)
	case length <= 0:
		r(n.Line, path, "the duration is %s, want more than 0s", text)
	default:
		return length
	}
	return 0
}
