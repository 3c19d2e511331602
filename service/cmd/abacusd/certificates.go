package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/abacus-go/abacus/service/config"
)

// certificates are the files for TLS. They are read again with a connection, at most
// once a minute; files that are bad then change nothing.
type certificates struct {
	files *config.TLS

	mu  sync.Mutex
	at  time.Time // of the last read
	now *tls.Config
}

const rereadCertificates = time.Minute

func newCertificates(files *config.TLS) (*certificates, error) {
	c := &certificates{files: files, at: time.Now()}
	return c, c.read()
}

// config is the configuration of the listeners.
func (c *certificates) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return c.current(time.Now()), nil
	}}
}

func (c *certificates) current(now time.Time) *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.at); age >= rereadCertificates || age < 0 {
		c.at = now
		if err := c.read(); err != nil {
			slog.Warn("abacusd: the files for TLS are refused, those until now stay", "error", err)
		}
	}
	return c.now
}

// read reads the files; after an error all is as before.
func (c *certificates) read() error {
	pair, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.files.CertFile, c.files.KeyFile, err)
	}
	next := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if c.files.ClientCAFile != "" {
		data, err := os.ReadFile(c.files.ClientCAFile)
		if err != nil {
			return err
		}
		next.ClientAuth, next.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		if !next.ClientCAs.AppendCertsFromPEM(data) {
			return fmt.Errorf("%s: the file has no certificate", c.files.ClientCAFile)
		}
	}
	c.now = next
	return nil
}
