package httplimit

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/abacus-go/abacus/limiter"
)

// Feature finds one feature of a request. [IP], [Email] and [By] make them.
type Feature struct {
	kind string
	find func(q *request) (limiter.Trait, error)
	err  error // why it cannot be used
}

// IP is the feature "ip": the address of the client, as c finds it. A request
// whose client has no address, as on a Unix socket, lacks the feature.
func IP(c ClientIP) Feature {
	c.Proxies = slices.Clone(c.Proxies)
	return Feature{
		kind: limiter.KindIP,
		find: func(q *request) (limiter.Trait, error) { return limiter.IP(c.Of(q.in)), nil },
		err:  c.check(),
	}
}

// Email is the feature "email": the mail address that v finds. Text that is no
// address is the request's fault, and answered with 400.
func Email(v Value) Feature {
	return Feature{kind: limiter.KindEmail, err: checkValue(limiter.KindEmail, v), find: func(q *request) (limiter.Trait, error) {
		text, err := q.value(v)
		if err != nil {
			return limiter.Trait{}, err
		}
		t := limiter.Email(text)
		if t.Err() != nil {
			return limiter.Trait{}, &ValueError{Status: http.StatusBadRequest, Place: limiter.KindEmail, Reason: "is not an e-mail address"}
		}
		return t, nil
	}}
}

// By is a feature of any kind: the text that v finds, as it is.
func By(kind string, v Value) Feature {
	return Feature{kind: kind, err: checkValue(kind, v), find: func(q *request) (limiter.Trait, error) {
		text, err := q.value(v)
		return limiter.Feature(kind, text), err
	}}
}

func checkValue(kind string, v Value) error {
	if v == nil {
		return fmt.Errorf("the Value is nil, want a function such as Form(%q)", kind)
	}
	return nil
}
