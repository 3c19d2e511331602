package measure

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/abacus-go/abacus/internal/words"
)

// Table is rows under a head. The first column is text, the others are numbers
// and stand at the right.
type Table struct {
	Head []string
	Rows [][]string
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.Rows = append(t.Rows, cells) }

// write writes a Markdown table whose columns line up in the text too.
func (t *Table) write(w io.Writer) {
	widths := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string) {
		for i := range t.Head {
			cell := ""
			if i < len(row) {
				cell = row[i]
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				fmt.Fprintf(w, "| %s%s ", cell, pad)
			} else {
				fmt.Fprintf(w, "| %s%s ", pad, cell)
			}
		}
		fmt.Fprintln(w, "|")
	}
	line(t.Head)
	for i, width := range widths {
		if i == 0 {
			fmt.Fprintf(w, "|%s", strings.Repeat("-", width+2))
		} else {
			fmt.Fprintf(w, "|%s:", strings.Repeat("-", width+1))
		}
	}
	fmt.Fprintln(w, "|")
	for _, row := range t.Rows {
		line(row)
	}
}

// Num is x with three significant digits, or all that stand before the point.
func Num(x float64) string {
	switch {
	case x < 0:
		return "-" + Num(-x)
	case x < 9.995:
		return fmt.Sprintf("%.2f", x)
	case x < 99.95:
		return fmt.Sprintf("%.1f", x)
	}
	return Count(int64(x + 0.5))
}

// Count is n with commas between thousands.
func Count(n int64) string { return words.Commas(n) }

// Bytes is n bytes, short: 856, 12.4 k, 19.2 M.
func Bytes(n float64) string {
	switch {
	case n < 10_000:
		return Count(int64(n + 0.5))
	case n < 1_000_000:
		return Num(n/1_000) + " k"
	}
	return Num(n/1_000_000) + " M"
}
