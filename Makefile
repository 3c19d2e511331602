# What each command does: "make help".
GO ?= go
FUZZTIME ?= 30s
FOR ?= 10m

.PHONY: help servers test check static soak faults oracle floods bench bench-peers bench-envoy fuzz vuln demo site clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

servers: ## install the programs that the tests start where they are missing, services off
	@sh internal/testkit/servertest/install.sh

# Nested modules are no part of ./..., and a pattern that matches less than it did
# says nothing: so many packages there are in all modules with tests.
PAGES = cmd/demo/site cmd/demo/browser
OTHERS = service service/bench bench examples/frameworks metrics/prometheus rules/schematest
MODULES = . $(PAGES) $(OTHERS)
PACKAGES = 91

# Many tests wait, for servers, browsers and clocks: five packages of the root module, one
# of the pages' modules and two of the others at a time keep two processors busy, and four
# tests of a package.
# No debugger reads the binaries: without its tables they link in two thirds of the time,
# and without cgo, which the race detector alone needs, in three quarters of that.
# Vet has a turn of its own in check; before each test it would read all that is imported.
# Without the tag gin brings a codec along that no example uses: half a minute to compile.
export CGO_ENABLED = 0
TEST = $(GO) test -vet=off -parallel 4 -ldflags=-w -tags=nomsgpack

# The packages of the root module that take longest, and then those that wait most, begin
# first: none of them runs alone at the end, or with others that wait.
FIRST = ./backend/redis ./internal/testkit/faults ./limiter ./internal/testkit/servertest $(WAITING)
WAITING = ./cmd/internal/check ./cmd/internal/watch ./cmd/internal/stores ./limitertest

# While programs are installed, modules are downloaded and the tests of the root module
# compiled: on a fresh machine neither waits for the other.
# The site is made in any case, for its links: a result from the cache of go test knows
# nothing of pages outside of the module.
# FLAGS are more flags of go test. The result of a package that has no long form is
# answered from the cache when check comes after test.
FLAGS =

test: ## the tests of all modules: each promise, in minutes. ABACUS_TESTS=long for all
	@$(MAKE) --no-print-directory servers & servers=$$!; \
	found=0; for module in $(MODULES); do found=$$(( found + $$(cd $$module && $(GO) list ./... | wc -l) )); done; \
	$(GO) list -export -test -deps ./... >/dev/null; wait $$servers || exit 1; \
	if [ $$found -ne $(PACKAGES) ]; then echo "$$found packages, want $(PACKAGES): see the Makefile"; exit 1; fi
	(set -e; $(MAKE) site SITE=-short; for module in $(PAGES); do (cd $$module && $(TEST) -p 1 -timeout 15m $(FLAGS) ./...); done) & pages=$$!; \
	(set -e; for module in $(OTHERS); do (cd $$module && $(TEST) -p 2 -timeout 15m $(FLAGS) ./...); done) & others=$$!; \
	$(TEST) -p 5 -timeout 15m $(FLAGS) $(FIRST) ./...; failed=$$?; wait $$pages || failed=1; wait $$others || failed=1; exit $$failed

# These packages start no goroutine, nor do their tests with -race; those that they call are
# tested with the race detector. It makes a test ten times as slow.
ALONE = cmd/abacus cmd/demo cmd/demo/internal/compare/page cmd/demo/internal/world internal/testkit/repo tiers
RACING = $(filter-out $(ALONE:%=github.com/abacus-go/abacus/%),$(shell $(GO) list ./...))

check: bin/staticcheck bin/unparam ## static, the tests in their long form, and with -race
	$(MAKE) static & static=$$!; ABACUS_TESTS=long $(MAKE) test; failed=$$?; wait $$static || failed=1; exit $$failed
	(set -e; for module in examples/frameworks metrics/prometheus service; do (cd $$module && CGO_ENABLED=1 $(TEST) -race -shuffle=on -p 1 ./...); done) & nested=$$!; \
	CGO_ENABLED=1 $(TEST) -race -shuffle=on -p 4 -timeout 30m $(FIRST) $(RACING); failed=$$?; wait $$nested || failed=1; exit $$failed

static: bin/staticcheck bin/unparam ## gofmt, vet, staticcheck and unparam in all modules
	@unformatted=$$(gofmt -l . ); if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	set -e; for module in $(MODULES); do (cd $$module && $(GO) vet ./... && $(CURDIR)/bin/staticcheck ./... && $(CURDIR)/bin/unparam ./...); done

soak: export ABACUS_TESTS = long
soak: servers ## the page of demo serve at full speed, for FOR: neither the page nor the server grows
	cd cmd/demo/browser && $(GO) test -count=1 -v -run TestSoak -timeout 0 . -soak $(FOR)

faults: servers ## callers on real servers under faults, for FOR, checked, into docs/reports/reliability.md
	$(GO) run ./internal/testkit/faults --for $(FOR) --write docs/reports/reliability.md

oracle: servers ## random scripts on all stores, for FOR: every answer is held to a log of all hits
	$(GO) test -count=1 -v -run TestStores -timeout 0 ./internal/testkit/script -for $(FOR)

floods: servers ## floods over a late or stopped store, under each policy, into docs/reports/floods.md (half an hour)
	$(GO) run ./internal/testkit/floods --write docs/reports/floods.md

bench: servers ## this library beside its peers, the short form, printed (minutes)
	cd bench && $(GO) run . -size short

bench-peers: servers ## the same in full, into docs/reports/bench.md (a quiet machine; 15 to 30 minutes)
	cd bench && $(GO) run . -size full -write ../docs/reports/bench.md

bench-envoy: servers ## the service beside the reference of Envoy, into docs/reports/envoy.md (minutes)
	cd service/bench && $(GO) run . -write ../../docs/reports/envoy.md

fuzz: ## every fuzz target for FUZZTIME each
	@for module in . service; do (cd $$module && for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done) || exit 1; done

vuln: bin/govulncheck ## known holes in what is imported (asks vuln.go.dev)
	./bin/govulncheck ./...

demo: ## the main job, on the embedded store
	$(GO) run ./cmd/demo

site: ## the web site as files for any file server, in build/site, with all its links checked
	rm -rf build/site
	cd cmd/demo/site && $(GO) run ./make $(SITE)

clean: ## remove what was built here
	rm -rf bin build

bin/%: tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$@ $$($(GO) list tool | grep '/$*$$')
