import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { connect, Fleet, ProgramError, Tools } from "caproot";
import { callProcess, childrenOf, replaceProgram, serveDemo, writeSkill } from "./support.ts";

const hello = '{"id":1,"result":{"version":"0.1.0","session":null,"maxInFlight":256,"maxLineBytes":5242880}}';

function isProgramError(pattern: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof ProgramError, String(error));
    assert.match(error.message, pattern);
    return true;
  };
}

const programs: [string, string, RegExp][] = [
  ["has another version", 'read line; echo \'{"id":1,"result":{"version":"9.9.9"}}\'; cat >/dev/null', /wrong version: found 9\.9\.9/],
  ["is older", 'if [ "$1" = --version ]; then echo "caproot 0.0.9"; else echo "unexpected argument" >&2; exit 2; fi', /wrong version: found 0\.0\.9/],
  ["knows no hello", 'read line; echo \'{"id":1,"error":{"code":"BAD_REQUEST","message":"unknown method"}}\'; cat >/dev/null', /wrong version: found an older/],
  ["writes no JSON", "read line; echo 'Hello!'; cat >/dev/null", /no JSON object: Hello!/],
  ["writes an array", "read line; echo '[1'; cat >/dev/null", /no JSON object/],
  ["writes an endless line", `head -c 140000000 /dev/zero | tr '\\0' x; cat >/dev/null`, /a line over 134217728 bytes/],
  ["ends at once", "echo 'cannot start: no memory' >&2; exit 7", /exit code 7: cannot start: no memory/],
  ["is killed", "kill -9 $$", /ended with SIGKILL/],
  ["is silent", "exec sleep 100", /did not answer within/],
  ["is silent after the start", `read line; echo '${hello}'; exec sleep 100`, /did not answer within/],
  ["closes its output", "exec >&-; exec 2>&-; exec sleep 100", /did not answer within/],
];

for (const [words, script, pattern] of programs) {
  test(`a program that ${words} is an error`, { timeout: 30_000 }, async (t) => {
    replaceProgram(t, script);
    await assert.rejects(connect({ programTimeout: 0.4, startTimeout: 0.1 }), isProgramError(pattern));
    assert.deepEqual(childrenOf(), []);
  });
}

test("a call fails with its program, and the next call restores the session", async (t) => {
  const { address } = await serveDemo(t);
  const tools = new Tools();
  tools.tool({ name: "die", description: "Kills the program.", inputSchema: { type: "object" } }, () => {
    process.kill(callProcess(), "SIGKILL");
    return new Promise(() => {});
  });
  tools.tool({ name: "one", description: "Returns 1.", inputSchema: { type: "object" } }, () => 1);
  const skills = await connect(address, { tools, id: "kept", choice: { exclude: ["name:triage-logs"] } });
  t.after(() => skills.close());
  const fork = await skills.fork();
  t.after(() => fork.close());

  const calls = await Promise.allSettled([skills.call("die"), skills.list()]);
  assert.equal(calls[0].status, "rejected");
  assert.ok(isProgramError(/ended with SIGKILL/)(calls[0].reason));
  for (const session of [fork, skills]) {
    assert.equal((await session.list()).length, 2);
    assert.equal((await session.call("one")).text, '{"result":1}');
  }
  assert.equal(skills.id, "kept");
  assert.equal(childrenOf().filter(({ command }) => command.includes(" call ")).length, 1);
});

test("an iteration goes on with a new program", async (t) => {
  const { address, root } = await serveDemo(t);
  const skills = await connect(address);
  t.after(() => skills.close());
  const changes = skills.changes();
  await new Promise((resolve) => setTimeout(resolve, 1100));
  process.kill(callProcess(), "SIGKILL");
  assert.deepEqual((await changes.next()).value, { kind: "executor", id: "local" });
  writeSkill(root, "later", "Comes later.");
  while (!skills.text.includes("- later")) await changes.next();
  await changes.return?.();
});

test("a stopped program is killed", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address, { programTimeout: 0.5 });
  t.after(() => skills.close());
  process.kill(callProcess(), "SIGSTOP");
  const calls = await Promise.allSettled(Array.from({ length: 600 }, () => skills.list()));
  for (const call of calls) {
    assert.equal(call.status, "rejected");
    assert.ok(isProgramError(/did not answer within 0\.5 s/)(call.reason));
  }
  assert.equal((await skills.list()).length, 3);
});

test("a stopped program does not stop close", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address, { programTimeout: 0.5 });
  process.kill(callProcess(), "SIGSTOP");
  await skills.close();
  assert.equal(childrenOf().filter(({ command }) => command.includes(" call ")).length, 0);
});

test("1,000 sessions leave no descriptor and no child", async (t) => {
  const { address } = await serveDemo(t);
  const count = () => ({ descriptors: readdirSync("/proc/self/fd").length, children: childrenOf().length });
  const first = await connect(address);
  await first.close();
  const before = count();
  const fleet = new Fleet({ local: address });
  // Most sessions share programs; each hundredth has its own.
  for (let round = 0; round < 10; round += 1) {
    const opened = await Promise.all(Array.from({ length: 99 }, () => connect({ fleet })));
    opened.push(await connect(address));
    for (const session of opened) assert.equal((await session.executors()).length, 1);
    await Promise.all(opened.map((session) => session.close()));
  }
  const after = count();
  assert.equal(after.children, before.children);
  assert.ok(after.descriptors <= before.descriptors, `${after.descriptors} descriptors, before ${before.descriptors}`);
});

test("the command of the package names a missing program", () => {
  const command = join(import.meta.dirname, "../bin/caproot.js");
  const ran = spawnSync(process.execPath, [command, "--version"], { env: { PATH: "/nonexistent" }, encoding: "utf8" });
  assert.equal(ran.status, 127);
  assert.match(ran.stderr, /^caproot: the program caproot is missing: install the package caproot-linux-/);
});
