// Package testkit is the folder of all that only tests need: servers, faults and
// floods (servertest, faults, floods), scripts and their oracle (script, oracle,
// search, history), what pages and programs share (page, program), what makes checks
// short (try, parse), and tests of the repository itself (repo).
// Nothing of it is part of a user's program.
package testkit
