package memory_test

import (
	"context"
	"fmt"
	"log"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// Two mails a minute for each user, counted in this process.
func ExampleNew() {
	store := memory.New(memory.Config{})
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"user:7", "user:7", "user:7", "user:8"} {
		v, err := c.Take(context.Background(), counter.Key{Event: "mail", Feature: user}, 1, counter.MustLimits("2/m"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, v.Allowed, v.Remaining)
	}
	fmt.Println(store.Stats().Keys, "keys")
	// Output:
	// user:7 true 1
	// user:7 true 0
	// user:7 false 0
	// user:8 true 1
	// 2 keys
}
