package main

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// columns is the width of the program's output.
const columns = 80

// printable is s fit for a terminal, in at most width columns: a log is not
// trusted to send control characters.
func printable(s string, width int) string {
	for _, r := range s {
		if !strconv.IsPrint(r) || r == utf8.RuneError {
			s = strings.Trim(strconv.QuoteToASCII(s), `"`)
			break
		}
	}
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-3]) + "..."
}

// percent is part of whole, as "12.3 %".
func percent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}

// printJSON writes v as one indented object.
func printJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
