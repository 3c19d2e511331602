package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// stores are the stores that --store names.
var stores = map[string]func() (counter.Store, error){
	"memory": func() (counter.Store, error) { return memory.New(memory.Config{}), nil },
}

func openStore(name string) (counter.Store, error) {
	open, known := stores[name]
	if !known {
		return nil, usageError{fmt.Errorf("unknown store %q, want %s", name, strings.Join(slices.Sorted(maps.Keys(stores)), " or "))}
	}
	return open()
}
