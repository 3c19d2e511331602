package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Nginx starts an nginx for the test, with a location of these lines, and returns its
// host:port. listening is added to its listen: "", or "proxy_protocol".
func Nginx(t testing.TB, listening, lines string) string {
	return web(t, "nginx", "nginx-light", []string{"-c"}, func(port int, dir string) string {
		return fmt.Sprintf(`
daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr;
events { worker_connections 64; }
http {
	access_log off;
	proxy_cache_path %[1]s/cache keys_zone=pages:1m;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s %[3]s;
		location / {
			%[4]s
		}
	}
}`, dir, hostPort(port), listening, lines)
	})
}

// Caddy starts a Caddy for the test, with a site of these lines, and returns its
// host:port.
func Caddy(t testing.TB, lines string) string {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // Caddy saves its configuration there
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	return web(t, "caddy", "caddy", []string{"run", "--adapter", "caddyfile", "--config"}, func(port int, _ string) string {
		return fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttp://%s {\n%s\n}\n", hostPort(port), lines)
	})
}

// HAProxy starts a HAProxy for the test, with these lines under global and a proxy of
// the other lines, and returns its host:port.
func HAProxy(t testing.TB, global, lines string) string {
	return web(t, "haproxy", "haproxy", []string{"-db", "-f"}, func(port int, _ string) string {
		return fmt.Sprintf("global\n%s\ndefaults\n\ttimeout connect 10s\n\ttimeout client 1m\n\ttimeout server 1m\nlisten web\n\tbind %s\n%s\n", global, hostPort(port), lines)
	})
}

// web starts a program with a file of its configuration, which is the last of args.
func web(t testing.TB, name, debian string, args []string, config func(port int, dir string) string) string {
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil { // Debian: not in the PATH of users
		name = path
	}
	return start(t, program{
		name: name, debian: debian, other: filepath.Base(name),
		args: func(port int, dir string) []string {
			file := filepath.Join(dir, "config")
			require.NoError(t, os.WriteFile(file, []byte(config(port, dir)), 0o600))
			return append(args, file)
		},
		answers: func(addr string, _ int) error {
			conn, err := dial(addr, time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		},
	}).Addr
}
