package world

import "reflect"

// Plain returns the frame as encoding/json would write it, in maps and slices, for a
// program that is too small for that package.
func (f *RaceFrame) Plain() any { return plain(reflect.ValueOf(f)) }

func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		return plain(v.Elem())
	case reflect.Slice:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = plain(v.Index(i))
		}
		return all
	case reflect.Struct:
		all := map[string]any{}
		for _, field := range reflect.VisibleFields(v.Type()) {
			if name := field.Tag.Get("json"); name != "" {
				all[name] = plain(v.FieldByIndex(field.Index))
			}
		}
		return all
	case reflect.Invalid: // no frame
		return nil
	default:
		return v.Interface()
	}
}
