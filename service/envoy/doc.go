// Package envoy answers the rate limit service of Envoy, envoy.service.ratelimit.v3, by
// the descriptors that a gateway sends and rules in the format of its reference service.
// It is the only package of the module that knows protobuf.
//
//	service, err := envoy.New(envoy.Config{Counter: c, Rules: "envoy/"})
//	...
//	service.Register(server) // a *grpc.Server
//	mux.Handle("/json", service)
//	...
//	defer service.Close(ctx)
//
// The answers are those of the reference service, but windows slide, and a denied request
// counts nothing. README.md, next to the code, describes the format of the rules, the
// differences, and the variables of the environment.
package envoy
