import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import { serveDemo, writeSkill } from "./support.ts";

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
    { method: "metrics" },
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
