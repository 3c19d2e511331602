package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/compare/page"
)

// written is the page with the reports.
func written(t testing.TB, reports ...*compare.Report) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, page.Write(&b, reports))
	return b.Bytes()
}

// parsed are the elements of a page, in their order.
func parsed(t testing.TB, page []byte) []*html.Node {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	require.NoError(t, err)
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

// TestEveryMeasureIsInTheTable gives each its own value and finds it again.
func TestEveryMeasureIsInTheTable(t *testing.T) {
	r := sample(t, 1)
	r.Algorithms[3] = compare.Algorithm{
		Name: "sliding counter", Source: "classic", Worst: "2N-1", Admitted: 12_345, Relative: 0.8765, WorstWindow: 1.2345,
		WronglyAdmitted: 2_001, WronglyDenied: 2_002, Differently: 2_003, BytesPerKey: 3_001.2, BytesWorstKey: 3_002,
		ReadsPerEvent: 4.01, WritesPerEvent: 4.02, TripsPerEvent: 4.03, NanosPerEvent: 5_001.4,
	}
	all := parsed(t, written(t, r))
	tables := named(all, "table")
	require.Len(t, tables, 1)
	rows := slices.DeleteFunc(named(all, "tr"), func(n *html.Node) bool { return n.Parent.Data != "tbody" })
	require.Len(t, rows, len(r.Algorithms))
	var cells []string
	for n := range rows[3].ChildNodes() {
		cells = append(cells, words(n))
	}
	require.Equal(t, []string{
		"4 sliding counter classic", "12,345 0.876 × exact", "1.23", "2N-1",
		"2,001 0.93 %", "2,002 0.93 %", "2,003 0.93 %", "3,001 worst", "3,002", "4.01", "4.02 worst", "4.03 worst", "5,001 best",
	}, cells)
	for _, th := range named(all, "th") {
		require.Contains(t, []string{"row", "col", "colgroup"}, attr(th, "scope"), words(th))
	}
}

// TestWhatWasReplayed is told beside the title.
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
		"Log": "access.log.gz", "Limit": "100/d", "Events": "214,733", "Keys": "5,312", "Store": "memory", "Span": "48 hours",
		"From": "2026-03-02 00:00:04 UTC", "To": "2026-03-03 23:59:55 UTC", "Skew": "5s", "Stamps run back by": "3s",
		"Bad lines, skipped": `12; the first: line 881: "GET /": no time`,
	}, facts)
}

// TestPicturesHaveWords: those who cannot see a picture are told what is in it.
func TestPicturesHaveWords(t *testing.T) {
	all := parsed(t, written(t, sample(t, 0)))
	pictures := named(all, "svg")
	require.Len(t, pictures, 12+2*2+2)
	for _, svg := range pictures {
		require.Equal(t, "img", attr(svg, "role"))
		require.NotEmpty(t, attr(svg, "aria-label"))
	}
	var captions []string
	for _, c := range named(all, "figcaption") {
		captions = append(captions, words(c))
	}
	require.Len(t, captions, 4)
	require.Contains(t, captions[0], "4 of 12 stay at or below the limit here; the fullest window drawn holds 197 (1.97 × the limit), by fixed window at 2026-03-03 ")
	require.Contains(t, captions[1], "No other is both smaller and less beyond the limit than gcra; leaky bucket, queue; abacus 10m:1d, 1h:1d.")
	require.Regexp(t, `1,\d+ hits in \d+ of 1,440 minutes; the busiest minute has \d+, at 2026-03-02 `, captions[3])
	for level, n := range map[string]int{"h1": 1, "h2": 1, "h3": 4} {
		require.Len(t, named(all, level), n, level)
	}
}

// TestNotDrawn: what has no place on an axis is named instead.
func TestNotDrawn(t *testing.T) {
	all := parsed(t, written(t, edges(t)["numbers that are none"]))
	require.Contains(t, words(named(all, "figcaption")[1]), " Not drawn, as its memory or its error is not known: "+
		"sliding log; fixed window; fixed slots, 24; sliding counter; sliding decay; token bucket; gcra.")
}

// TestAMonth: of more hours than can be drawn the busiest are.
func TestAMonth(t *testing.T) {
	all := parsed(t, written(t, edges(t)["a month of heat"]))
	require.Contains(t, words(named(all, "figcaption")[3]), "the busiest minute has 719, at 2026-04-01 11:00:00 CET. "+
		"Drawn are the 72 hours in a row with the most hits, out of 720.")
}

// TestSeveralLimits: each has its section, and the links lead there.
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

// TestEdges: a page is written whatever is in the report, and small enough.
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

// TestManyPoints: a long curve is thinned, or the page would grow with the log.
func TestManyPoints(t *testing.T) {
	r := sample(t, 0)
	for range 6 {
		r.Curve.Times = append(r.Curve.Times, r.Curve.Times...)
		for i, c := range r.Curve.Counts {
			r.Curve.Counts[i] = append(c, c...)
		}
	}
	require.Less(t, len(written(t, r)), 1_500_000)
}

func TestNoReport(t *testing.T) {
	require.Contains(t, string(written(t)), "</html>")
	var b bytes.Buffer
	require.EqualError(t, page.Write(&b, []*compare.Report{sample(t, 0), nil}), "page: one of the reports is nil")
	require.Zero(t, b.Len())
}

type full struct{}

var errFull = errors.New("the disk is full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteFails(t *testing.T) {
	require.ErrorIs(t, page.Write(full{}, []*compare.Report{sample(t, 0)}), errFull)
}

// attacks are strings that must stay text wherever they are put.
var attacks = []string{
	`</svg><script>alert(1)</script>`,
	`</style></title></textarea><script src=//evil.example/x.js></script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onload='alert(1)`,
	`{{.}}<!-- --><![CDATA[`,
	`&lt;script&gt;`,
	`javascript:alert(1)`,
	`#01A55A;stroke:#FFFFFF`,
	"\xff\xfe\x00\x1b[31m\u202e",
}

// harm is what no page may contain, once it is parsed.
func harm(all []*html.Node) error {
	known := strings.Fields("html head meta title style body header main section h1 h2 h3 p dfn nav ul ol li a bdi dl div dt dd " +
		"table thead tbody tr th td small b span figure figcaption svg g path text")
	attributes := strings.Fields("lang charset http-equiv content name id class href aria-label aria-labelledby role tabindex scope colspan rowspan " +
		"viewBox transform d x y font-size stroke-width stroke-dasharray fill")
	for _, n := range all {
		if !slices.Contains(known, n.Data) {
			return fmt.Errorf("there is a %s", n.Data)
		}
		for _, a := range n.Attr {
			if !slices.Contains(attributes, a.Key) || a.Key == "href" && !regexp.MustCompile(`^#r\d+$`).MatchString(a.Val) {
				return fmt.Errorf("%s has %s=%q", n.Data, a.Key, a.Val)
			}
		}
	}
	return nil
}

// TestAttacks puts each attack into every string of a report, those that it
// does not have yet included.
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
			if strings.HasPrefix(attack, "<") {
				shown := words(named(all, "body")[0])
				require.GreaterOrEqual(t, strings.Count(shown, attack[:24]), 12, "it is shown as the text that it is")
				require.Greater(t, strings.Count(words(named(all, "svg")[12]), attack[:10]), 6, "in pictures too")
			}
		})
	}
	require.Error(t, harm(parsed(t, []byte(`<svg><script></script></svg>`))))
	require.Error(t, harm(parsed(t, []byte(`<p onclick="x">`))))
}

// TestPolicy: the page allows its own style, by what it is, and nothing else.
func TestPolicy(t *testing.T) {
	out := written(t, sample(t, 0))
	all := parsed(t, out)
	var policy string
	for _, m := range named(all, "meta") {
		if attr(m, "http-equiv") == "Content-Security-Policy" {
			policy = attr(m, "content")
		}
	}
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindSubmatch(out)
	require.NotNil(t, style)
	sum := sha256.Sum256(style[1])
	require.Equal(t, "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'", policy)
	require.NotRegexp(t, `(?i)url\(|@import|https?:|//|ZgotmplZ`, string(out), "nothing comes from elsewhere")
}
