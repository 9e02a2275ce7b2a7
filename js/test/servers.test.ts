import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { type AuthorizationRequest, ConfigError, connect, LocalSkills, type ServerValueRequest } from "caproot";
import { makeDirectory, watchWarnings } from "./support.ts";

interface Message {
  id?: number;
  method: string;
  params: { name: string; arguments: object };
}

const results: Record<string, (message: Message) => object> = {
  "server/discover": () => ({
    supportedVersions: ["2026-07-28"],
    capabilities: { tools: {} },
    _meta: { "io.modelcontextprotocol/serverInfo": { name: "tools", version: "1" } },
  }),
  "tools/list": () => ({
    tools: ["echo", "picture"].map((name) => ({ name, description: name, inputSchema: { type: "object" } })),
  }),
  "tools/call": ({ params }) => ({
    content: [
      params.name === "echo"
        ? { type: "text", text: JSON.stringify(params.arguments) }
        : { type: "image", mimeType: "image/png", data: "AAEC" },
    ],
    isError: false,
  }),
};

const METADATA = "https://tracker.example/.well-known/oauth-protected-resource";

/** Serves two tools over HTTP until the test ends; with `accepted`, another `Authorization` gets 401. Returns the origin
 * and the headers `Authorization`. */
async function serveTools(t: TestContext, accepted?: string): Promise<{ origin: string; seen: (string | undefined)[] }> {
  const seen: (string | undefined)[] = [];
  const server = createServer(async (request, response) => {
    if (request.method !== "POST") {
      response.writeHead(405).end();
      return;
    }
    seen.push(request.headers.authorization);
    const message = (await json(request)) as Message;
    if (accepted !== undefined && request.headers.authorization !== accepted) {
      response.writeHead(401, { "www-authenticate": `Bearer resource_metadata="${METADATA}", scope="read write"` }).end();
      return;
    }
    if (message.id === undefined) {
      response.writeHead(202).end();
      return;
    }
    const result = { resultType: "complete", ttlMs: 0, cacheScope: "private", ...results[message.method]?.(message) };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ jsonrpc: "2.0", id: message.id, result }));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  t.after(() => server.close());
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

/** Returns a directory with the plugin `kit` and its server `web`. */
function writePlugin(t: TestContext, origin: string, headers = { Authorization: "Bearer ${KIT_TOKEN}" } as object): string {
  const directory = makeDirectory(t);
  const manifest = { name: "kit", mcpServers: { web: { url: `${origin}/mcp`, headers } } };
  mkdirSync(join(directory, "kit/.codex-plugin"), { recursive: true });
  writeFileSync(join(directory, "kit/.codex-plugin/plugin.json"), JSON.stringify(manifest));
  return directory;
}

test("a session has the tools of a plugin's server", async (t) => {
  const { origin, seen } = await serveTools(t);
  const directory = writePlugin(t, origin);
  const asked: ServerValueRequest[] = [];
  const skills = await connect({
    sources: [new LocalSkills({ mine: directory })],
    pluginServers: {
      names: ["skill://mine/kit#web"],
      privateOrigins: [origin],
      value: (request) => {
        asked.push(request);
        return "secret";
      },
    },
  });
  t.after(() => skills.close());

  const names = skills.tools.map(({ name }) => name);
  assert.ok(names.includes("mcp__kit__web_echo") && names.includes("mcp__kit__web_picture"), String(names));
  const echoed = await skills.call("mcp__kit__web_echo", { text: "hello" });
  assert.deepEqual([echoed.ok, echoed.external, echoed.json().contents], [true, true, '{"text":"hello"}']);
  assert.deepEqual(echoed.images, []);

  const picture = await skills.call("mcp__kit__web_picture", {});
  assert.deepEqual(picture.json().media, [{ type: "image/png", bytes: 3 }]);
  assert.deepEqual(picture.images, [{ mimeType: "image/png", data: Buffer.from([0, 1, 2]) }]);

  assert.deepEqual(asked.map(({ origin, name, plugin, server }) => [origin, name, plugin, server]), [
    [origin, "KIT_TOKEN", "kit", "web"],
  ]);
  assert.ok(seen.length > 0 && seen.every((value) => value === "Bearer secret"), String(seen));
});

test("the tools of an authorized server are a change", async (t) => {
  const { origin, seen } = await serveTools(t, "Bearer t1");
  const asked: AuthorizationRequest[] = [];
  const answers = [() => Promise.reject(new Error("no login")), () => "Bearer t1"];
  const messages = watchWarnings(t);
  const skills = await connect({
    sources: [new LocalSkills({ mine: writePlugin(t, origin, {}) })],
    pluginServers: { privateOrigins: [origin] },
    authorize: (request) => {
      asked.push(request);
      return answers.shift()?.();
    },
  });
  t.after(() => skills.close());
  const hasEcho = () => skills.tools.some(({ name }) => name === "mcp__kit__web_echo");
  const changes = skills.changes();
  const error = async () => (await skills.retryServers())[0]?.error ?? "";
  assert.equal(hasEcho(), false);
  while (!messages.includes("the function of a credential failed: no login")) await changes.next();

  // The function is asked again when the program says so. The failure may reach the session after the first try.
  let shown = await error();
  while (shown.includes("failed")) shown = await error();
  assert.match(shown, /has not answered yet|^$/);
  while (!hasEcho()) await changes.next();
  const echoed = await skills.call("mcp__kit__web_echo", {});
  assert.equal(echoed.ok, true, echoed.text);
  assert.deepEqual(
    asked.map(({ plugin, server, origin, resourceMetadata, scopes }) => [plugin, server, origin, resourceMetadata, scopes]),
    Array(2).fill(["kit", "web", origin, METADATA, ["read", "write"]]),
  );
  assert.equal(seen.at(-1), "Bearer t1");
});

test("a session has no servers and no secrets by default", async (t) => {
  const { origin, seen } = await serveTools(t);
  const source = new LocalSkills({ mine: writePlugin(t, origin) });
  const none = await connect({ sources: [source] });
  t.after(() => none.close());
  assert.deepEqual(none.tools.filter(({ name }) => name.startsWith("mcp__")), []);
  assert.deepEqual(seen, []);

  // The origin is private, and no flag allows it.
  const refused = await connect({ sources: [source], pluginServers: {} });
  t.after(() => refused.close());
  assert.deepEqual(seen, []);
  assert.match(refused.warnings.join("\n"), /its URL must use https/);

  const messages = watchWarnings(t);
  const value = () => {
    throw new Error("the vault is sealed");
  };
  const failed = await connect({ sources: [source], pluginServers: { privateOrigins: [origin], value } });
  t.after(() => failed.close());
  assert.ok(messages.includes("the function of a value failed: the vault is sealed"), messages.join());
  assert.doesNotMatch(failed.warnings.join(), /the vault is sealed/);

  const invalid = connect({ sources: [source], pluginServers: { privateOrigins: ["no origin"] } });
  await assert.rejects(invalid, ConfigError);
});
