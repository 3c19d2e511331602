package httpclient_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httpclient"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

// A payment API sells 2,000 calls a day. The calls of this account are counted
// before they are sent, and a call that would have to wait for more than a minute
// is an error at once.
func ExampleTransport() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()

	c, err := counter.New(memory.New(memory.Config{}), counter.Config{}) // or a store that processes share
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "payment-api", Kind: httplimit.KindHost, Limits: counter.MustLimits("2000/d")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.Outgoing(lim, "payment-api", nil)
	if err != nil {
		log.Fatal(err)
	}
	transport, err := httpclient.New(httpclient.Config{Limit: limit, MaxWait: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}

	for calls := 0; ; calls++ {
		answer, err := client.Get(api.URL + "/payments/7")
		var notSent *httpclient.NotSentError
		if errors.As(err, &notSent) {
			fmt.Println(calls, "calls were sent; the next can be sent in", time.Until(notSent.Until).Round(time.Hour))
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	// Output: 2000 calls were sent; the next can be sent in 24h0m0s
}
