import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import { isWriting, memoryOf, serveDemo, writeSkill } from "./support.ts";

const schemas = new Ajv2020({ strict: false, validateFormats: false });
function readSchema(name: string): Record<string, unknown> {
  return JSON.parse(readFileSync(join(import.meta.dirname, `../schema/${name}.json`), "utf8")) as Record<string, unknown>;
}
const isRequest = schemas.compile(readSchema("request"));
const isAnswer = schemas.compile(readSchema("answer"));
const isEvent = schemas.compile(readSchema("event"));
const answer = readSchema("answer");

/** Returns the check of the results of a method. */
function resultCheck(method: string): (value: unknown) => boolean {
  const schema = { $ref: `#/$defs/ResultsByMethod/properties/${method}`, $defs: answer.$defs };
  return schemas.compile(schema);
}

test("each line has the schema that the package ships", async (t) => {
  const { address, root } = await serveDemo(t);
  const child = spawn("caproot", ["call", "--plugins", "--events", "--endpoint", address], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => child.kill());
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => JSON.parse((await lines.next()).value as string) as Record<string, unknown>;
  const send = (request: object) => child.stdin.write(`${JSON.stringify(request)}\n`);

  const tool = { name: "one", description: "Returns 1.", inputSchema: { type: "object" }, timeLimit: "1m" };
  const requests: Record<string, unknown>[] = [
    { method: "hello" },
    { method: "start", session_id: "s", tools: [tool], start_timeout: "1s", include: ["name:triage-logs"] },
    { method: "list" },
    { method: "read", skill: "triage-logs", path: "references/patterns.md" },
    { method: "tools" },
    { method: "call", tool: "skills_list", arguments: {} },
    { method: "instructions", budget: 100 },
    { method: "instructions", known: "none" },
    { method: "watch", session: "s" },
    { method: "inject", text: "use $triage-logs $none", mentions: [{ name: "x" }] },
    { method: "used_skills" },
    { method: "reinject", budget: 8000 },
    { method: "state" },
    { method: "source_states" },
    { method: "plugins" },
    { method: "tool_result", call: 1, result: null },
    { method: "cancel", request: 1 },
    { method: "save" },
    { method: "changes" },
    { method: "fork", roots: ["demo"] },
    { method: "close" },
  ];
  let saved: unknown;
  for (const request of requests) {
    send({ id: 1, ...request });
    assert.ok(isRequest({ id: 1, ...request }), `${request.method}: ${JSON.stringify(isRequest.errors)}`);
    let line = await next();
    while (line.event !== undefined) line = await next();
    assert.ok(isAnswer(line), `${request.method}: ${JSON.stringify(isAnswer.errors)}`);
    assert.ok(resultCheck(request.method as string)(line.result), `${request.method}: ${JSON.stringify(line)}`);
    if (request.method === "save") saved = line.result;
  }

  // The first session is closed, so that its id is free.
  send({ id: 2, method: "call", tool: "one", arguments: {}, session: "s" });
  const called = await next();
  assert.equal(called.event, "tool");
  assert.ok(isEvent(called), JSON.stringify(isEvent.errors));
  send({ id: 3, method: "cancel", request: 2 });
  const three = [await next(), await next(), await next()];
  assert.ok(three.every((line) => (line.event === undefined ? isAnswer(line) : isEvent(line))), JSON.stringify(three));
  assert.deepEqual(three.map((line) => line.event ?? line.id).sort(), [2, 3, "toolCancelled"]);
  writeSkill(root, "new", "Is new.");
  const changed = await next();
  assert.equal(changed.event, "changed");
  assert.ok(isEvent(changed), JSON.stringify(isEvent.errors));

  for (const wrong of [{ method: "none" }, { method: "read" }, { method: "tools", session: 1 }, {}]) {
    send({ id: 4, ...wrong });
    let line = await next();
    while (line.event !== undefined) line = await next();
    assert.ok(isAnswer(line) && line.error !== undefined, JSON.stringify(line));
    assert.equal(isRequest({ id: 4, ...wrong }), false, JSON.stringify(wrong));
  }
  assert.ok(saved);
});

test("a program that reads no answer bounds the memory of the other", async (t) => {
  const { address, root } = await serveDemo(t);
  writeFileSync(join(root, "triage-logs/large.txt"), `${"x".repeat(1023)}\n`.repeat(1024));
  const child = spawn("caproot", ["call", "--endpoint", address], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => child.kill());
  const { pid = 0 } = child;
  child.stdin.write('{"id":"first","method":"list"}\n');
  await once(child.stdout, "readable");
  assert.match(String(child.stdout.read()), /^\{"id":"first","result"/);
  const before = memoryOf(pid);

  // Nothing reads 2 GiB of answers.
  for (let id = 0; id < 2000; id += 1) {
    child.stdin.write(`${JSON.stringify({ id, method: "read", skill: "triage-logs", path: "large.txt" })}\n`);
  }
  for (let blocked = 0; blocked < 50; blocked = isWriting(pid) ? blocked + 1 : 0) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  const growth = memoryOf(pid) - before;
  assert.ok(growth < 96 << 20, `${growth >> 20} MiB more`);

  // The answers are still whole.
  const seen = new Set<string>();
  for await (const answer of createInterface({ input: child.stdout })) {
    const id = /^\{"id":(\d+),"result"/.exec(answer)?.[1];
    assert.ok(id, answer.slice(0, 200));
    assert.ok(answer.length > 1 << 20);
    seen.add(id);
    if (seen.size === 4) break;
  }
});

test("10,000 cancelled requests leave nothing", async (t) => {
  const { address } = await serveDemo(t);
  const child = spawn("caproot", ["call", "--no-session"], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => child.kill());
  const { pid = 0 } = child;
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => JSON.parse((await lines.next()).value as string) as { id?: string | number; event?: string; error?: { code: string } };
  const send = (request: object) => child.stdin.write(`${JSON.stringify(request)}\n`);
  const tool = { name: "wait", description: "Waits.", inputSchema: { type: "object" }, timeLimit: "10m" };
  const sources = { executors: { key: "e", from: { one: { endpoint: address } } } };
  send({ id: "s", method: "start", session_id: "s", tools: [tool], sources });
  await next();

  const batch = 100;
  let after = 0;
  for (let first = 0; first < 10_000; first += batch) {
    for (let id = first; id < first + batch; id += 1) send({ id, method: "call", session: "s", tool: "wait", arguments: {} });
    for (let id = first; id < first + batch; id += 1) send({ id: `c${id}`, method: "cancel", request: id });
    const cancelled = new Set<string | number>();
    while (cancelled.size < 2 * batch) {
      const { id, event, error } = await next();
      if (event !== undefined) continue;
      assert.ok(id !== undefined);
      if (typeof id === "number") assert.equal(error?.code, "CANCELLED");
      cancelled.add(id);
    }
    if (first === 1000) after = memoryOf(pid);
  }
  const growth = memoryOf(pid) - after;
  assert.ok(growth < 16 << 20, `${growth >> 20} MiB more`);
  send({ id: "l", method: "list", session: "s" });
  let listed = await next();
  while (listed.event !== undefined) listed = await next();
  assert.deepEqual([listed.id, listed.error], ["l", undefined]);
});
