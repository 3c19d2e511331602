package servertest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reader that checks the frames never takes a damaged answer for another answer,
// and notices most of the damaged ones.
func TestDamageIsNoOtherAnswer(t *testing.T) {
	t.Parallel()
	const binary = "\x01\x00\x00\x00:1\r\n$2\r\n\xff\x80\x00"
	for name, answers := range map[string][]string{
		"redis":     {"$15\r\n" + binary + "\r\n", ":17\r\n", "*2\r\n:1\r\n$3\r\nabc\r\n", "-NOSCRIPT none\r\n", "+OK\r\n", ":170\r\n"},
		"memcached": {"VALUE k|1s17 0 2\r\n17\r\nVALUE k|1s18 0 1\r\n9\r\nEND\r\n", "NOT_STORED\r\n", "STORED\r\n", "17\r\n", "VA 2 O1 t3\r\n17\r\n", "NOT_FOUND\r\n", "HD\r\n", "170\r\n"},
	} {
		for _, kind := range []Damage{Whole, Flips, Lies, Cuts, Pieces, Heads} {
			t.Run(fmt.Sprint(name, " ", kind), func(t *testing.T) {
				t.Parallel()
				noticed := 0
				for seed := range uint64(5000) {
					random := rand.New(rand.NewPCG(seed, 1))
					var f frames
					var wire bytes.Buffer
					for _, a := range answers {
						pieces, end := f.hurt([]byte(a), kind, random)
						for _, p := range pieces {
							wire.Write(p)
						}
						if end {
							break
						}
					}
					reader := bufio.NewReader(&wire)
					for i, want := range answers {
						got, err := readStrictly(reader)
						if err != nil {
							noticed++
							break
						}
						require.Equal(t, want, got, "seed %d, answer %d, %d", seed, i, kind)
					}
				}
				if kind == Whole || kind == Pieces {
					require.Zero(t, noticed)
				} else {
					require.Greater(t, noticed, 2500)
				}
			})
		}
	}
}

// readStrictly reads an answer, and checks all that an answer has.
func readStrictly(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(line, "\r\n") {
		return "", errors.New("a line without an end")
	}
	all := line
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return "", errors.New("an empty line")
	}
	text := func(length string) error {
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 {
			return fmt.Errorf("a length of %s", length)
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil || !bytes.HasSuffix(body, []byte("\r\n")) {
			return errors.New("a text of another length")
		}
		all += string(body)
		if strings.HasPrefix(line, "V") {
			_, err = strconv.Atoi(string(body[:n]))
		}
		return err
	}
	switch first := fields[0]; {
	case first[0] == '$':
		err = text(strings.TrimSuffix(line[1:], "\r\n"))
	case line == "*2\r\n":
		for range 2 {
			element, err := readStrictly(r)
			if err != nil {
				return "", err
			}
			all += element
		}
	case line == "VALUE k|1s17 0 2\r\n", line == "VALUE k|1s18 0 1\r\n":
		if err = text(fields[3]); err == nil {
			var rest string
			rest, err = readStrictly(r)
			all += rest
		}
	case line == "VA 2 O1 t3\r\n":
		err = text(fields[1])
	case slices.Contains([]string{"END", "STORED", "NOT_STORED", "NOT_FOUND", "HD", "+OK", "-NOSCRIPT none"}, strings.TrimSuffix(line, "\r\n")):
	default:
		_, err = strconv.Atoi(strings.TrimPrefix(strings.TrimSuffix(line, "\r\n"), ":"))
	}
	return all, err
}
