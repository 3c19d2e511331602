// Package browser is the tests of the pages of demo serve, in a browser without a
// window. All tests share one browser, and each has tabs of its own.
package browser
