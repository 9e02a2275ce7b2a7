import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { ConfigError, type ConnectOptions, connect, Refused } from "caproot";
import { makeDirectory, serveDemo, writeSkill } from "./support.ts";

/** Serves the demo skills, which a lock approves, and another skill. */
async function serveLocked(t: TestContext): Promise<{ address: string; root: string; lock: string }> {
  const { address, root } = await serveDemo(t);
  const lock = join(makeDirectory(t), "caproot.lock");
  execFileSync("caproot", ["lock", root, "--out", lock], { stdio: "pipe" });
  writeSkill(root, "other", "Is not approved.");
  return { address, root, lock };
}

test("a session has only approved skills", async (t) => {
  const { address, lock } = await serveLocked(t);
  const skills = await connect(address, { lock });
  t.after(() => skills.close());
  const names = (await skills.list()).map(({ name }) => name);
  assert.ok(names.includes("triage-logs") && !names.includes("other"), String(names));
  assert.ok(!skills.text.includes("other:"));
  assert.match(await skills.read("triage-logs"), /^---\n/);
  await assert.rejects(skills.read("other"), (error) => error instanceof Refused && error.code === "PACKAGE_NOT_FOUND");
});

test("an invalid lock is a configuration error", async (t) => {
  const { address, root, lock } = await serveLocked(t);
  const mistakes: [ConnectOptions, RegExp][] = [
    [{ lock: join(root, "none") }, /none/],
    [{ lock: join(root, "triage-logs/SKILL.md") }, /SKILL\.md/],
    [{ lock, signers: lock }, /PRINCIPALS/],
    [{ signers: lock }, /lock/],
  ];
  for (const [options, message] of mistakes) {
    await assert.rejects(connect(address, options), (error) => error instanceof ConfigError && message.test(error.message));
  }
});
