package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/abacus-go/abacus/internal/document"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/rules"
)

// decoder fills structs from the nodes of a document, by the yaml tags of their
// fields, and collects all errors. Unlike package yaml, it refuses anchors, aliases,
// tags, empty values, and values of another type.
type decoder struct {
	file  string
	errs  []error        // each a *rules.Error
	lines map[string]int // of each path of the document
}

// fail notes an error of the value at path, whose line is that of its nearest parent if
// the document lacks it.
func (d *decoder) fail(path, format string, args ...any) {
	at := path
	for d.lines[at] == 0 && at != "" {
		at = at[:max(0, strings.LastIndexAny(at, ".["))]
	}
	d.errs = append(d.errs, &rules.Error{File: d.file, Line: max(1, d.lines[at]), Path: path, Err: fmt.Errorf(format, args...)})
}

func (d *decoder) join() error {
	slices.SortStableFunc(d.errs, func(a, b error) int { return cmp.Compare(a.(*rules.Error).Line, b.(*rules.Error).Line) })
	return errors.Join(d.errs...)
}

// document returns the only document of data, nil after an error.
func (d *decoder) document(data []byte) *yaml.Node {
	root, line, err := document.Parse(data, rules.MaxSize, "the keys rules, doors and listen")
	if err != nil {
		d.lines[""] = line
		d.fail("", "%w", err)
	}
	return root
}

// value reads n into v.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	d.lines[path] = n.Line
	if text, is := v.Addr().Interface().(encoding.TextUnmarshaler); is {
		if d.is(n, yaml.ScalarNode, path, "text") {
			if err := text.UnmarshalText([]byte(n.Value)); err != nil {
				d.fail(path, "%w", err)
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case reflect.Struct:
		d.fields(n, v, path)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		d.each(n, path, func(key string, n *yaml.Node, under string) {
			element := reflect.New(v.Type().Elem()).Elem()
			d.value(n, element, under)
			v.SetMapIndex(reflect.ValueOf(key), element)
		})
	case reflect.Slice:
		if !d.is(n, yaml.SequenceNode, path, "a list") {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, element := range n.Content {
			d.value(element, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		d.scalar(n, v, path)
	}
}

// scalar reads text, a number or a time.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	if !d.is(n, yaml.ScalarNode, path, "a value") {
		return
	}
	switch x := v.Addr().Interface().(type) {
	case *string:
		if *x = n.Value; n.ShortTag() != "!!str" {
			d.fail(path, "the value is %s, want text; in quotes it is text", n.Value)
		}
	case *time.Duration:
		var err error
		if *x, err = dur.Parse(n.Value); err != nil || *x <= 0 {
			d.fail(path, "the value is %q, want a time above 0, such as 15ms", n.Value)
		}
	case *bool:
		if *x = n.Value == "true"; !*x && n.Value != "false" {
			d.fail(path, "the value is %q, want true or false", n.Value)
		}
	case *int:
		var err error
		if *x, err = strconv.Atoi(n.Value); err != nil {
			d.fail(path, "the value is %q, want a whole number", n.Value)
		}
	case *float64:
		var err error
		if *x, err = strconv.ParseFloat(n.Value, 64); err != nil {
			d.fail(path, "the value is %q, want a number", n.Value)
		}
	}
}

// fields reads a mapping into a struct.
func (d *decoder) fields(n *yaml.Node, v reflect.Value, path string) {
	known := map[string]int{}
	for i := range v.NumField() {
		if key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ","); key != "" {
			known[key] = i
		}
	}
	d.each(n, path, func(key string, n *yaml.Node, under string) {
		if i, is := known[key]; is {
			d.value(n, v.Field(i), under)
		} else {
			d.fail(under, "the key is unknown, want %s", words.Quoted(slices.Sorted(maps.Keys(known))))
		}
	})
}

// each calls f with all entries of a mapping, whose keys are text and differ.
func (d *decoder) each(n *yaml.Node, path string, f func(key string, n *yaml.Node, under string)) {
	if !d.is(n, yaml.MappingNode, path, "a mapping") {
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" || k.Anchor != "" || k.Style&yaml.TaggedStyle != 0 {
			d.errs = append(d.errs, &rules.Error{File: d.file, Line: k.Line, Path: path, Err: errors.New("a key that is no plain text, want a key as text")})
			continue
		}
		under := k.Value
		if path != "" {
			under = path + "." + under
		}
		if line := seen[k.Value]; line > 0 {
			d.lines[under] = k.Line
			d.fail(under, "the key is in line %d already, want each key once", line)
			continue
		}
		seen[k.Value], d.lines[under] = k.Line, k.Line
		f(k.Value, n.Content[i+1], under)
	}
}

// is wants a node of a kind that is written out and not empty.
func (d *decoder) is(n *yaml.Node, kind yaml.Kind, path, want string) bool {
	d.lines[path] = n.Line
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(path, "the alias *%s is not supported, want %s, written out", n.Value, want)
	case n.Anchor != "":
		d.fail(path, "the anchor &%s is not supported, want %s without an anchor", n.Anchor, want)
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(path, "the tag %s is not supported, want %s without a tag", n.Tag, want)
	case n.Kind != kind:
		d.fail(path, "the value is %s, want %s", map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}[n.Kind]+n.Value, want)
	case kind == yaml.ScalarNode && (n.Value == "" || n.ShortTag() == "!!null"), kind != yaml.ScalarNode && len(n.Content) == 0:
		d.fail(path, "the value is empty, want %s", want)
	default:
		return true
	}
	return false
}
