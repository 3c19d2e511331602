package page

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/internal/words"
)

// heat is a table of the hits of a key: a row for each hour, a column for each
// minute, a colour for each range of counts.
type heat struct {
	Caption string
	Key     []heatCell // explains the colours
	Hours   []heatHour
}

type heatHour struct {
	Name    string
	Minutes []heatCell
}

// heatCell has the class of its colour, "" for no hits.
type heatCell struct{ Class, Text, Title string }

// heatSteps is the number of colours for minutes with hits. With more colours
// neighbours look the same.
const heatSteps = 6

func newHeat(r *compare.Report) heat {
	var out heat
	var all, most, busy int64
	var at time.Time
	for i, row := range r.Heat.Hits {
		for m, count := range row {
			if all += count; count > 0 {
				busy++
			}
			if count > most {
				most, at = count, r.Heat.Hours[i].Add(time.Duration(m)*time.Minute)
			}
		}
	}
	from := shades(most)
	out.Caption = fmt.Sprintf("All hits of the key %s, admitted or not: a row is an hour, a column is a minute, and the shade tells how many. "+
		"%s in %s of %s; the busiest minute has %s, at %s.",
		quoted(r.Heat.Key), words.Plural(all, "hit"), words.Commas(busy), words.Plural(int64(60*len(r.Heat.Hits)), "minute"), words.Commas(most), text.Instant(at))
	for i, row := range r.Heat.Hits {
		begin := r.Heat.Hours[i].UTC()
		hour := heatHour{Name: begin.Format("15")}
		if i == 0 || begin.Hour() == 0 {
			hour.Name = begin.Format("2 Jan 15")
		}
		for m, count := range row {
			var c heatCell
			if count > 0 {
				c = heatCell{shadeClass(shadeOf(count, from), len(from)), words.Commas(count),
					begin.Add(time.Duration(m)*time.Minute).Format("2 Jan 15:04, ") + words.Plural(count, "hit")}
			}
			hour.Minutes = append(hour.Minutes, c)
		}
		out.Hours = append(out.Hours, hour)
	}
	out.Key = []heatCell{{Text: "0"}}
	for i, low := range from {
		text := words.Commas(low)
		if i == len(from)-1 && low < most {
			text += "–" + words.Commas(most)
		} else if i < len(from)-1 && from[i+1] > low+1 {
			text += "–" + words.Commas(from[i+1]-1)
		}
		out.Key = append(out.Key, heatCell{Class: shadeClass(i, len(from)), Text: text})
	}
	return out
}

// shades are the least counts of the steps of the heat. Each step is the same
// multiple of the step before, so that a minute of 2 hits and a minute of 4
// differ although another has a thousand.
func shades(most int64) []int64 {
	from := []int64{1}
	for i := 1; i < heatSteps; i++ {
		next := int64(math.Ceil(math.Pow(float64(most)+1, float64(i)/heatSteps)))
		if next = max(next, from[len(from)-1]+1); next > most {
			break
		}
		from = append(from, next)
	}
	return from
}

// shadeOf is the step of a count of at least 1.
func shadeOf(count int64, from []int64) int {
	i, _ := slices.BinarySearch(from, count+1)
	return i - 1
}

// shadeClass spreads few shades over all steps.
func shadeClass(s, of int) string {
	step := heatSteps / 2
	if of > 1 {
		step = s * (heatSteps - 1) / (of - 1)
	}
	return fmt.Sprintf("h%d", step+1)
}
