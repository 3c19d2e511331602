package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/program"
)

// hang is the time after which an answer is taken for one that never comes. No
// slow machine needs so long.
const hang = 30 * time.Second

// answer is the answer to a request.
type answer struct {
	user   int
	status int
	at     time.Time // label of an admitted hit
	took   time.Duration
}

// client is a connection to a service.
type client struct {
	http.Client
	addr string
}

func dial(addr string) *client {
	return &client{http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: hang}, addr}
}

// ask sends a request in the name of a user, and waits for the answer.
func (c *client) ask(target, name string) (a answer, err error) {
	request, err := http.NewRequest("GET", "http://"+c.addr+target, nil)
	if err != nil {
		return a, err
	}
	request.Header.Set("User", name)
	began := time.Now()
	response, err := c.Do(request)
	if err != nil {
		return a, fmt.Errorf("no answer after %s: %w", time.Since(began), err)
	}
	defer response.Body.Close()
	a.took, a.status = time.Since(began), response.StatusCode
	if at := response.Header.Get("At"); at != "" {
		ns, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return a, err
		}
		a.at = time.Unix(0, ns)
	}
	_, err = io.Copy(io.Discard, response.Body) // for the next request
	return a, err
}

// load is many connections to some services. Every connection sends a request when
// the last one has been answered and a pause is over.
type load struct {
	addrs       []string
	names       []string // of the users, who take turns by chance
	connections int
	pause       time.Duration
	more        func() bool    // another request?
	admitted    []atomic.Int64 // of each user, while the load lasts
}

// run opens the connections, calls begin, sends requests, and returns all answers.
func (l *load) run(ctx context.Context, begin func()) ([]answer, error) {
	answers, errs := make([][]answer, l.connections), make([]error, l.connections)
	var all, ready sync.WaitGroup
	begun := make(chan struct{})
	ready.Add(l.connections)
	for i := range l.connections {
		all.Go(func() {
			c := dial(l.addrs[i%len(l.addrs)])
			defer c.CloseIdleConnections()
			_, err := c.ask("/", "") // connects
			ready.Done()
			<-begun
			answers[i], errs[i] = l.ask(ctx, c, err)
		})
	}
	ready.Wait()
	begin()
	close(begun)
	all.Wait()
	return slices.Concat(answers...), errors.Join(errs...)
}

// ask sends the requests of a connection that was opened without an error.
func (l *load) ask(ctx context.Context, c *client, err error) (answers []answer, _ error) {
	for err == nil && ctx.Err() == nil && l.more() {
		user := rand.IntN(len(l.names))
		a, err := c.ask("/hit", l.names[user])
		if err != nil {
			return answers, err
		}
		a.user = user
		if a.status == http.StatusOK {
			l.admitted[user].Add(1)
		}
		answers = append(answers, a)
		if l.pause > 0 {
			program.Sleep(ctx, l.pause/2+rand.N(l.pause))
		}
	}
	return answers, errors.Join(err, ctx.Err())
}
