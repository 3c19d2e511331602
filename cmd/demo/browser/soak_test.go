package browser

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/long"
)

const soakUsually = 9 * time.Second

var soak = flag.Duration("soak", soakUsually, "`time` that the races of TestSoak run at full speed")

// sizes is a sample of all sizes that must not grow, by name.
type sizes map[string]float64

// grown are the most that the least of the last third may be above that of the
// first, by name: on a busy machine frames wait in the page, which is no growth. A
// page that keeps the samples of its race grows by a megabyte in ten seconds.
var grown = map[string]float64{
	"minute: heap, MB": 0.5, "minute: DOM nodes": 50, "minute: listeners": 10,
	"day: heap, MB": 0.5, "day: DOM nodes": 50, "day: listeners": 10,
	"server: heap, MB": 2, "server: goroutines": 5,
}

// TestSoak runs two races at full speed with a crowd, under the shortest and under
// the longest limit, and sees neither the pages grow nor the process that serves
// them.
func TestSoak(t *testing.T) {
	if *soak == soakUsually {
		long.Only(t, "ten seconds of two pages at full speed")
	}
	address := newSite(t)
	tabs := map[string]*tab{}
	for i, name := range []string{"minute", "day"} {
		p := open(t, desk, address)
		p.started()
		p.do(chromedp.Focus(chromedp.ID("limit")))
		for range 2 * i {
			p.press(kb.ArrowDown)
		}
		p.do(chromedp.Focus(chromedp.ID("speed")))
		p.press(kb.End)
		p.wait(fmt.Sprintf(`document.querySelector('#pace').textContent.startsWith('× 10,000: a %s in')`, name))
		p.click("#crowd")
		call(p, performance.Enable, performance.EnableParams{})
		tabs[name] = p
	}
	// At first a page fills what it keeps: four windows, each a day.
	samples := []sizes{}
	begin, warm := time.Now(), min(*soak/3, 45*time.Second)
	for next := warm; next <= *soak; next += (*soak - warm) / 30 {
		time.Sleep(time.Until(begin.Add(next)))
		sample := sizes{}
		for name, p := range tabs {
			call(p, heapprofiler.CollectGarbage, cdp.Empty{})
			for _, metric := range call(p, performance.GetMetrics, cdp.Empty{}).Metrics {
				switch metric.Name {
				case "JSHeapUsedSize":
					sample[name+": heap, MB"] = metric.Value / 1e6
				case "Nodes":
					sample[name+": DOM nodes"] = metric.Value
				case "JSEventListeners":
					sample[name+": listeners"] = metric.Value
				}
			}
		}
		var memory runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&memory)
		sample["server: heap, MB"], sample["server: goroutines"] = float64(memory.HeapAlloc)/1e6, float64(runtime.NumGoroutine())
		samples = append(samples, sample)
	}
	for name, p := range tabs {
		require.Contains(t, p.text("#pace"), "10,000: a "+name)
		// At full speed the crowd gets the limit in each window.
		admitted := value[float64](p, fmt.Sprintf(`+document.querySelector(%q).textContent.replaceAll(',', '')`, cell("abacus", "admitted")))
		most := map[string]float64{"minute": 10. / 60, "day": 100. / 86400}[name] * 1e4 * time.Since(begin).Seconds()
		t.Logf("%s: %.0f admitted, at full speed about %.0f", name, admitted, most)
		require.Greater(t, admitted, most/20, "the race is not at full speed")
		require.Equal(t, map[string]string{"minute": "10", "day": "100"}[name], p.text(cell("abacus", "peak")))
	}
	require.Len(t, samples[0], len(grown))
	third := len(samples) / 3
	t.Logf("%-20s %8s %8s %8s %8s, %d samples in %s", "least of each third", "first", "middle", "last", "may grow", len(samples), *soak)
	for _, name := range slices.Sorted(maps.Keys(grown)) {
		first, middle, last := least(name, samples[:third]), least(name, samples[third:len(samples)-third]), least(name, samples[len(samples)-third:])
		t.Logf("%-20s %8.2f %8.2f %8.2f %8.2f", name, first, middle, last, grown[name])
		if last-first > grown[name] {
			t.Errorf("%s grows: the least of the first third is %.2f, of the last %.2f", name, first, last)
		}
	}
}

func least(of string, samples []sizes) float64 {
	return slices.MinFunc(samples, func(a, b sizes) int { return cmp.Compare(a[of], b[of]) })[of]
}
