// Command make writes the web site of the project into a folder.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/abacus-go/abacus/cmd/demo/site"
)

func main() {
	var cfg site.Config
	flag.StringVar(&cfg.Root, "root", "../../..", "`folder` of the repository")
	flag.StringVar(&cfg.To, "to", "../../../build/site", "`folder` that is written")
	flag.BoolVar(&cfg.Short, "short", false, "leave out the module of WebAssembly")
	list := flag.Bool("links", false, "print the addresses that the pages link to")
	flag.Parse()
	outside, err := site.Write(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *list {
		for _, address := range outside {
			fmt.Println(address)
		}
	}
	fmt.Printf("%s: the site, with links to %d addresses elsewhere\n", cfg.To, len(outside))
}
