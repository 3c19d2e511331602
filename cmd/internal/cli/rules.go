package cli

import (
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
)

// Limiter is a limiter in memory.
func Limiter(all []limiter.Rule) (*limiter.Limiter, error) {
	count, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		return nil, err
	}
	return limiter.New(count, limiter.Config{Rules: all, Local: count})
}

// Rules are the rules of a file as a Limiter has them: merged, and with their ladders.
func Rules(file string) ([]limiter.Rule, error) {
	set, err := rules.Load(file)
	if err != nil {
		return nil, err
	}
	lim, err := Limiter(set.Rules)
	if err != nil {
		return nil, err
	}
	var all []limiter.Rule
	for _, event := range lim.Events() {
		all = append(all, lim.Rules(event)...)
	}
	return all, nil
}
