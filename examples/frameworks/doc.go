// Package frameworks limits log-ins in gin, echo, fiber and gRPC: who has the right
// password is not counted, and wrong passwords are. Each file is a recipe, to be
// copied. The tests also put package httplimit into routers.
package frameworks
