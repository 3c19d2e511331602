// Calls every verb of a running abacusd by its own description: node client.mjs URL.
import assert from "node:assert/strict";
import { OpenAPIClientAxios } from "openapi-client-axios";

const [url] = process.argv.slice(2);
const { SHOP, SUPPORT } = process.env; // tokens
const as = (token) =>
  new OpenAPIClientAxios({
    definition: `${url}/openapi.yaml`,
    axiosConfigDefaults: { baseURL: url, headers: { Authorization: `Bearer ${token}` }, validateStatus: () => true },
  });
const api = as(SHOP);
const shop = await api.init();
const support = await as(SUPPORT).init();
const done = new Set();
const call = async (client, verb, body, status = 200) => {
  const answer = verb === "status" ? await client.status(null, null, { headers: { Accept: "application/json" } }) : await client[verb](verb === "auth" ? { door: body } : null, verb === "auth" ? null : body);
  assert.equal(answer.status, status, `${verb} ${JSON.stringify(body)}: ${JSON.stringify(answer.data)}`);
  done.add(verb);
  return answer.data;
};

const ada = { event: "mail", features: ["user:Ada Lovelace", "email:Ada@Example.org"] };
let said = await call(shop, "take", { ...ada, n: 2, receipt: true });
assert.deepEqual([said.allowed, said.outcome, said.n, said.retry_after], [true, "admitted", 2, 0]);
assert.deepEqual(said.limits.map((l) => [l.feature, l.kind, l.limit, l.remaining]), [[0, "user", "3/h", 1], [1, "email", "5/h", 3]]);
const { receipt } = said;
said = await call(shop, "take", { ...ada, n: 2 });
assert.equal(said.allowed, false);
assert.ok(said.retry_after > 3500 && said.retry_after < 3700, said.retry_after);
assert.equal((await call(shop, "peek", { ...ada, n: 4 })).retry_after, null); // no wait will do
await call(shop, "refund", { receipt }, 204);
await call(shop, "refund", { receipt }, 409);
assert.equal((await call(shop, "peek", { ...ada, n: 3 })).allowed, true);
assert.equal((await call(shop, "charge", { ...ada, n: 7 })).allowed, false);
const shown = (usage) => usage.usage.map((u) => u.limits.map((l) => [u.kind, l.limit, l.count]));
assert.deepEqual(shown(await call(support, "usage", ada)), [[["user", "3/h", 7]], [["email", "5/h", 7]]]);
await call(support, "forget", { event: "mail", features: ["user:Ada Lovelace"] }, 204);
assert.deepEqual(shown(await call(support, "usage", ada)), [[["user", "3/h", 0]], [["email", "5/h", 7]]]);
await call(support, "erase", { features: ["email:ada@example.org"] }, 204);
assert.equal((await call(shop, "take", ada)).allowed, true);
assert.deepEqual((await call(support, "status")).rules.map((r) => [r.event, r.kind]), [["mail", "user"], ["mail", "email"], ["page", "user"]]);
assert.match((await call(shop, "auth", "page", 400)).detail, /"user" is required/);

assert.match((await call(shop, "usage", ada, 403)).detail, /may use usage/);
assert.match((await call(shop, "take", { ...ada, event: "none" }, 404)).detail, /no rule has the event/);
for (const n of [0, -1, 2 ** 32, 2 ** 53, 1.5, "1", NaN]) {
  await call(shop, "take", { ...ada, n }, n === 2 ** 32 || Number.isNaN(n) ? 200 : 400);
}
const all = api.getOperations().map((o) => o.operationId);
assert.deepEqual(all.filter((verb) => !done.has(verb)), [], "verbs of the description that were not called");
console.log(`${all.length} verbs`);
