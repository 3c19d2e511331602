package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
)

// postbox is a mail server with prepared answers.
type postbox struct {
	mu     sync.Mutex
	answer map[string][]error // for an address, one after the other; then nil
	got    []string
}

func (p *postbox) deliver(_ context.Context, m mail) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answers := p.answer[m.To]; len(answers) > 0 {
		p.answer[m.To] = answers[1:]
		return answers[0]
	}
	p.got = append(p.got, m.To)
	return nil
}

// over is a sender that delivers into a postbox, and counts on a store.
func (p *postbox) over(t *testing.T, store backend.Store) *sender {
	t.Helper()
	s, err := newSender(store, p.deliver)
	require.NoError(t, err)
	return s
}

func to(address string, n int) []mail {
	mails := make([]mail, n)
	for i := range mails {
		mails[i] = mail{"acme", address, fmt.Sprint("Hello ", i)}
	}
	return mails
}

// Mails wait for their turn in virtual time: a hundred of a tenant in a minute,
// five to an address in an hour.
func TestMailsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var box postbox
		s := box.over(t, memory.New(memory.Config{}))
		users := func(n int) (mails []mail) {
			for i := range n {
				mails = append(mails, to(fmt.Sprintf("user%d@example.org", i), 1)...)
			}
			return mails
		}

		// The tenant has room for all, in whatever order they begin.
		began := time.Now()
		require.Empty(t, s.sendAll(t.Context(), append(to("ada@example.org", 7), users(90)...)))
		require.Len(t, box.got, 97)
		require.Greater(t, time.Since(began), time.Hour)
		require.Less(t, time.Since(began), time.Hour*104/100)

		began = time.Now()
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		require.Len(t, s.sendAll(soon, to("ada@example.org", 7)), 4, "two are of the last hour")
		require.Zero(t, time.Since(began), "mails that would be too late are left at once")

		require.Empty(t, s.sendAll(t.Context(), users(150)))
		require.Len(t, box.got, 97+3+150)
		require.Greater(t, time.Since(began), time.Minute)
		require.Less(t, time.Since(began), 3*time.Minute)
	})
}

// Mails that the server refused give their place back; other failures do not.
func TestFailedDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, unknown, lost := &textproto.Error{Code: 451, Msg: "later"}, &textproto.Error{Code: 550, Msg: "unknown"}, errors.New("connection lost")
		box := postbox{answer: map[string][]error{
			"busy@example.org":    {busy, busy},
			"away@example.org":    {busy, busy, busy},
			"unknown@example.org": slices.Repeat([]error{unknown}, 10),
			"lost@example.org":    {lost, lost, lost, lost, lost},
		}}
		s := box.over(t, memory.New(memory.Config{}))
		hour, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		left := s.sendAll(hour, to("busy@example.org", 1))
		require.Empty(t, left)
		require.Equal(t, []string{"busy@example.org"}, box.got)
		require.Len(t, s.sendAll(hour, to("busy@example.org", 5)), 1, "only the delivered mail was counted")
		require.Len(t, s.sendAll(hour, to("away@example.org", 1)), 1)
		require.Empty(t, s.sendAll(hour, to("away@example.org", 5)))
		for range 2 {
			require.Empty(t, s.sendAll(hour, to("unknown@example.org", 5)), "no next run helps")
		}
		require.Len(t, s.sendAll(hour, to("lost@example.org", 5)), 5)
		require.Len(t, s.sendAll(hour, to("lost@example.org", 1)), 1, "five may have been delivered")
		require.Empty(t, box.answer["lost@example.org"])
		require.Empty(t, s.sendAll(hour, []mail{{"acme", "nobody", ""}, {"acme", "", ""}, {"", "ada@example.org", ""}}))
	})
}

// broken is a store that is down for a while.
type broken struct {
	*memory.Store
	until time.Time
}

func (b broken) Take(ctx context.Context, t *backend.TakeRequest) error {
	if time.Now().Before(b.until) {
		return errors.New("down")
	}
	return b.Store.Take(ctx, t)
}

func TestMailsWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var box postbox
		store := broken{memory.New(memory.Config{}), time.Now().Add(time.Hour)}
		require.Empty(t, box.over(t, store).sendAll(t.Context(), to("ada@example.org", 3)))
		require.False(t, time.Now().Before(store.until))
		require.Len(t, box.got, 3)
	})
}

// The end of the context, as by SIGTERM, leaves the mails that were not sent, in
// the form of the queue, and the next run goes on with them and with the counts.
func TestNothingIsLost(t *testing.T) {
	counts := filepath.Join(t.TempDir(), "counts")
	var queue strings.Builder
	for i := range 8 {
		fmt.Fprintf(&queue, `{"tenant":"acme","to":"ada@example.org","text":"%d"}`+"\n", i)
	}
	begin := func(in string, most int) (out string, sent int) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var left strings.Builder
		require.NoError(t, run(ctx, strings.NewReader(in), &left, counts, time.Hour/2, func(context.Context, mail) error {
			mu.Lock()
			defer mu.Unlock()
			if sent++; sent == most {
				cancel()
			}
			return nil
		}))
		cancel()
		return left.String(), sent
	}
	left, sent := begin(queue.String(), 5)
	require.LessOrEqual(t, sent, 5)
	require.Equal(t, 8-sent, strings.Count(left, "\n"))
	for line := range strings.Lines(left) {
		require.Contains(t, queue.String(), line)
	}
	again, more := begin(left, 0)
	require.Equal(t, 5, sent+more, "the counts go on, and the rest would come too late")
	require.Equal(t, 3, strings.Count(again, "\n"))
	require.EqualError(t, run(t.Context(), strings.NewReader("{}\n{"), &strings.Builder{}, "", time.Hour, nil), "mail 2: unexpected EOF")
}

// A mail server that accepts connections and says nothing, or stops in the middle, does
// not hold up the end: the mails are left, and the counts are written.
func TestTheServerIsSilent(t *testing.T) {
	for _, row := range []struct {
		name, says string
		within     time.Duration // of the run
		signal     time.Duration // SIGTERM comes then
		ends       time.Duration
	}{
		{"-within", "", 3 * time.Second, time.Hour, 3*time.Second + grace},
		{"SIGTERM", "", time.Hour, 2 * time.Second, 2*time.Second + grace},
		{"SIGTERM in a mail", "220 hello\r\n250 hello\r\n250 from\r\n250 to\r\n354 go on\r\n", time.Hour, 2 * time.Second, 2*time.Second + grace},
		{"no end", "220 hello\r\n", time.Hour, time.Hour, patience},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := mailServer{"mail.example.org:25", func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					go func() { _, _ = io.WriteString(server, row.says) }()
					go func() { _, _ = io.Copy(io.Discard, server) }()
					return client, nil
				}}
				ctx, cancel := context.WithTimeout(t.Context(), row.signal)
				defer cancel()
				queue := `{"tenant":"acme","to":"ada@example.org","text":"Hello"}` + "\n" + `{"tenant":"acme","to":"eve@example.org","text":"Hello"}` + "\n"
				counts, began := filepath.Join(t.TempDir(), "counts"), time.Now()
				var left strings.Builder
				require.NoError(t, run(ctx, strings.NewReader(queue), &left, counts, row.within, server.deliver))
				require.Equal(t, row.ends, time.Since(began))
				require.Equal(t, queue, left.String())
				store := memory.New(memory.Config{})
				require.NoError(t, store.LoadFile(counts))
				soon, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.Len(t, new(postbox).over(t, store).sendAll(soon, to("ada@example.org", 5)), 1, "the mail may have been delivered, and was counted")
			})
		})
	}
}

func TestDeliver(t *testing.T) {
	client, server := net.Pipe()
	heard := make(chan string)
	go func() {
		_, _ = io.WriteString(server, "220 hello\r\n250 hello\r\n250 from\r\n250 to\r\n354 go on\r\n250 taken\r\n221 bye\r\n")
	}()
	go func() {
		all, _ := io.ReadAll(server)
		heard <- string(all)
	}()
	m := mailServer{"mail.example.org:25", func(context.Context, string, string) (net.Conn, error) { return client, nil }}
	require.NoError(t, m.deliver(t.Context(), to("ada@example.org", 1)[0]))
	require.Equal(t, "EHLO localhost\r\nMAIL FROM:<mailer@example.org>\r\nRCPT TO:<ada@example.org>\r\nDATA\r\nTo: ada@example.org\r\n\r\nHello 0\r\n.\r\nQUIT\r\n", <-heard)
}
