package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/abacus-go/abacus/internal/document"
	"github.com/abacus-go/abacus/rules"
)

// decoder fills structs from the nodes of a document, by the yaml tags of their
// fields, and collects all errors.
type decoder struct {
	document.Reader
	file   string
	faults []error        // each a *rules.Error
	unread []string       // paths of values that could not be read
	lines  map[string]int // of each path of the document
}

// fail notes a value that cannot be read.
func (d *decoder) fail(line int, path, format string, args ...any) {
	d.faults = append(d.faults, &rules.Error{File: d.file, Line: line, Path: path, Err: fmt.Errorf(format, args...)})
	d.unread = append(d.unread, path)
}

// at returns an error of the value at path, with its line, or that of its nearest parent
// if the document lacks it.
func (d *decoder) at(path string, err error) *rules.Error {
	at := path
	for d.lines[at] == 0 && at != "" {
		at = at[:max(0, strings.LastIndexAny(at, ".["))]
	}
	return &rules.Error{File: d.file, Line: max(1, d.lines[at]), Path: path, Err: err}
}

// want notes a fault as Fault returns it, unless ok.
func (d *decoder) want(ok bool, path, format string, args ...any) {
	if err := d.Fault(path, fmt.Errorf(format, args...)); !ok && err != nil {
		d.faults = append(d.faults, err)
	}
}

// Fault returns err as a rules.Error of the value at path, such as callers[0].token_file. It
// returns nil if err is nil, if the value has a fault already, and if the value, or what is
// around it, could not be read.
func (d *decoder) Fault(path string, err error) error {
	if err == nil || slices.ContainsFunc(d.faults, func(err error) bool { return err.(*rules.Error).Path == path }) ||
		slices.ContainsFunc(d.unread, func(bad string) bool { return within(path, bad) }) {
		return nil
	}
	return d.at(path, err)
}

// within reports whether a path is another, or is below it.
func within(path, of string) bool {
	rest, is := strings.CutPrefix(path, of)
	return is && (of == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Join joins errors, and those that they join, nil if there are none: first the faults of
// the file, by line.
func (d *decoder) Join(errs ...error) error {
	var all []error
	for len(errs) > 0 {
		err := errs[0]
		if errs = errs[1:]; err == nil {
			continue
		}
		if joined, is := err.(interface{ Unwrap() []error }); is {
			errs = slices.Concat(joined.Unwrap(), errs)
		} else {
			all = append(all, err)
		}
	}
	line := func(err error) int {
		if fault, is := err.(*rules.Error); is && fault.File == d.file {
			return fault.Line
		}
		return math.MaxInt
	}
	slices.SortStableFunc(all, func(a, b error) int { return cmp.Compare(line(a), line(b)) })
	return errors.Join(all...)
}

// value reads n into v.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	d.lines[path] = n.Line
	if text, is := v.Addr().Interface().(encoding.TextUnmarshaler); is {
		if s, is := d.Text(n, path, "text"); is {
			if err := text.UnmarshalText([]byte(s)); err != nil {
				d.fail(n.Line, path, "%w", err)
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		var fields []document.Field
		for i := range v.NumField() {
			if key := v.Type().Field(i).Tag.Get("yaml"); key != "" {
				fields = append(fields, document.Field{Key: key, Read: func(n *yaml.Node, path string) { d.value(n, v.Field(i), path) }})
			}
		}
		d.Mapping(n, path, "a mapping", fields...)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		d.Each(n, path, "a mapping", func(key string, _, n *yaml.Node, path string) {
			element := reflect.New(v.Type().Elem()).Elem()
			d.value(n, element, path)
			v.SetMapIndex(reflect.ValueOf(key), element)
		})
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		d.List(n, path, "a list", func(i int, n *yaml.Node, path string) { d.value(n, v.Index(i), path) })
	default:
		d.scalar(n, v, path)
	}
}

// scalar reads text, a number or a time.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	switch x := v.Addr().Interface().(type) {
	case *string:
		*x, _ = d.Text(n, path, "text")
	case *bool:
		*x = d.Bool(n, path)
	case *time.Duration:
		*x = d.Duration(n, path)
	default: // *int or *float64
		want := map[reflect.Kind]string{reflect.Int: "a whole number", reflect.Float64: "a number"}[v.Kind()]
		if tag := n.ShortTag(); d.Is(n, yaml.ScalarNode, path, want) && (tag != "!!int" && (tag != "!!float" || v.Kind() == reflect.Int) || n.Decode(x) != nil) {
			d.fail(n.Line, path, "the value is %s, want %s", document.Describe(n), want)
		}
	}
}
