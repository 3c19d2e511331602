package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/compare/page"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// written is the page with the reports.
func written(t testing.TB, reports ...*compare.Report) []byte {
	var b bytes.Buffer
	require.NoError(t, page.Write(&b, reports))
	return b.Bytes()
}

// parsed returns the elements of a page, in order.
func parsed(t testing.TB, page []byte) []*html.Node {
	root := try.To(html.Parse(bytes.NewReader(page)))(t)
	var all []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			all = append(all, n)
		}
	}
	return all
}

func named(all []*html.Node, name string) []*html.Node {
	return slices.DeleteFunc(slices.Clone(all), func(n *html.Node) bool { return n.Data != name })
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// rowsOf returns the rows of a table's body.
func rowsOf(table *html.Node) []*html.Node {
	return slices.DeleteFunc(named(slices.Collect(table.Descendants()), "tr"), func(n *html.Node) bool { return n.Parent.Data != "tbody" })
}

// words is the text of an element, with single spaces.
func words(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// TestEveryMeasureIsInTheTable gives each measure a value of its own and finds
// the value in the table.
func TestEveryMeasureIsInTheTable(t *testing.T) {
	r := sample(t, 1)
	r.Algorithms[3] = compare.Algorithm{
		Name: "sliding counter", Source: "classic", Worst: "2N-1", Admitted: 12_345, Relative: 0.8765, WorstWindow: 1.2345,
		Delayed: 9, MeanDelay: 6.01, LongestDelay: 6_002,
		WronglyAdmitted: 2_001, WronglyDenied: 2_002, Differently: 2_003, BytesPerKey: 3_001.2, BytesWorstKey: 3_002, BytesMeasured: "estimate", Counted: "states",
		ReadsPerEvent: 4.01, WritesPerEvent: 4.02, TripsPerEvent: 4.03, NanosPerEvent: 51.4,
	}
	all := parsed(t, written(t, r))
	tables := named(all, "table")
	require.Len(t, tables, 2, "the first one is the growth")
	rows := rowsOf(tables[1])
	require.Len(t, rows, len(r.Algorithms))
	var cells []string
	for n := range rows[3].ChildNodes() {
		cells = append(cells, words(n))
	}
	require.Equal(t, []string{
		"4 sliding counter classic", "2N-1", "1.23", "87.6 % 12,345", "2,001 4.31 %", "2,002 4.32 %", "2,003 4.32 %", "6.0s", "1.7h",
		"3,001 estimate worst", "3,002", "4.01 states", "4.02 worst", "4.03 worst", "51 best",
	}, cells)
	for _, th := range named(all, "th") {
		require.Contains(t, []string{"row", "col", "colgroup"}, attr(th, "scope"), words(th))
	}
}

// TestWhatWasReplayed finds the description of the log beside the title.
func TestWhatWasReplayed(t *testing.T) {
	facts := map[string]string{}
	for _, dl := range named(parsed(t, written(t, sample(t, 0))), "dl")[:1] {
		for div := range dl.ChildNodes() {
			var pair []string
			for n := range div.ChildNodes() {
				pair = append(pair, words(n))
			}
			if len(pair) == 2 {
				facts[pair[0]] = pair[1]
			}
		}
	}
	require.Equal(t, map[string]string{
		"Log": "access.log.gz", "Limit": "100/d", "Events": "46,391", "Keys": "2,597", "Store": "memory", "Span": "48 hours",
		"From": "2026-03-02 12:00:01 UTC", "To": "2026-03-04 11:59:58 UTC", "Skew": "5s", "Stamps run back by": "3s",
		"Bad lines, skipped": `12; the first: line 881: "GET /": no time`,
	}, facts)
}

// TestChartsHaveWords: each chart's message is told in words for readers who
// cannot see the chart.
func TestChartsHaveWords(t *testing.T) {
	all := parsed(t, written(t, sample(t, 0)))
	charts := slices.DeleteFunc(named(all, "div"), func(n *html.Node) bool { return attr(n, "role") != "img" })
	require.Len(t, charts, 16+1)
	for _, c := range charts {
		require.NotEmpty(t, attr(c, "aria-label"))
	}
	require.Equal(t, "fixed window: hits in the true window over time, at most 200 in a window (2.00 × the limit); the limit is 100.", attr(charts[1], "aria-label"))
	var captions []string
	for _, c := range named(all, "figcaption") {
		captions = append(captions, words(c))
	}
	require.Len(t, captions, 2)
	require.Contains(t, captions[0], "4 of 16 stay at or below the limit here; the fullest window drawn holds 200 (2.00 × the limit), by fixed window at 2026-03-02 ")
	require.Contains(t, captions[1], "weighed on memory right after its last hit, with hits at random instants of one window of 100/d ")
	for level, n := range map[string]int{"h1": 1, "h2": 1, "h3": 4} {
		require.Len(t, named(all, level), n, level)
	}
	require.Len(t, named(all, "noscript"), 1)
}

// chartData is the JSON of a section's charts.
type chartData struct {
	Max, Top int64
	Times    []float64
	Counts   [][]int64
	Growth   *compare.Growth
}

// handed is the data of the charts of each section.
func handed(t testing.TB, all []*html.Node) (data []chartData) {
	for _, s := range named(all, "script") {
		if attr(s, "type") == "application/json" {
			var d chartData
			decoder := json.NewDecoder(strings.NewReader(s.FirstChild.Data))
			decoder.DisallowUnknownFields()
			require.NoError(t, decoder.Decode(&d))
			data = append(data, d)
		}
	}
	return data
}

// TestChartsGetTheNumbers: the drawn numbers are the measured numbers.
func TestChartsGetTheNumbers(t *testing.T) {
	r := sample(t, 0)
	data := handed(t, parsed(t, written(t, r)))
	require.Len(t, data, 1)
	d := data[0]
	require.EqualValues(t, 100, d.Max)
	require.EqualValues(t, 200, d.Top)
	require.Len(t, d.Times, len(r.Curve.Times))
	for i, at := range r.Curve.Times {
		require.InDelta(t, float64(at.UnixNano())/1e9, d.Times[i], 2e-6)
	}
	require.Equal(t, r.Curve.Counts, d.Counts)
}

// TestGrowthIsShown: the weighed bytes are in the table and in the chart, and the page
// says where abacus becomes smaller than a log, or that there is no log.
func TestGrowthIsShown(t *testing.T) {
	r := sample(t, 0)
	r.Growth = &compare.Growth{Hits: []int64{10, 1000, 20_000}, Lines: []compare.GrowthLine{
		{Name: "sliding log", Source: "classic", Bytes: []int64{400, 20_000, 400_000}},
		{Name: "abacus 1s:1d, 1h:1d", Source: "abacus", Default: true, Bytes: []int64{500, 20_000, 300_000}},
		{Name: "abacus 1s:1d, 1h:1d", Source: "abacus", Default: true, Burst: true, Bytes: []int64{500, 9000, 9000}},
	}}
	shown := func() (rows, said []string, all []*html.Node) {
		all = parsed(t, written(t, r))
		for _, row := range rowsOf(named(all, "table")[0]) {
			var cells []string
			for n := range row.ChildNodes() {
				cells = append(cells, words(n)+map[bool]string{true: "!"}[attr(n, "class") == "best"])
			}
			rows = append(rows, strings.Join(cells, " "))
		}
		for _, n := range all {
			if strings.HasPrefix(words(n), "A log of every hit ") || n.Data == "li" && strings.Contains(words(n), "smaller than the log") {
				said = append(said, words(n))
			}
		}
		return rows, said, all
	}
	rows, said, all := shown()
	require.Equal(t, []string{"10 400! 500 500", "1,000 20,000 20,000 9,000!", "20,000 400,000 300,000 9,000!"}, rows)
	require.Equal(t, []string{
		"A log of every hit grows with each hit, and so with the limit: here from 400 bytes to 400,000. abacus has a bucket for each second, minute or hour with hits, and no more buckets than its ladder, whatever the limit.",
		"abacus 1s:1d: smaller than the log from 20,000 hits on, and not yet at 1,000.",
		"abacus 1s:1d, burst: smaller than the log from 1,000 hits on, and not yet at 10.",
	}, said)
	drawn := handed(t, all)[0].Growth
	require.Equal(t, r.Growth.Hits, drawn.Hits)
	for i, short := range []string{"log", "1s:1d", "1s:1d, burst"} {
		line := r.Growth.Lines[i]
		line.Name = short
		require.Equal(t, line, drawn.Lines[i])
	}

	r.Growth.Lines = r.Growth.Lines[1:]
	rows, said, _ = shown()
	require.Equal(t, "10 500! 500!", rows[0])
	require.Len(t, said, 1)
	require.Contains(t, said[0], " On memcached a log cannot be had: ")
	r.Growth = nil
	require.NotContains(t, string(written(t, r)), "A log of every hit")
}

// TestFindings: the table is summed up in sentences.
func TestFindings(t *testing.T) {
	r := sample(t, 0)
	r.Events, r.Algorithms = 1000, []compare.Algorithm{
		{Name: "log", WorstWindow: 1, BytesPerKey: 2000},
		{Name: "fixed", WorstWindow: 1.98, WronglyAdmitted: 20, WronglyDenied: 1, BytesPerKey: 56},
		{Name: "bucket", WorstWindow: 1.5, WronglyAdmitted: 20, BytesPerKey: 60},
		{Name: "none", BytesPerKey: 0, WronglyDenied: 2}, {Name: "tiers", WorstWindow: 1.1, BytesPerKey: 900, WronglyDenied: 2},
	}
	r.Curve.Counts, r.Growth = r.Curve.Counts[:5], nil
	found := func() (all []string) {
		for _, li := range named(parsed(t, written(t, r)), "li") {
			if attr(li.Parent, "class") == "findings" {
				all = append(all, words(li))
			}
		}
		return all
	}
	require.Equal(t, []string{
		"The most that an algorithm let into a true window is 1.98 times the limit, by fixed. The limit was kept by log and none.",
		"The most wrong decisions: 21 of 1,000 events (2.10 %), by fixed. None by log.",
	}, found())
	r.Algorithms, r.Curve.Counts = r.Algorithms[:1], r.Curve.Counts[:1]
	require.Equal(t, []string{"No algorithm let more than the limit into any true window of this log.", "No decision was wrong."}, found())
}

// TestNoFolder: a page may be passed on, and does not tell where the log was
// stored.
func TestNoFolder(t *testing.T) {
	r := sample(t, 0)
	r.Log = filepath.Join(t.TempDir(), "access.log.gz")
	r.FirstBad = r.Log + ":881: no time"
	out := string(written(t, r))
	require.NotContains(t, out, filepath.Dir(r.Log))
	require.Contains(t, out, "<bdi>access.log.gz</bdi>")
	require.Contains(t, out, "<bdi>12; the first: access.log.gz:881: no time</bdi>")
	require.Contains(t, out, "<title>Rate limiters compared: 100/d on access.log.gz</title>")
	generated := try.To(compare.Generate(1, counter.MustLimits("1000/d,2/m")))(t)
	require.Equal(t, filepath.Base(generated.Name), generated.Name, "a description is no path")
}

// TestSeveralLimits: each limit has a section, and the links lead there.
func TestSeveralLimits(t *testing.T) {
	hourly := sample(t, 0)
	hourly.Limit = "10/h"
	all := parsed(t, written(t, sample(t, 0), hourly))
	var led []string
	for _, a := range named(all, "a") {
		for _, s := range named(all, "section") {
			if attr(a, "href") == "#"+attr(s, "id") {
				led = append(led, words(a)+" to "+words(s)[:len("Limit 10/h")])
			}
		}
	}
	require.Equal(t, []string{"100/d to Limit 100/", "10/h to Limit 10/h"}, led)
	require.Empty(t, named(parsed(t, written(t, hourly)), "nav"), "one limit needs no links")
}

// TestEdges: a page is written of any comparison, and small enough.
func TestEdges(t *testing.T) {
	reports := edges(t)
	reports["a day"] = sample(t, 0)
	for name, r := range reports {
		t.Run(name, func(t *testing.T) {
			out := written(t, r)
			require.Less(t, len(out), 1_500_000)
			require.NotRegexp(t, `NaN|Inf\b|%!`, string(out), "a number that is none is shown, or drawn")
			require.Equal(t, out, written(t, r), "the same report gives the same page")
			ids := map[string]bool{}
			for _, n := range parsed(t, out) {
				id := attr(n, "id")
				require.False(t, id != "" && ids[id], "two elements have the id %s", id)
				ids[id] = true
			}
		})
	}
}

type full struct{}

var errFull = errors.New("the disk is full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteFails(t *testing.T) {
	require.ErrorIs(t, page.Write(full{}, []*compare.Report{sample(t, 0)}), errFull)
}

// attacks are strings that must stay text in every field of a report.
var attacks = []string{
	`</svg><script>alert(1)</script>`,
	`</style></title></textarea><script src=//evil.example/x.js></script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onload='alert(1)`,
	`{{.}}<!-- --><![CDATA[`,
	`&lt;script&gt;`,
	`javascript:alert(1)`,
	`</script><script>alert(1)</script>`,
	`<!--<script>`,
	"\xff\xfe\x00\x1b[31m\u202e",
}

// harm returns an error for forbidden content in a parsed page.
func harm(all []*html.Node) error {
	known := strings.Fields("html head meta title style body header main section h1 h2 h3 p dfn nav ul ol li a bdi dl div dt dd " +
		"table thead tbody tr th td small b span figure figcaption noscript script")
	attributes := strings.Fields("lang charset http-equiv content name id class href aria-label aria-labelledby role tabindex scope colspan rowspan title type")
	for _, n := range all {
		if !slices.Contains(known, n.Data) {
			return fmt.Errorf("there is a %s", n.Data)
		}
		if n.Data == "script" && attr(n, "type") != "application/json" && !strings.Contains(n.FirstChild.Data, "Copyright (c) 2022 Leon Sorokin") {
			return fmt.Errorf("there is a script that is not the page's: %s", n.FirstChild.Data)
		}
		for _, a := range n.Attr {
			if !slices.Contains(attributes, a.Key) || a.Key == "href" && !regexp.MustCompile(`^#r\d+$`).MatchString(a.Val) {
				return fmt.Errorf("%s has %s=%q", n.Data, a.Key, a.Val)
			}
		}
	}
	return nil
}

// TestAttacks puts each attack into every string of a report, absent strings
// included.
func TestAttacks(t *testing.T) {
	for _, attack := range attacks {
		t.Run(fmt.Sprintf("%q", attack), func(t *testing.T) {
			r, strung := sample(t, 0), 0
			var fill func(v reflect.Value)
			fill = func(v reflect.Value) {
				switch {
				case v.Kind() == reflect.String && v.CanSet():
					strung++
					v.SetString(attack)
				case v.Kind() == reflect.Pointer:
					fill(v.Elem())
				case v.Kind() == reflect.Slice:
					for i := range v.Len() {
						fill(v.Index(i))
					}
				case v.Kind() == reflect.Struct && v.Type().PkgPath() != "time":
					for i := range v.NumField() {
						fill(v.Field(i))
					}
				}
			}
			fill(reflect.ValueOf(r).Elem())
			require.Greater(t, strung, 4*len(r.Algorithms))
			all := parsed(t, written(t, r))
			require.NoError(t, harm(all))
			require.Len(t, named(all, "style"), 1)
			require.Len(t, named(all, "section"), 1)
			require.Len(t, named(all, "script"), 2)
			require.Len(t, handed(t, all), 1)
			if strings.HasPrefix(attack, "<") {
				shown := words(named(all, "body")[0])
				require.GreaterOrEqual(t, strings.Count(shown, attack[:min(24, len(attack))]), 12, "it is shown as the text that it is")
			}
		})
	}
	require.Error(t, harm(parsed(t, []byte(`<script>alert(1)</script>`))))
	require.Error(t, harm(parsed(t, []byte(`<p onclick="x">`))))
}

// TestPolicy: the page allows the page's own style and script, by hash, and
// nothing else.
func TestPolicy(t *testing.T) {
	out := written(t, sample(t, 0))
	all := parsed(t, out)
	var policy string
	for _, m := range named(all, "meta") {
		if attr(m, "http-equiv") == "Content-Security-Policy" {
			policy = attr(m, "content")
		}
	}
	hash := func(tag string) string {
		found := regexp.MustCompile(`(?s)<` + tag + `>(.*?)</` + tag + `>`).FindSubmatch(out)
		require.NotNil(t, found, tag)
		sum := sha256.Sum256(found[1])
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	require.Equal(t, "default-src 'none'; base-uri 'none'; form-action 'none'; style-src "+hash("style")+"; script-src "+hash("script"), policy)
	own := regexp.MustCompile(`(?s)<script>.*</script>`).ReplaceAll(out, nil)
	require.NotRegexp(t, `(?i)url\(|@import|https?:|//|ZgotmplZ`, string(own), "nothing comes from elsewhere")
	require.NotRegexp(t, `fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(|eval\(|new Function`, string(out), "scripts ask nobody")
}
