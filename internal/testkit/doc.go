// Package testkit is the folder of all that only tests need: servers and faults
// (servertest, faults), scripts and their oracle (script, oracle, history), and
// tests of the repository itself (repo). Nothing of it is part of a user's program.
package testkit
