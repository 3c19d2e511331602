// Command abacus is for those who run a service with abacus: it checks the promises on
// a store, shows what a store has of a key, forgets and erases keys, checks, compares
// and tries files of rules, and serves a page that watches a store. Command demo is for
// trying the library.
//
// The exit status is 0 if all went well; 1 for bad or unreadable input, a check or a
// store that failed, or output that cannot be written; 2 for a mistake on the command
// line; 3 if a feature counts nothing; and 130 for an interrupt.
package main

import (
	"embed"

	"github.com/abacus-go/abacus/cmd/internal/cli"
)

// commands is the command line.
type commands struct {
	Check   checkCmd   `cmd:"" help:"Try the promises on a store of yours, and look at how it is set up."`
	Inspect inspectCmd `cmd:"" help:"Show what a store has of a key: its buckets, and its counts by window."`
	Forget  forgetCmd  `cmd:"" help:"Forget keys in a store, and bans: a customer is let in again."`
	Erase   eraseCmd   `cmd:"" help:"Erase a person from a store: all keys of her features, and bans."`
	Rules   rulesCmd   `cmd:"" help:"Check files of rules, compare them, and try them on the hits of a store."`
	Watch   watchCmd   `cmd:"" help:"Open a page that watches a store, its servers, and the decisions of a service."`
}

const description = `Run abacus: look after the store and the rules of a service that counts. The program to try the library is "demo". In a checkout, abacus is "go run ./cmd/abacus".

Exit status: 0 all went well; 1 bad or unreadable input, a check or a store that failed, or output that cannot be written; 2 a mistake on the command line; 3 a feature counts nothing; 130 interrupted.`

//go:embed reports
var reports embed.FS

func main() {
	cli.Program{
		Name:        "abacus",
		Description: description,
		Commands:    &commands{},
		Reports:     reports,
		Elsewhere: map[string]string{
			"tour": "demo tour", "serve": "demo serve", "replay": "demo replay", "compare": "demo compare", "cover": "demo cover",
		},
	}.Main()
}
