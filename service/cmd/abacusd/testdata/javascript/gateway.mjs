// Asks Envoy's door of a running abacusd as a gateway: node gateway.mjs HOST:PORT.
import assert from "node:assert/strict";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

const { envoy, grpc: of } = grpc.loadPackageDefinition(loadSync(["ratelimit.proto", "health.proto"], { enums: String, longs: Number, defaults: true }));
const [address] = process.argv.slice(2);
const { GATEWAY } = process.env; // its token
const token = new grpc.Metadata();
token.set("authorization", `Bearer ${GATEWAY}`);
const client = new envoy.service.ratelimit.v3.RateLimitService(address, grpc.credentials.createInsecure());
const ask = promisify(client.shouldRateLimit.bind(client));
const shop = (user, more) => ({ domain: "shop", descriptors: [{ entries: [{ key: "user", value: user }], ...more }] });

for (const left of [1, 0]) {
  const { overallCode, statuses } = await ask(shop("ada"), token);
  assert.equal(overallCode, "OK");
  assert.deepEqual([statuses[0].currentLimit, statuses[0].limitRemaining], [{ requestsPerUnit: 2, unit: "HOUR" }, left]);
}
const over = await ask(shop("ada"), token);
assert.equal(over.overallCode, "OVER_LIMIT");
assert.ok(over.statuses[0].durationUntilReset.seconds > 3500, JSON.stringify(over));
assert.equal((await ask(shop("ada", { hitsAddend: { value: 0 } }), token)).statuses[0].limitRemaining, 0); // only asks
assert.equal((await ask(shop("ada", { hitsAddend: { value: 5 } }), token)).overallCode, "OVER_LIMIT"); // a cost
assert.equal((await ask(shop("bob"), token)).overallCode, "OK");
assert.equal((await ask({ ...shop("ada"), domain: "none" }, token)).overallCode, "OK");
await assert.rejects(ask(shop("ada"), new grpc.Metadata()), { code: grpc.status.UNAUTHENTICATED });
await assert.rejects(ask({ domain: "shop" }, token), { code: grpc.status.INVALID_ARGUMENT });
const health = new of.health.v1.Health(address, grpc.credentials.createInsecure());
assert.deepEqual(await promisify(health.check.bind(health))({}), { status: "SERVING" });
client.close();
health.close();
console.log("a gateway");
