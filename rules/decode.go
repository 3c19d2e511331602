package rules

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/document"
	"github.com/abacus-go/abacus/internal/words"
)

// decoder makes a Set from the nodes of a document, and collects all errors.
type decoder struct {
	set    Set
	errs   []error          // each an *Error
	places []place          // of set.Rules
	count  *counter.Counter // for check, as local
	local  *counter.Counter
}

// place is the position of a rule in the file.
type place struct {
	path      string
	kind      int // the line of the kind
	node      *yaml.Node
	plans     []string // names of Rule.Plans
	overrides []int    // indexes of Rule.Overrides in the file
	whole     bool     // no error in the rule so far
}

// find returns the path that leads by steps, keys and indexes, from the rule in the
// given line on, and the line of its last part that is in the file.
func (p *place) find(line int, steps ...any) (int, string) {
	n, path := p.node, p.path
	for _, step := range steps {
		switch step := step.(type) {
		case int:
			n, path = n.Content[step], fmt.Sprintf("%s[%d]", path, step)
			line = n.Line
		case string:
			path = join(path, step)
			if k, v := entry(n, step); k != nil {
				n, line = v, k.Line
			}
		}
	}
	return line, path
}

func (d *decoder) fail(line int, path, format string, args ...any) {
	d.errs = append(d.errs, &Error{d.set.file, max(1, line), path, fmt.Errorf(format, args...)})
}

// parse returns the only document of data, nil after an error.
func (d *decoder) parse(data []byte) *yaml.Node {
	root, line, err := document.Parse(data, MaxSize, "rules under the key events")
	if err != nil {
		d.fail(line, "", "%w", err)
	}
	return root
}

// sound calls read, and reports whether read has found no error.
func (d *decoder) sound(read func()) bool {
	before := len(d.errs)
	read()
	return len(d.errs) == before
}

func (d *decoder) join() error {
	slices.SortStableFunc(d.errs, func(a, b error) int { return cmp.Compare(a.(*Error).Line, b.(*Error).Line) })
	return errors.Join(d.errs...)
}

// field is a key of a mapping, and the function that reads its value.
type field struct {
	key  string
	read func(n *yaml.Node, path string)
}

// mapping reads the fields of a mapping: each key once, and no other keys.
func (d *decoder) mapping(n *yaml.Node, path, want string, fields ...field) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
	}
	d.each(n, path, want, func(key string, k, v *yaml.Node, path string) {
		i := slices.Index(names, key)
		if i < 0 {
			d.fail(k.Line, path, "the key is unknown, want %s", words.Quoted(names))
			return
		}
		fields[i].read(v, path)
	})
}

// each calls f with all entries of a mapping whose keys are text, and differ.
func (d *decoder) each(n *yaml.Node, path, want string, f func(key string, k, v *yaml.Node, path string)) {
	if !d.is(n, yaml.MappingNode, path, want) {
		return
	}
	if len(n.Content) == 0 {
		d.fail(n.Line, path, "the mapping is empty, want %s", want)
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key, ok := d.text(k, path, "a key as text")
		if !ok {
			continue
		}
		under := join(path, key)
		if line := lines[key]; line > 0 {
			d.fail(k.Line, under, "the key is in line %d already, want each key once", line)
			continue
		}
		lines[key] = k.Line
		f(key, k, v, under)
	}
}

var simple = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func join(path, key string) string {
	if !simple.MatchString(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// is wants a node of a kind, written out.
func (d *decoder) is(n *yaml.Node, kind yaml.Kind, path, want string) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(n.Line, path, "the alias *%s is not supported, want %s, written out", n.Value, want)
	case n.Anchor != "":
		d.fail(n.Line, path, "the anchor &%s is not supported, want %s without an anchor", n.Anchor, want)
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(n.Line, path, "the tag %s is not supported, want %s without a tag", n.Tag, want)
	case n.Kind != kind:
		d.fail(n.Line, path, "the value is %s, want %s", describe(n), want)
	default:
		return true
	}
	return false
}

func describe(n *yaml.Node) string {
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
	case "!!bool":
		return n.Value + ", not text"
	case "!!int", "!!float":
		return "the number " + n.Value
	}
	return n.Value + ", not text"
}

// text reads text that is not empty.
func (d *decoder) text(n *yaml.Node, path, want string) (string, bool) {
	if !d.is(n, yaml.ScalarNode, path, want) {
		return "", false
	}
	switch tag := n.ShortTag(); {
	case tag == "!!str" && n.Value != "":
		return n.Value, true
	case tag == "!!str", tag == "!!null":
		d.fail(n.Line, path, "the value is empty, want %s", want)
	default:
		d.fail(n.Line, path, "the value is %s, want %s; in quotes %q is text", describe(n), want, n.Value)
	}
	return "", false
}

// unmarshal reads text into v.
func (d *decoder) unmarshal(n *yaml.Node, path, want string, v encoding.TextUnmarshaler) {
	if text, ok := d.text(n, path, want); ok {
		if err := v.UnmarshalText([]byte(text)); err != nil {
			d.fail(n.Line, path, "%s", inFile(err.Error(), nil))
		}
	}
}

func (d *decoder) limits(n *yaml.Node, path string) (limits counter.Limits) {
	d.unmarshal(n, path, `limits, such as "5/m, 100/d"`, &limits)
	return limits
}

func (d *decoder) bool(n *yaml.Node, path string) bool {
	if d.is(n, yaml.ScalarNode, path, "true or false") && (n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false") {
		d.fail(n.Line, path, "the value is %s, want true or false", describe(n))
	}
	return n.Value == "true"
}

// list calls f with all entries of a list, of which there is one at least.
func (d *decoder) list(n *yaml.Node, path, want string, f func(i int, n *yaml.Node, path string)) {
	if !d.is(n, yaml.SequenceNode, path, want) {
		return
	}
	if len(n.Content) == 0 {
		d.fail(n.Line, path, "the list is empty, want %s", want)
	}
	for i, n := range n.Content {
		f(i, n, fmt.Sprintf("%s[%d]", path, i))
	}
}

// require wants all of the keys in a mapping.
func (d *decoder) require(n *yaml.Node, path string, keys ...string) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		return
	}
	for _, key := range keys {
		if k, _ := entry(n, key); k == nil {
			d.fail(n.Line, path, "the key %s is missing", key)
		}
	}
}

// entry returns a key of a mapping, and its value; nil if there is none.
func entry(n *yaml.Node, key string) (k, v *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// oneOf wants one of the keys, and not false.
func (d *decoder) oneOf(n *yaml.Node, path string, keys ...string) {
	var has []string
	for _, key := range keys {
		_, v := entry(n, key)
		if v == nil {
			continue
		}
		has = append(has, key)
		if v.ShortTag() == "!!bool" && v.Value == "false" {
			d.fail(v.Line, join(path, key), "the value is false, want true, or no such key")
		}
	}
	if len(has) != 1 {
		d.fail(n.Line, path, "the override has %s, want one of %s", words.Quoted(has), strings.Join(keys, ", "))
	}
}
