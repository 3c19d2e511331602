package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// A few commands of the campaign are sent by hand, on connections of their own.

// flushAll empties a memcached.
func flushAll(addr string) error {
	_, err := exchange(addr, 5*time.Second, "flush_all", "OK\r\n")
	return err
}

// exchange sends a line to a server, and returns the answer up to one of the ends.
func exchange(addr string, within time.Duration, request string, ends ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return "", err
	}
	var answer strings.Builder
	chunk := make([]byte, 4096)
	for {
		n, err := conn.Read(chunk)
		answer.Write(chunk[:n])
		for _, end := range ends {
			if strings.Contains(answer.String(), end) {
				return answer.String(), nil
			}
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w after %.80q", request, err, answer.String())
		}
	}
}
