// Package envoy answers the rate limit service of Envoy, envoy.service.ratelimit.v3, by
// the descriptors that a gateway sends and rules in the format of its reference service.
// It is the only package of the module that knows protobuf.
package envoy
