package measure

import (
	"encoding/xml"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestChart(t *testing.T) {
	c := Chart{Title: "Time of a call", X: "keys", Y: "ns", Log: true, Places: []string{"1,000", "10,000"}, Curves: []Curve{
		{"abacus", []Series{{120, 140}, {300, 310, 320}}},
		{"a < b", []Series{{61}, {301}}},
	}}
	drawing := try.To(c.svg("this machine", style(t)))(t)
	texts, places := map[string]string{}, 0
	d := xml.NewDecoder(strings.NewReader(string(drawing)))
	height, inside := "", ""
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			inside = token.Name.Local
			for _, a := range token.Attr {
				if token.Name.Local == "text" && a.Name.Local == "y" {
					height = a.Value
				}
				if token.Name.Local == "svg" && (a.Name.Local == "width" || a.Name.Local == "height") {
					require.NotContains(t, a.Value, "pt")
				}
			}
		case xml.CharData:
			if inside == "title" || inside == "style" {
				continue
			}
			if text := strings.TrimSpace(string(token)); text != "" {
				texts[text] = height
				places++
			}
		}
	}
	for _, text := range []string{"Time of a call", "this machine", "keys", "ns", "1,000", "10,000", "abacus", "a < b", "50", "100", "200", "500"} {
		require.Contains(t, texts, text)
	}
	require.Len(t, texts, places)
	require.NotEqual(t, texts["abacus"], texts["a < b"], "one name on the other")
	require.Contains(t, string(drawing), "<title>Time of a call</title>")
	require.NotContains(t, string(drawing), "#00000", "a colour without a style")
}

// style is the style of the pages of the programs.
func style(t *testing.T) string {
	css := try.To(os.ReadFile("../../../cmd/internal/web/base.css"))(t)
	return string(css)
}

// The curves and the names of abacus, and nothing else, have the colour that abacus has on
// the pages, on a light ground and on a dark one.
func TestColourOfAbacus(t *testing.T) {
	css := style(t)
	ours := regexp.MustCompile(`--ours:(#\w+)`).FindAllStringSubmatch(css, -1)
	require.Len(t, ours, 2)
	at := []Series{{1, 2, 3}, {4, 5, 6}}
	c := Chart{Places: []string{"1", "2"}, Curves: []Curve{{"a", at}, {"abacus, 1", at}, {"b", at}, {"abacus, 3", at}, {"c", at}, {"d", at}}}
	drawing := try.To(c.svg("", css))(t)
	light, dark, _ := strings.Cut(string(drawing), "@media (prefers-color-scheme:dark)")
	require.Contains(t, light, ".fill4{fill:"+ours[0][1]+"}.stroke4{stroke:"+ours[0][1]+"}")
	require.Contains(t, dark, ".fill4{fill:"+ours[1][1]+"}.stroke4{stroke:"+ours[1][1]+"}")
	var named []string
	for _, text := range regexp.MustCompile(`(?s)<text [^>]*class="fill4"[^>]*>([^<]*)<`).FindAllStringSubmatch(string(drawing), -1) {
		named = append(named, text[1])
	}
	require.ElementsMatch(t, []string{"abacus, 1", "abacus, 3"}, named)
	require.Equal(t, 1, strings.Count(string(drawing), "stroke-dasharray"), "the second abacus")

	require.ErrorContains(t, try.Err(c.svg("", strings.Replace(css, "--ours", "--theirs", 1))), "has 1 colours --ours")
}

func TestDraw(t *testing.T) {
	const page = "# Page\n\n| processor | a chip |\n| date | today |\n\n## One\n\n![x](charts/Other.svg)\n\n## Two\n\n### abacus, one limit\n\n" +
		"| callers | 1,000 calls/s |\n|---|---:|\n| 1 | 1,200 (900-1,400) |\n| 2 | 3 (2-4) |\n\n![x](charts/ManyCallersOnRedis.svg)\n"
	drawn := try.To(Draw(page, style(t)))(t)
	require.Len(t, drawn, 1)
	for _, text := range []string{">a chip; today<", ">abacus, one limit<", ">callers<", ">1,000 calls a second<"} {
		require.Contains(t, string(drawn["charts/ManyCallersOnRedis.svg"]), text)
	}
	c := try.To(read(charts["TestManyCallersOnRedis"], page))(t)
	require.Equal(t, []string{"1", "2"}, c.Places)
	require.Equal(t, []Curve{{"abacus, one limit", []Series{{1200, 900, 1400}, {3, 2, 4}}}}, c.Curves)
	require.ErrorContains(t, try.Err(Draw(strings.Replace(page, "3 (2-4)", "3", 1), style(t))), `ManyCallersOnRedis.svg: measure: cell "3"`)
}

func TestChartsThatSayNothing(t *testing.T) {
	for want, c := range map[string]Chart{
		"0 curves":           {Places: []string{"1"}},
		`"a" has 1 places`:   {Places: []string{"1", "2"}, Curves: []Curve{{"a", []Series{{1}}}}},
		"want above zero":    {Places: []string{"1"}, Curves: []Curve{{"a", []Series{{0, 1}}}}},
		"from 1 to +Inf":     {Places: []string{"1"}, Curves: []Curve{{"a", []Series{{1, math.Inf(1)}}}}},
		"a chart of 7 curve": {Places: []string{"1"}, Curves: make([]Curve, 7)},
	} {
		require.ErrorContains(t, try.Err(c.svg("", style(t))), want)
	}
}

func TestSteps(t *testing.T) {
	for _, row := range []struct {
		log             bool
		least, greatest float64
		want            string
	}{
		{true, 61, 320, "50 100 200 500"},
		{true, 50, 500, "50 100 200 500"},
		{true, 9.3, 1_075, "5 10 20 50 100 200 500 1,000 2,000"},
		{true, 1, 1, "1"},
		{false, 200, 498, "0 100 200 300 400 500"},
		{false, 9, 11.2, "0 2 4 6 8 10 12"},
		{false, 9, 282, "0 50 100 150 200 250 300"},
		{false, 1, 2, "0 0.5 1 1.5 2"},
	} {
		var labels []string
		for _, tick := range steps(row.log, &row.least, &row.greatest) {
			labels = append(labels, tick.Label)
		}
		require.Equal(t, row.want, strings.Join(labels, " "))
	}
}

func TestNamesDoNotMeet(t *testing.T) {
	c := curves{Chart: &Chart{Curves: []Curve{{At: []Series{{30}}}, {At: []Series{{31}}}, {At: []Series{{2}}}, {At: []Series{{100}}}}}}
	require.Equal(t, []float64{30, 44, 10, 100}, c.names(func(y float64) float64 { return y }, 10))
}
