package httplimit

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/abacus-go/abacus/limiter"
)

// Source finds a feature in a request. [IP], [Email] and [NewSource] make Sources.
type Source struct {
	kind   string
	client *ClientIP // of IP, in place of find: an address is found without a copy of the request
	find   func(q *request) (limiter.Feature, error)
	err    error // the reason why New must refuse the Source
}

// IP is the feature "ip": the address of the client, as c finds it. A request
// whose client has no address, as on a Unix socket, lacks the feature.
func IP(c ClientIP) Source {
	c.Proxies = slices.Clone(c.Proxies)
	return Source{kind: limiter.KindIP, client: &c, err: c.check()}
}

// Email is a source of the feature "email": the mail address that v finds. Text
// that is no address is the request's fault, answered with 400.
func Email(v Value) Source {
	return Source{kind: limiter.KindEmail, err: checkValue(limiter.KindEmail, v), find: func(q *request) (limiter.Feature, error) {
		text, err := q.value(v)
		if err != nil {
			return limiter.Feature{}, err
		}
		t := limiter.Email(text)
		if t.Err() != nil {
			return limiter.Feature{}, &ValueError{Status: http.StatusBadRequest, Source: limiter.KindEmail, Reason: "is not an e-mail address"}
		}
		return t, nil
	}}
}

// NewSource is a source of features of any kind; the value is the text that v
// finds, unchanged.
func NewSource(kind string, v Value) Source {
	return Source{kind: kind, err: checkValue(kind, v), find: func(q *request) (limiter.Feature, error) {
		text, err := q.value(v)
		return limiter.NewFeature(kind, text), err
	}}
}

func checkValue(kind string, v Value) error {
	if v == nil {
		return fmt.Errorf("the Value is nil, want a function such as Form(%q)", kind)
	}
	return nil
}
