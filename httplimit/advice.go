package httplimit

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// advice is the part of an answer that tells when requests may follow.
type advice struct {
	told bool          // else the answer tells nothing
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
		if a = rateLimit(answer.Header[limitKey]); !a.told {
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
	if len(h["Age"]) > 0 {
		return true
	}
	caches, err := structured(h["Cache-Status"])
	return err == nil && slices.ContainsFunc(caches, func(member httpsfv.Member) bool {
		cache, ok := member.(httpsfv.Item)
		if !ok {
			return false
		}
		hit, _ := cache.Params.Get("hit")
		return hit == true
	})
}

// structured parses the lines of a list of RFC 9651, which may be empty.
func structured(lines []string) (httpsfv.List, error) {
	size := 0
	for _, line := range lines {
		size += len(line)
	}
	if size == 0 || size > maxAdvice {
		return nil, nil
	}
	return httpsfv.UnmarshalList(lines)
}

// retryAfter reads the field Retry-After: RFC 9110, section 10.2.3.
func retryAfter(text string, clock time.Time) (wait time.Duration, ok bool) {
	if n, ok := digits(text); ok {
		return inSeconds(n), true
	}
	date, err := http.ParseTime(text)
	return max(0, date.Sub(clock)), err == nil
}

// rateLimit reads the field RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11. Of several quotas the least counts, and of
// several that are used up the latest.
func rateLimit(lines []string) (least advice) {
	list, err := structured(lines)
	if err != nil {
		return advice{} // malformed fields are ignored as a whole
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		r, hasLeft := integer(item, "r")
		t, hasWait := integer(item, "t")
		if hasLeft && hasWait {
			least = least.or(advice{true, r, inSeconds(t)})
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

// or is the stricter one of a and b: fewer requests, or a longer wait.
func (a advice) or(b advice) advice {
	if a.told && (a.left < b.left || a.left == b.left && a.wait >= b.wait) {
		return a
	}
	return b
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
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return n, true
}

// inSeconds is n seconds, or the longest Duration.
func inSeconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}
