package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/long"
)

// javascript installs the packages of testdata/javascript, by their lock file, and returns
// a function that runs a program with them and returns its output.
func javascript(t *testing.T, env ...string) (dir string, run func(args ...string) string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/javascript")))
	run = func(args ...string) string {
		t.Helper()
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Fatalf("%s is missing: install nodejs and npm; on Debian, make test as root installs them", args[0])
		}
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%q: %s", args, out)
		return string(out)
	}
	run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	return dir, run
}

// Clients that are not Go's: of OpenAPI, which reads the description that abacusd serves
// and calls each verb of it, of gRPC, and the lines of README.md.
func TestJavaScript(t *testing.T) {
	long.Only(t, "npm installs the clients; tests in Go call each verb of both doors")
	const shop, support, gateway = "0123456789abcdef-shop", "0123456789abcdef-support", "0123456789abcdef-gateway"
	dir := files(t, map[string]string{
		"shop.token": shop, "support.token": support, "gateway.token": gateway, "envoy.yaml": envoyRules,
		"rules.yaml": `events: {mail: {user: {limits: 3/h}, email: {limits: 5/h, if_missing: skip}}, page: {user: {limits: 2/h, if_missing: deny}}}`,
		"abacusd.yaml": `rules: rules.yaml
envoy: {rules: envoy.yaml}
listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}
drain: 10ms
callers:
  - {name: shop, token_file: shop.token, may: [auth, take, peek, charge, refund]}
  - {name: support, token_file: support.token, may: [usage, forget, erase, status]}
  - {name: gateway, token_file: gateway.token, may: [rls]}
doors: {page: {features: {user: {header: X-User}}}}
`})
	d := serve(t, filepath.Join(dir, "abacusd.yaml")).ready()
	packages, run := javascript(t, "SHOP="+shop, "SUPPORT="+support, "GATEWAY="+gateway)
	require.Equal(t, "9 verbs\n", run("node", "client.mjs", "http://"+d.http))
	require.Equal(t, "a gateway\n", run("node", "gateway.mjs", d.grpc))

	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	here := strings.NewReplacer("localhost:8080", d.http, "user:ada", "user:grace", "$ curl", "curl -s")
	program := regexp.MustCompile("(?ms)^```js\n(.*?)^```").FindSubmatch(readme)
	require.NoError(t, os.WriteFile(filepath.Join(packages, "readme.mjs"), []byte(here.Replace(string(program[1]))), 0o600))
	lines := regexp.MustCompile(`(?m)^    (\$ curl .*(?:\\\n.*)?ABACUSD_TOKEN.*(?:\n        .*)*)\n    (\{.*)$`).FindStringSubmatch(string(readme))
	require.Len(t, lines, 3)
	usage := "export ABACUSD_TOKEN=$SUPPORT; " + here.Replace(lines[1])
	t.Setenv("ABACUSD_TOKEN", shop)
	for i, want := range []string{"2 left", "1 left", "0 left"} {
		require.Equal(t, want+"\n", run("node", "readme.mjs"), i)
	}
	require.Regexp(t, `^again in 3\d{3}(\.\d+)? s\n$`, run("node", "readme.mjs"))
	require.Equal(t, lines[2], strings.TrimSpace(regexp.MustCompile(`"retry_after":[0-9.]+`).ReplaceAllString(run("sh", "-c", usage), `"retry_after":3599.4`)))
}
