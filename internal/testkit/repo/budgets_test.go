package repo

// table is this file, as errors name it.
const table = "internal/testkit/repo/budgets_test.go"

// budget bounds the code of some folders, all taken together. A budget may be raised
// with a decision that says why.
type budget struct {
	folders  string // separated by spaces; "x/..." is x with all folders below that no other budget names
	code     int    // lines without blanks, comments and tests
	long     int    // functions above 60 lines
	types    int    // exported; 0: no bound on types and methods
	methods  int    // exported, of Counter
	decision string // of a budget that was raised: its pages in docs/decisions, separated by spaces
}

// budgets has a row for every folder with code.
var budgets = []budget{
	{folders: "tiers internal/cover", code: 421, decision: "calendar-periods.md"},
	{folders: "backend", code: 467, decision: "helpers-for-stores.md as-many-as-have-room.md"},
	{folders: "backend/memory/...", code: 2019, decision: "rings-in-memory.md as-many-as-have-room.md calendar-periods.md"},
	{folders: "backend/memcache/...", code: 2250, decision: "memcached-transport.md"},
	{folders: "backend/memcache/plain", code: 200},
	{folders: "backend/redis", code: 2471, decision: "sums-on-redis.md as-many-as-have-room.md pipelines-on-redis.md"},
	{folders: "backend/redis/lua", code: 964, decision: "sums-on-redis.md as-many-as-have-room.md"},
	{folders: "backend/redis/plain", code: 393, decision: "plain-counters-on-redis.md"},
	{folders: "internal/ticket", code: 1461, decision: "tickets.md as-many-as-have-room.md calendar-periods.md"},
	{folders: "counter", code: 2656, types: 11, methods: 19, decision: "prepared-limits.md as-many-as-have-room.md hot-keys.md calendar-periods.md settle.md"},
	{folders: "feature", code: 450},
	{folders: "limiter", code: 2808, decision: "way-of-a-request.md as-many-as-have-room.md queues-of-wait.md calendar-periods.md settle.md growing-bans.md"},
	{folders: "limiter/fallback", code: 1264, decision: "local-counting.md as-many-as-have-room.md calendar-periods.md settle.md growing-bans.md where-the-time-goes.md"},
	{folders: "limiter/turns", code: 280},
	{folders: "httplimit", code: 1928, decision: "speed-of-the-middleware.md queues-of-wait.md calendar-periods.md settle.md smaller-decisions.md"},
	{folders: "httpclient", code: 450},
	{folders: "rules internal/document", code: 915, decision: "faults-of-a-file.md growing-bans.md"},
	{folders: "internal/dur internal/inside internal/keytext internal/loan internal/redial internal/redisscript internal/spent internal/words", code: 512, decision: "queues-of-wait.md pages-as-files.md"},

	{folders: "metrics/tally", code: 450},
	{folders: ". metrics/... limitertest rules/schematest", code: 450},
	{folders: "service/envoy", code: 1450, decision: "service-for-other-languages.md"},
	{folders: "service/bench", code: 235},
	{folders: "service/...", code: 1994, decision: "service-for-other-languages.md"},
	{folders: "cmd/demo/...", code: 4014, decision: "two-programs.md pages-as-files.md"},
	{folders: "cmd/demo/site/...", code: 600, decision: "pages-as-files.md"},
	{folders: "cmd/abacus/...", code: 1299, decision: "two-programs.md calendar-periods.md growing-bans.md smaller-decisions.md"},
	{folders: "cmd/internal/...", code: 3231, decision: "two-programs.md calendar-periods.md pages-as-files.md"},
	{folders: "backend/backendtest internal/promise internal/testkit/...", code: 10000, decision: "calendar-periods.md two-forms-of-the-tests.md as-many-as-have-room.md hot-keys.md settle.md checks-in-one-line.md"},
	{folders: "classic/...", code: 2026, decision: "pages-as-files.md"},
	{folders: "examples/...", code: 1100},
	{folders: "bench/...", code: 1142, decision: "two-forms-of-the-tests.md smaller-decisions.md"},
}

// maxTests bounds the lines of all files of tests, without blanks and comments.
const maxTests = 54509

// pageBudget bounds the lines of all pages that match a pattern, taken together.
type pageBudget struct {
	pages string // of path.Match, from the root
	lines int
}

// pageBudgets bound the pages for readers. The pattern docs/*.md leaves out
// docs/decisions, with a page for each decision, and docs/reports, written by programs.
var pageBudgets = []pageBudget{
	{pages: "README.md", lines: 150},
	{pages: "docs/operating.md", lines: 322},
	{pages: "docs/*.md", lines: 2400},
}
