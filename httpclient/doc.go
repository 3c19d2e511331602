// Package httpclient is for programs that call services with rate limits: requests
// wait as long as the service asks, and for limits of the caller's own.
//
//	transport, err := httpclient.New(httpclient.Config{MaxWait: time.Minute})
//	client := &http.Client{Transport: transport}
//
// A [Transport] reads Retry-After and the RateLimit fields of every answer, and holds
// back later requests to the same host. The caller gets each answer unchanged.
//
// The package does not retry: only the caller knows whether a request may be sent
// again. It does not guess a service's limits either. A missing answer or an error of
// the service may slow requests down, but only the service's own word stops them. A
// Transport knows what it has heard itself; other processes hear for themselves.
//
// The package does not count. Config.Limit is any function that waits for a turn.
// httplimit.Outgoing makes one of a limiter with its rules and store, and a Limiter of
// golang.org/x/time/rate is one in a line:
//
//	Limit: func(ctx context.Context, _ *http.Request) (func(), error) { return nil, perSecond.Wait(ctx) },
package httpclient
