package stores

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	for _, row := range []struct {
		text, shown string
		kind        Kind
		servers     []string
	}{
		{"memory", "memory", InMemory, nil},
		{"redis://h", "redis://h", OnRedis, nil},
		{"redis://u:p%40ss@h:6379/3", "redis://h:6379/3", OnRedis, nil},
		{"rediss://:pw@[::1]:6379?db=1", "rediss://[::1]:6379", OnRedis, nil},
		{"redis://:pw@h:1?addr=h:2&addr=h:3&pool_size=9", "redis://h:1?addr=h:2&addr=h:3", OnRedis, nil},
		{"redis://:pw@h:1/0?master_name=main&username=u&password=pw", "redis://h:1/0?master_name=main", OnRedis, nil},
		{"redis://:pw@h:1/0?layout=plain&pool_size=9", "redis://h:1/0?layout=plain", OnRedis, nil},
		{"unix://u:pw@/run/redis.sock?db=1", "unix:///run/redis.sock", OnRedis, nil},
		{"memcached://h", "memcached://h:11211", OnMemcached, []string{"h:11211"}},
		{"memcached://b:2,a:1,b:2/", "memcached://a:1,b:2", OnMemcached, []string{"a:1", "b:2"}},
		{"memcached://[::1],10.0.0.1:1", "memcached://10.0.0.1:1,[::1]:11211", OnMemcached, []string{"10.0.0.1:1", "[::1]:11211"}},
		{"memcached:///run/m.sock", "memcached:///run/m.sock", OnMemcached, []string{"/run/m.sock"}},
	} {
		name, err := Parse(row.text)
		require.NoError(t, err, row.text)
		require.Equal(t, row.shown, name.String(), row.text)
		require.Equal(t, row.kind, name.Kind, row.text)
		require.Equal(t, row.servers, name.servers, row.text)
	}
}

func TestWrongNames(t *testing.T) {
	for text, want := range map[string]string{
		"":                         `unknown store ""`,
		"redis":                    `unknown store "redis"`,
		"http://secret@h":          `unknown store "http://"`,
		"secret@h:6379":            "want memory",
		"redis:///0":               "without a host",
		"redis://:secret/@h":       "an @ behind its host",
		"redis://:secret#@h":       "an @ behind its host",
		"redis://:secret?@h":       "an @ behind its host",
		"redis://:secret%zz@h":     "cannot be parsed",
		"redis://:secret@h:port":   "cannot be parsed",
		"redis://h?layout=hash":    "layout=hash, want layout=sums or layout=plain",
		"memcached://":             `server "": want host:port`,
		"memcached://a:1,":         `server ""`,
		"memcached://a:":           `server "a:"`,
		"memcached://u:secret@h:1": "without user and password",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "secret", text)
	}
}
