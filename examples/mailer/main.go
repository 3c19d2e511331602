// Mailer sends mails, so many per address and per tenant. A mail waits for its
// turn; a mail whose turn comes too late is left for the next run.
//
//	echo '{"tenant":"acme","to":"ada@example.org","text":"Hello"}' >queue
//	go run ./examples/mailer -counts counts <queue >left
//
// Without -smtp the mails are only logged. Mails that were not sent are in the
// file left, in the form of the queue, also after an interrupt or SIGTERM: the
// program ends within a few seconds then, even if the mail server is silent. After
// a SIGKILL counts is as before the run, and left is empty: keep the queue.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/smtp"
	"net/textproto"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

func main() {
	counts := flag.String("counts", "", "file that keeps the counts from one run to the next; none: they begin at zero")
	server := flag.String("smtp", "", "host:port of the mail server; none: mails are logged")
	within := flag.Duration("within", 10*time.Minute, "time for all mails; a mail whose turn comes later is left at once")
	flag.Parse()
	deliver := func(_ context.Context, m mail) error {
		log.Printf("%s writes to %s: %s", m.Tenant, m.To, m.Text)
		return nil
	}
	if *server != "" {
		deliver = mailServer{*server, new(net.Dialer).DialContext}.deliver
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdin, os.Stdout, *counts, *within, deliver); err != nil {
		log.Fatal(err)
	}
}

type mail struct {
	Tenant string `json:"tenant"`
	To     string `json:"to"`
	Text   string `json:"text"`
}

// run sends the mails of queue until ctx is done, and writes the mails that are
// left. The counts are written when the last delivery has ended.
func run(ctx context.Context, queue io.Reader, left io.Writer, counts string, within time.Duration, deliver func(context.Context, mail) error) error {
	var mails []mail
	for in := json.NewDecoder(queue); ; {
		var m mail
		if err := in.Decode(&m); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("mail %d: %w", len(mails)+1, err)
		}
		mails = append(mails, m)
	}
	// Several senders share their counts through redis.Open or memcache.New.
	store := memory.New(memory.Config{})
	if counts != "" {
		if err := store.LoadFile(counts); err != nil {
			return err
		}
	}
	s, err := newSender(store, deliver)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out := json.NewEncoder(left)
	for _, m := range s.sendAll(ctx, mails) {
		err = errors.Join(err, out.Encode(m))
	}
	if counts != "" {
		err = errors.Join(err, store.SaveFile(counts))
	}
	return err
}

const (
	patience = time.Minute     // with the mail server, for one mail
	grace    = 5 * time.Second // of this for a mail that is on its way when the program is to end
)

// mailServer delivers mails by SMTP.
type mailServer struct {
	addr string
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// deliver is smtp.SendMail with an end. A mail that is cut off at once would be sent
// again by the next run, though the server may have taken it: hence the grace.
func (s mailServer) deliver(ctx context.Context, m mail) error {
	conn, err := s.dial(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now().Add(grace)) })()
	host, _, _ := net.SplitHostPort(s.addr)
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return err
	}
	if offered, _ := c.Extension("STARTTLS"); offered {
		if err := c.StartTLS(&tls.Config{ServerName: host}); err != nil {
			return err
		}
	}
	if err := c.Mail("mailer@example.org"); err != nil {
		return err
	}
	if err := c.Rcpt(m.To); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, "To: "+m.To+"\r\n\r\n"+m.Text+"\r\n"); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_ = c.Quit() // the server has the mail
	return nil
}

type sender struct {
	lim     *limiter.Limiter
	deliver func(context.Context, mail) error
}

func newSender(store backend.Store, deliver func(context.Context, mail) error) (*sender, error) {
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		return nil, err
	}
	// FailClosed, the default: while the store fails mails wait, and none is too many.
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "mail", Kind: "tenant", Limits: counter.MustLimits("100/m")},
		{Event: "mail", Kind: "email", Limits: counter.MustLimits("5/h")},
	}})
	if err != nil {
		return nil, err
	}
	return &sender{lim, deliver}, nil
}

// sendAll returns the mails that are left. Each mail waits in a goroutine, and an
// address without room holds up no other address.
func (s *sender) sendAll(ctx context.Context, mails []mail) (left []mail) {
	leave := make([]bool, len(mails))
	var all sync.WaitGroup
	for i, m := range mails {
		all.Go(func() {
			err := s.send(ctx, m)
			if err != nil {
				log.Printf("mail of %s: %v", m.Tenant, err)
			}
			leave[i] = err != nil && !errors.Is(err, errRefused)
		})
	}
	all.Wait()
	for i, m := range mails {
		if leave[i] {
			left = append(left, m)
		}
	}
	return left
}

// errRefused is the error of a mail that cannot be delivered.
var errRefused = errors.New("refused for good")

const tries = 3

// send waits for the turn of m and delivers m. A mail that the server refused
// did not go out, and gives its place back. After any other failure no one knows:
// the place stays taken.
func (s *sender) send(ctx context.Context, m mail) error {
	to := feature.Email(m.To)
	if to.Missing() || to.Err() != nil || m.Tenant == "" {
		return fmt.Errorf("%w: want a tenant and an address", errRefused)
	}
	for try := 1; ; try++ {
		v, err := s.lim.Wait(ctx, "mail", feature.New("tenant", m.Tenant), to)
		if err != nil {
			return err
		}
		err = s.deliver(ctx, m)
		var answer *textproto.Error
		if !errors.As(err, &answer) {
			return err
		}
		if err := s.lim.Refund(context.WithoutCancel(ctx), &v); err != nil {
			log.Print(err) // the mail was counted
		}
		if answer.Code >= 500 {
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		if try == tries {
			return err
		}
		select { // the server wants to be asked later
		case <-time.After(time.Duration(try) * time.Second):
		case <-ctx.Done():
			return err
		}
	}
}
