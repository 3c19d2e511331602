package httpclient

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// advice is the part of an answer that bears on later requests.
type advice struct {
	told bool          // else the answer says nothing
	left int64         // requests that may follow before wait is over
	wait time.Duration // not negative
}

// maxAdvice bounds the bytes of a field that are parsed.
const maxAdvice = 8 << 10

// adviceOf reads an answer that came at now. Retry-After is heard with the two
// denying statuses, and goes before RateLimit. RateLimit goes before older
// fields.
func adviceOf(answer *http.Response, now time.Time) advice {
	denied := answer.StatusCode == http.StatusTooManyRequests
	clock := now // of the service
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		clock = date
	}
	if denied || answer.StatusCode == http.StatusServiceUnavailable {
		if wait, ok := retryAfter(answer.Header.Get("Retry-After"), clock); ok {
			return advice{true, 0, wait}
		}
	}
	var a advice
	if !cached(answer.Header) { // else the numbers of another client
		if a = rateLimit(answer.Header["Ratelimit"]); !a.told {
			a = olderFields(answer.Header, clock)
		}
	}
	switch {
	case denied && !a.told:
		return advice{true, 0, time.Second}
	case denied:
		a.left = 0
	case a.wait == 0: // quota is there
		return advice{}
	}
	return a
}

// cached reports whether an answer says that it comes from a cache: by Age, RFC 9111,
// section 5.1, or by a hit of Cache-Status, RFC 9211.
func cached(h http.Header) bool {
	return len(h["Age"]) > 0 || slices.ContainsFunc(items(h["Cache-Status"]), func(cache httpsfv.Item) bool {
		hit, _ := cache.Params.Get("hit")
		return hit == true
	})
}

// items returns the items of a list of RFC 9651. A malformed list has none.
func items(lines []string) (items []httpsfv.Item) {
	text := strings.Join(lines, ",")
	if text == "" || len(text) > maxAdvice {
		return nil
	}
	list, _ := httpsfv.UnmarshalList([]string{text})
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			items = append(items, item)
		}
	}
	return items
}

// retryAfter reads the field Retry-After: RFC 9110, section 10.2.3.
func retryAfter(text string, clock time.Time) (wait time.Duration, ok bool) {
	if n, ok := digits(text); ok {
		return inSeconds(n), true
	}
	date, err := http.ParseTime(text)
	return max(0, date.Sub(clock)), err == nil
}

// rateLimit reads the field RateLimit of draft-ietf-httpapi-ratelimit-headers-11. Of
// several quotas the least counts, and of several that are used up the latest.
func rateLimit(lines []string) (least advice) {
	for _, item := range items(lines) {
		r, hasLeft := integer(item, "r")
		t, hasWait := integer(item, "t")
		a := advice{hasLeft && hasWait, r, inSeconds(t)}
		if a.told && (!least.told || a.left < least.left || a.left == least.left && a.wait > least.wait) {
			least = a
		}
	}
	return least
}

// integer is the parameter of item called name, if the parameter is an Integer
// that is not negative.
func integer(item httpsfv.Item, name string) (int64, bool) {
	value, _ := item.Params.Get(name)
	n, ok := value.(int64)
	return n, ok && n >= 0
}

// unixTime is the least number that a Reset field means as a Unix time: as
// seconds from now it would be 31 years.
const unixTime = 1_000_000_000

// olderFields reads RateLimit-Remaining and -Reset of the draft's versions up to 06,
// and the X-RateLimit fields that the draft comes from. Their Reset is in seconds
// from now, or a Unix time in seconds or milliseconds.
func olderFields(h http.Header, clock time.Time) advice {
	for _, prefix := range []string{"Ratelimit-", "X-Ratelimit-"} {
		left, ok1 := digits(h.Get(prefix + "Remaining"))
		reset, ok2 := digits(h.Get(prefix + "Reset"))
		switch {
		case !ok1 || !ok2:
			continue
		case reset < unixTime:
			return advice{true, left, inSeconds(reset)}
		case reset >= 100*unixTime:
			reset /= 1000
		}
		return advice{true, left, max(0, time.Unix(reset, 0).Sub(clock))}
	}
	return advice{}
}

// digits reads a number that is written with digits alone. A number that is too
// large is the largest.
func digits(text string) (n int64, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ = strconv.ParseInt(text, 10, 64) // the largest, if out of range
	return n, true
}

// inSeconds is n seconds, or the longest Duration.
func inSeconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}
