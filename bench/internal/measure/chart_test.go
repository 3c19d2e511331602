package measure

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestChart(t *testing.T) {
	c := Chart{X: "keys", Y: "ns", Log: true, Places: []string{"1,000", "10,000"}, Curves: []Curve{
		{"abacus", []Series{{120, 140}, {300, 310, 320}}},
		{"a < b", []Series{{61}, {301}}},
	}}
	drawing := try.To(c.svg("Time of a call"))(t)
	texts, places := map[string]string{}, 0
	d := xml.NewDecoder(strings.NewReader(string(drawing)))
	height := ""
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			for _, a := range token.Attr {
				if token.Name.Local == "text" && a.Name.Local == "y" {
					height = a.Value
				}
				if token.Name.Local == "svg" && (a.Name.Local == "width" || a.Name.Local == "height") {
					require.NotContains(t, a.Value, "pt")
				}
			}
		case xml.CharData:
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
}

func TestChartsThatSayNothing(t *testing.T) {
	for want, c := range map[string]Chart{
		"0 curves":           {Places: []string{"1"}},
		`"a" has 1 places`:   {Places: []string{"1", "2"}, Curves: []Curve{{"a", []Series{{1}}}}},
		"want above zero":    {Places: []string{"1"}, Curves: []Curve{{"a", []Series{{0, 1}}}}},
		"from 1 to +Inf":     {Places: []string{"1"}, Curves: []Curve{{"a", []Series{{1, math.Inf(1)}}}}},
		"a chart of 7 curve": {Places: []string{"1"}, Curves: make([]Curve, 7)},
	} {
		_, err := c.svg("")
		require.ErrorContains(t, err, want)
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
