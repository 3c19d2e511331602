package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
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
	cfg *config.Config

	mu  sync.Mutex
	at  time.Time // of the last read
	now *tls.Config
}

const rereadCertificates = time.Minute

func newCertificates(cfg *config.Config) (*certificates, error) {
	c := &certificates{cfg: cfg, at: time.Now()}
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

// read reads the files; after an error, which joins the faults of all, all is as before.
func (c *certificates) read() error {
	files, clients := c.cfg.TLS, x509.NewCertPool()
	cert, certErr := os.ReadFile(files.CertFile)
	key, keyErr := os.ReadFile(files.KeyFile)
	pair, pairErr := tls.X509KeyPair(cert, key)
	if pairErr != nil && certErr == nil && keyErr == nil {
		certErr = fmt.Errorf("%s and %s: %w", files.CertFile, files.KeyFile, pairErr)
	}
	next := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	var caErr error
	if files.ClientCAFile != "" {
		var data []byte
		if data, caErr = os.ReadFile(files.ClientCAFile); caErr == nil && !clients.AppendCertsFromPEM(data) {
			caErr = fmt.Errorf("%s: the file has no certificate", files.ClientCAFile)
		}
		next.ClientAuth, next.ClientCAs = tls.VerifyClientCertIfGiven, clients
	}
	err := errors.Join(c.cfg.Fault("tls.cert_file", certErr), c.cfg.Fault("tls.key_file", keyErr), c.cfg.Fault("tls.client_ca_file", caErr))
	if err == nil {
		c.now = next
	}
	return err
}
