/** Stores, fleets of a function, tokens of MCP servers, contexts and dispatchers. */

import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { McpServer as ReferenceServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import {
  ConfigError,
  connect,
  DispatchError,
  Fleet,
  type Manager,
  McpServer,
  type PendingCall,
  Refused,
  restore,
  Site,
  type Store,
  StoreError,
  type Thread,
  Tools,
  type ToolResult,
} from "caproot";
import { callProcess, serveDemo, watchWarnings } from "./support.ts";

const anyObject = { type: "object" } as const;

/** Store in memory. */
class MemoryStore implements Store {
  readonly saved = new Map<string, string>();
  isBroken = false;

  async put(id: string, saved: string): Promise<void> {
    if (this.isBroken) throw new Error("the disk is full");
    this.saved.set(id, saved);
  }

  get(id: string): string | undefined {
    return this.saved.get(id);
  }

  delete(id: string): void {
    this.saved.delete(id);
  }
}

/** Manager and thread in memory. */
class Platform implements Manager, Thread {
  readonly pending = new Map<string, PendingCall>();
  readonly answers = new Map<string, ToolResult>();
  readonly turns: unknown[] = [];
  isBroken = false;

  add(requestId: string, tool: string, args: unknown, sessionId = "thread-1"): PendingCall {
    const call = { requestId, sessionId, tool, arguments: args };
    this.pending.set(requestId, call);
    return call;
  }

  async listPending(token: string | undefined) {
    if (this.isBroken) throw new Error("the platform is down");
    const calls = [...this.pending.values()];
    const after = Number(token ?? 0) + 2;
    return { calls: calls.slice(after - 2, after), nextToken: after < calls.length ? String(after) : null };
  }

  submitResult(requestId: string, result: ToolResult) {
    if (!this.pending.delete(requestId)) return "notFound" as const;
    this.answers.set(requestId, result);
    return undefined;
  }

  sendTurn(turn: unknown): void {
    if (this.isBroken) throw new Error("the platform is down");
    this.turns.push(turn);
    this.add("turn", "count", { text: "a b" });
  }

  status(): string {
    return this.answers.has("turn") ? "completed" : "running";
  }
}

/** Tools with one that counts words. `runs` has the counted texts. */
function countTools(runs: string[] = []): Tools {
  const tools = new Tools();
  tools.tool({ name: "count", description: "Counts words.", inputSchema: anyObject }, ({ text }) => {
    runs.push(String(text));
    return String(text).split(/\s+/).filter(Boolean).length;
  });
  return tools;
}

test("a store keeps sessions", async (t) => {
  const { address } = await serveDemo(t);
  const store = new MemoryStore();
  const skills = await connect(address, { store, id: "kept", choice: { include: ["name:triage-logs"] } });
  await Promise.all([skills.persist(), skills.persist()]);
  const fork = await skills.fork();
  await fork.persist();
  assert.deepEqual([...store.saved.keys()].sort(), ["kept", fork.id].sort());
  store.isBroken = true;
  await assert.rejects(skills.persist(), (error) => error instanceof StoreError && /the disk is full/.test(error.message));
  store.isBroken = false;
  await skills.persist();
  await skills.close();
  await assert.rejects(skills.persist(), (error) => error instanceof Refused && error.code === "SESSION_CLOSED");
  await fork.close({ delete: true });
  assert.deepEqual([...store.saved.keys()], ["kept"]);

  const restored = await restore("kept", { address, store });
  assert.equal((await restored.list()).length, 1);
  await restored.close({ delete: true });
  await assert.rejects(restore("kept", { address, store }), StoreError);
  const without = await connect(address);
  await assert.rejects(without.persist(), StoreError);
  await without.close();
});

test("a function finds executors before each connection", async (t) => {
  const { address } = await serveDemo(t);
  const messages = watchWarnings(t);
  const asked: string[] = [];
  let token = 0;
  const fleet = Fleet.find((environmentId) => {
    asked.push(environmentId);
    if (environmentId === "broken") throw new Error("the registry is down");
    return environmentId === "local" ? { address, token: () => `t-${(token += 1)}` } : undefined;
  }, ["local"]);
  const skills = await connect({ fleet });
  t.after(() => skills.close());
  assert.equal((await skills.list()).length, 3);
  assert.ok(asked.length > 0 && asked.every((id) => id === "local"), asked.join());
  assert.ok(token > 0);
  assert.ok(!readFileSync(`/proc/${callProcess()}/cmdline`, "utf8").includes("t-1"));

  const root = (environmentId: string) => ({ id: environmentId, location: { type: "environment", environmentId, path: "published:demo" } });
  const other = await connect({ fleet, roots: [root("local"), root("none"), root("broken")], startTimeout: 1 });
  t.after(() => other.close());
  const states = new Map((await other.executors()).map(({ environmentId, reason }) => [environmentId, reason ?? "live"]));
  assert.equal(states.get("local"), "live");
  assert.match(states.get("none") ?? "", /no executor is known/);
  assert.match(states.get("broken") ?? "", /failed; see its log/);
  assert.ok(messages.some((message) => message.includes("the registry is down")), String(messages));
});

test("a mistake in a found executor is a reason", async () => {
  const fleet = Fleet.find(() => ({ address: "nowhere" }), ["a"]);
  await assert.rejects(connect({ fleet, startTimeout: 1 }), (error) => {
    assert.ok(error instanceof Refused && error.code === "EXECUTOR_UNAVAILABLE", String(error));
    assert.match(error.message, /the scheme is missing/);
    return true;
  });
  const both = Fleet.find(() => ({ address: "unix:/x", cert: "c" }), ["a"]);
  await assert.rejects(connect({ fleet: both, startTimeout: 1 }), /`cert` and `key` belong together/);
});

/** Serves MCP with one skill to requests that have the token. */
async function serveMcp(isAllowed: (token: string) => boolean): Promise<{ url: string; server: Server }> {
  const server = createServer(async (request: IncomingMessage, response) => {
    if (!isAllowed(request.headers.authorization ?? "")) {
      response.writeHead(401, { "WWW-Authenticate": "Bearer" }).end();
      return;
    }
    const mcp = new ReferenceServer({ name: "docs", version: "1" });
    const skill = "---\nname: remote\ndescription: Is remote.\n---\nThe text.\n";
    const hash = `sha256:${createHash("sha256").update(skill).digest("hex")}`;
    const manifest = { files: [{ path: "SKILL.md", size: Buffer.byteLength(skill), hash }] };
    const text = (uri: URL, body: string) => ({ contents: [{ uri: uri.href, text: body }] });
    mcp.registerResource("manifest", "skill://docs/remote/_manifest", {}, (uri) => text(uri, JSON.stringify(manifest)));
    mcp.registerResource("remote", "skill://docs/remote/SKILL.md", { description: "Is remote." }, (uri) => text(uri, skill));
    const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
    await mcp.connect(transport as Parameters<typeof mcp.connect>[0]);
    await transport.handleRequest(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, server };
}

test("an MCP server gets a token that is in no argument and no variable", async (t) => {
  let allowed = "first";
  const { url, server } = await serveMcp((header) => header === `Bearer ${allowed}`);
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  let calls = 0;
  const token = async () => {
    calls += 1;
    return allowed;
  };
  const skills = await connect({ sources: [new McpServer("docs", { url, token })] });
  t.after(() => skills.close());
  assert.deepEqual((await skills.list()).map(({ name }) => name), ["remote"]);
  assert.equal(calls, 1);
  // The server rejects the token, and the function is called again.
  allowed = "second";
  assert.match(await skills.read("remote"), /The text/);
  assert.equal(calls, 2);

  const pid = callProcess();
  for (const file of ["cmdline", "environ"]) assert.doesNotMatch(readFileSync(`/proc/${pid}/${file}`, "utf8"), /first|second/);
  const fixed = await connect({ sources: [new McpServer("docs", { url, token: "second" })] });
  assert.equal((await fixed.list()).length, 1);
  await fixed.close();
  assert.throws(() => new McpServer("docs", { command: "x", token: "t" }), ConfigError);
  assert.throws(() => new McpServer("docs", { url, token: "t", tokenFile: "f" }), ConfigError);
});

test("the error of a token is a warning of the process, and not for the model", async (t) => {
  const { url, server } = await serveMcp(() => true);
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const token = () => {
    throw new Error("the vault is sealed");
  };
  const messages = watchWarnings(t);
  const skills = await connect({ sources: [new McpServer("docs", { url, token })], startTimeout: 1 });
  t.after(() => skills.close());
  assert.deepEqual(await skills.list(), []);
  assert.ok(messages.includes("the function of a token failed: the vault is sealed"), messages.join());
  const { warnings } = await skills.instructionText();
  assert.match(warnings.join(), /the token function of the program failed/);
  assert.doesNotMatch(warnings.join(), /the vault is sealed/);
});

test("own tools run in the context of their caller", async (t) => {
  const { address } = await serveDemo(t);
  const storage = new AsyncLocalStorage<string>();
  const tools = new Tools();
  tools.tool({ name: "whoami", description: "Returns the user.", inputSchema: anyObject }, async () => {
    await new Promise((resolve) => setImmediate(resolve));
    return storage.getStore() ?? null;
  });
  const skills = await connect(address, { tools });
  t.after(() => skills.close());
  const users = Array.from({ length: 20 }, (_, index) => `user-${index}`);
  const results = await Promise.all(users.map((user) => storage.run(user, () => skills.call("whoami"))));
  assert.deepEqual(results.map((result) => result.json().result), users);
  assert.equal((await skills.call("whoami")).json().result, null);
});

test("pending calls are answered", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address, { tools: countTools() });
  t.after(() => skills.close());
  const platform = new Platform();
  for (let number = 0; number < 5; number += 1) platform.add(`call-${number}`, "count", { text: "a ".repeat(number) });
  platform.add("list", "skills_list", {});
  platform.add("unknown", "none", {});
  platform.add("other", "count", { text: "" }, "thread-2");
  const dispatcher = await skills.dispatcher("thread-1", platform);
  const drained = await dispatcher.drain();
  assert.deepEqual({ ...drained, failures: drained.failures.length }, { accepted: 7, notFound: 0, alreadyAnswered: 0, failed: 0, failures: 0, unread: 0, complete: true });
  assert.deepEqual([...platform.pending.keys()], ["other"]);
  assert.deepEqual(platform.answers.get("call-3")?.json(), { result: 3 });
  assert.equal(platform.answers.get("list")?.external, true);
  assert.equal(platform.answers.get("unknown")?.ok, false);

  platform.isBroken = true;
  await assert.rejects(dispatcher.drain(), (error) => error instanceof DispatchError && /the platform is down/.test(error.message));
  await dispatcher.close();
  await assert.rejects(dispatcher.drain(), DispatchError);
});

test("a pushed call is answered once", async (t) => {
  const { address } = await serveDemo(t);
  const runs: string[] = [];
  const skills = await connect(address, { tools: countTools(runs) });
  t.after(() => skills.close());
  const platform = new Platform();
  const dispatcher = await skills.dispatcher("thread-1", platform);
  const call = platform.add("one", "count", { text: "a" });
  const { outcome, record } = await dispatcher.dispatch(call);
  assert.deepEqual([outcome, record?.success, record?.requestId], ["accepted", true, "one"]);
  assert.equal((await dispatcher.dispatch(call)).outcome, "alreadyKnown");
  assert.equal((await dispatcher.dispatch({ ...call, sessionId: "x" })).outcome, "ignored");
  assert.equal((await dispatcher.dispatch({ ...call, requestId: "gone" })).outcome, "notFound");
  // The call that is gone ran, too.
  assert.deepEqual(runs, ["a", "a"]);
  await assert.rejects(dispatcher.drain(), DispatchError);
  await assert.rejects(dispatcher.dispatch({ ...call, requestId: "" }), /invalid request id/);
});

test("a turn runs to its end", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address, { tools: countTools() });
  t.after(() => skills.close());
  const platform = new Platform();
  const dispatcher = await skills.dispatcher("thread-1", platform, { thread: platform });
  const turn = await dispatcher.runTurn({ input: "hi" }, ["completed", "failed"]);
  assert.equal(turn.status, "completed");
  assert.equal(turn.drained.accepted, 1);
  assert.deepEqual(platform.turns, [{ input: "hi" }]);
  assert.equal((await dispatcher.runTurn(undefined, ["completed"])).status, "completed");
  await assert.rejects(dispatcher.runTurn({}, []), (error) => error instanceof DispatchError && /no terminal status/.test(error.message));
  platform.isBroken = true;
  await assert.rejects(dispatcher.runTurn({}, ["completed"]), (error) => error instanceof DispatchError && /the platform is down/.test(error.message));

  const still = new Platform();
  const slow = await skills.dispatcher("thread-1", still, { thread: { sendTurn() {}, status: () => "running" }, turnTimeout: 0.2 });
  await assert.rejects(slow.runTurn({}, ["completed"]), /no status/);
  const without = await skills.dispatcher("thread-1", still);
  await assert.rejects(without.runTurn({}, ["completed"]), ConfigError);
  await assert.rejects(skills.dispatcher("t", still, { maxInFlight: 0, turnTimeout: -1 }), (error) => {
    assert.ok(error instanceof ConfigError && error.mistakes.length === 2, String(error));
    return true;
  });
});

test("a dispatcher ends with its session and its program", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address, { tools: countTools() });
  t.after(() => skills.close());
  const first = await skills.dispatcher("thread-1", new Platform());
  process.kill(callProcess(), "SIGKILL");
  await assert.rejects(first.drain());
  await assert.rejects(first.drain(), DispatchError);
  await first.close();
  const second = await skills.dispatcher("thread-1", new Platform());
  assert.equal((await second.drain()).complete, true);
  await skills.close();
  await assert.rejects(second.drain(), DispatchError);
});

test("a request over the limit of a line is refused", async (t) => {
  const { address } = await serveDemo(t);
  const large = "x".repeat(6 << 20);
  const tools = new Tools();
  tools.tool({ name: "large", description: "Returns much.", inputSchema: anyObject }, () => large);
  const skills = await connect(address, { tools });
  t.after(() => skills.close());
  await assert.rejects(skills.call("skills_list", { cursor: large }), (error) => error instanceof Refused && error.code === "TOO_LARGE");
  assert.equal((await skills.call("large")).ok, false);
  assert.equal((await skills.list()).length, 3);
});

test("unknown options are refused with the nearest name", async (t) => {
  const { address } = await serveDemo(t);
  const mistakesOf = async (run: () => unknown): Promise<readonly string[]> => {
    try {
      await run();
    } catch (error) {
      assert.ok(error instanceof ConfigError, String(error));
      return error.mistakes;
    }
    return assert.fail("no error");
  };
  const odd = (options: object) => options as never;
  const skills = await connect(address);
  t.after(() => skills.close());
  const manager = new Platform();
  for (const [run, expected] of [
    [() => connect(address, odd({ choice: { inclde: ["name:triage-logs"] } })), "choice: unknown option `inclde`; did you mean `include`?"],
    [() => connect(address, odd({ choice: { name_only: [] } })), "choice: unknown option `name_only`; did you mean `nameOnly`?"],
    [() => connect(address, odd({ startTimeot: 1 })), "options: unknown option `startTimeot`; did you mean `startTimeout`?"],
    [() => connect(odd({ adress: address })), "options: unknown option `adress`; did you mean `address`?"],
    [() => connect({ fleet: { local: odd({ address, tokn: "x" }) } }), "executor: unknown option `tokn`; did you mean `token`?"],
    [() => connect(address, { pluginServers: odd({ name: [] }) }), "pluginServers: unknown option `name`; did you mean `names`?"],
    [() => restore("{}", odd({ address, gracePeriods: 1 })), "options: unknown option `gracePeriods`; did you mean `gracePeriod`?"],
    [() => skills.fork(odd({ exlude: [] })), "options: unknown option `exlude`; did you mean `exclude`?"],
    [() => skills.inject("", odd({ mention: [] })), "options: unknown option `mention`; did you mean `mentions`?"],
    [() => skills.dispatcher("t", manager, odd({ maxInFlights: 1 })), "options: unknown option `maxInFlights`; did you mean `maxInFlight`?"],
    [() => new McpServer("docs", odd({ url: "http://127.0.0.1", header: {} })), 'the MCP server "docs": unknown option `header`; did you mean `headers`?'],
    [() => new Site("docs.example", odd({ allowPrivat: true })), 'the site "docs.example": unknown option `allowPrivat`; did you mean `allowPrivate`?'],
    [() => new Tools().tool(odd({ name: "a", description: "b", inputSchema: {}, timelimit: 1 }), () => 1), "the tool: unknown option `timelimit`; did you mean `timeLimit`?"],
  ] as [() => unknown, string][]) {
    assert.deepEqual(await mistakesOf(run), [expected]);
  }
  const [far] = await mistakesOf(() => connect(address, odd({ choice: { everything: true } })));
  assert.equal(far, "choice: unknown option `everything`; expected one of include, exclude, pin, nameOnly, manual, enable");
});

test("a wrong address is a ConfigError", async () => {
  for (const address of ["nowhere", "tcp:nowhere", "ftp://127.0.0.1:1"]) {
    await assert.rejects(connect(address), (error) => {
      assert.ok(error instanceof ConfigError, String(error));
      return /^address: invalid value /.test(error.mistakes[0] ?? "") && error.mistakes[0]?.includes(address);
    });
    await assert.rejects(connect({ fleet: { local: address } }), ConfigError);
  }
});
