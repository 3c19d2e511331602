package main

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The few commands of the campaign are sent by hand, on connections of their own.

// ask sends a line to the server and reads the answer up to an end out of ends.
func (w *world) ask(request string, ends ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", w.server.Addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
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

// connections counts the connections of the server, besides the asking connection.
func (w *world) connections() (int, error) {
	request, end, pattern := "stats", "END\r\n", regexp.MustCompile(`STAT curr_connections (\d+)`)
	if worldKind(w.name) == "redis" {
		request, end, pattern = "INFO clients", "connected_clients:", regexp.MustCompile(`connected_clients:(\d+)`)
	}
	text, err := w.ask(request, end)
	if err != nil {
		return 0, err
	}
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("%s: no number of connections in %.200q", request, text)
	}
	return strconv.Atoi(found[1])
}
