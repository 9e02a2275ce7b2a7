import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { ConfigError, type ConnectOptions, connect, Fleet, LocalSkills, Refused, restore, SealedError, type Session, Site, ToolError, Tools, ToolResult } from "caproot";
import { z } from "zod";
import { callProcess, childrenOf, demoTree, makeDirectory, replaceProgram, serveDemo, watchWarnings, writeSkill } from "./support.ts";

test("a session lists, reads and calls", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address);
  t.after(() => skills.close());
  assert.deepEqual(skills.tools.map(({ name }) => name), ["skills_list", "skills_read", "skills_search"]);
  assert.match(skills.text, /- triage-logs/);

  const listed = await skills.list();
  assert.deepEqual(listed.map(({ name }) => name), ["review-kit:review-diff", "triage-logs", "write-changelog"]);
  const [, triage] = listed;
  assert.ok(triage);
  const file = readFileSync(join(demoTree, "triage-logs/references/patterns.md"), "utf8");
  for (const skill of [triage, "triage-logs", triage.package]) {
    assert.equal(await skills.read(skill, "references/patterns.md"), file);
  }
  assert.equal(await skills.read(triage), readFileSync(join(demoTree, "triage-logs/SKILL.md"), "utf8"));
  await assert.rejects(skills.read("none"), (error) => error instanceof Refused && error.code === "PACKAGE_NOT_FOUND");

  const result = await skills.call("skills_read", { package: triage.package });
  assert.ok(result instanceof ToolResult && result.ok && result.external);
  assert.equal(Object.keys(result.json())[0], "resource");
  const found = await skills.call("skills_search", { query: "log triage errors", limit: 1 });
  assert.ok(found.ok && found.external);
  assert.equal((found.json() as { skills: { package: string }[] }).skills[0]?.package, triage.package);
  const failed = await skills.call("skills_read", '{"package":"skill://demo/none"}');
  assert.equal(failed.ok, false);
  assert.match(failed.text, /^\{"error":\{"code":"PACKAGE_NOT_FOUND"/);
  assert.equal((await skills.call("skills_list", "no JSON")).ok, false);

  const injected = await skills.inject("use $triage-logs and $HOME");
  const given = await skills.inject("$triage-logs", { arguments: "of today" });
  assert.match(given.fragments[0]?.text ?? "", /\n\nARGUMENTS: of today\n/);
  assert.deepEqual(injected.fragments.map(({ name }) => name), ["triage-logs"]);
  assert.equal((await skills.instructionText(100)).omitted, 3);
  const { id, kind } = await skills.instructionText();
  assert.equal(kind, "whole");
  assert.equal((await skills.instructionText(8000, id)).kind, "unchanged");
  assert.equal((await skills.instructionText(8000, "none")).reason, "no session returned such an id");
  const used = await skills.usedSkills();
  assert.equal(used[0]?.resource, `${triage.package}/SKILL.md`);
  assert.equal((await skills.reinject()).fragments[0]?.changed, false);
  assert.equal((await skills.reinject(0)).omitted.length, used.length);
  assert.equal((await skills.executors())[0]?.state, "live");
  assert.equal((await skills.sourceStates())[0]?.kind, "executor");
  assert.deepEqual(await skills.plugins(), []);
});

test("options change the skills, the text and the results of a session and its forks", async (t) => {
  const { address, root } = await serveDemo(t);
  writeSkill(root, "off", "Is off.\ndefault-enabled: false");
  writeSkill(root, "of-codex", "Is for Codex.");
  mkdirSync(join(root, "of-codex/agents"));
  writeFileSync(join(root, "of-codex/agents/openai.yaml"), "policy:\n  products: [codex]\n");
  writeFileSync(join(root, "off/long.md"), "line of text\n".repeat(2000));
  const namesOf = async (session: Session) => (await session.list()).map(({ name }) => name);
  const plain = await connect(address);
  t.after(() => plain.close());
  const options: ConnectOptions = { scripts: true, resultBytes: 65_536, choice: { enable: ["name:off"] } };
  const chosen = await connect(address, options);
  t.after(() => chosen.close());
  const forks = [await chosen.fork({ product: "chatgpt" }), await plain.fork({ enable: ["name:off"] })];
  t.after(() => Promise.all(forks.map((fork) => fork.close())));

  const listed = await Promise.all([plain, chosen, ...forks].map(namesOf));
  assert.deepEqual(listed.map((names) => names.includes("off")), [false, true, true, true]);
  assert.deepEqual(listed.map((names) => names.includes("of-codex")), [true, true, false, true]);
  assert.match(chosen.text, /`caproot exec /);
  assert.doesNotMatch(plain.text, /`caproot exec /);
  const read = { package: "skill://demo/off", resource: "skill://demo/off/long.md" };
  const [short, long] = await Promise.all([forks[1]?.call("skills_read", read), chosen.call("skills_read", read)]);
  assert.ok(short?.ok && short.text.length <= 8192 && short.json().truncated === true);
  assert.ok(long?.ok && long.text.length > 25_000);
});

test("plugins say what a host must be able to do", async (t) => {
  const { address, root } = await serveDemo(t);
  mkdirSync(join(root, "kit/.claude-plugin"), { recursive: true });
  const requires = { hostCapabilities: ["tray"] };
  writeFileSync(join(root, "kit/.claude-plugin/plugin.json"), JSON.stringify({ name: "kit", requires }));
  const skills = await connect(address, { plugins: true });
  t.after(() => skills.close());
  const changes = skills.pluginChanges();
  const messages = async () => (await skills.plugins()).map(({ plugin }) => plugin as Record<string, unknown>);
  const find = async () => (await messages()).find(({ name }) => name === "kit");
  while (!(await find())) await changes.next();
  assert.deepEqual((await find())?.hostCapabilities, ["tray"]);
});

test("a change renews the text", async (t) => {
  const { address, root } = await serveDemo(t);
  const skills = await connect(address);
  const changes = skills.changes();
  writeSkill(root, "new", "Is new.");
  for await (const change of changes) {
    assert.deepEqual(change, { kind: "executor", id: "local" });
    if (skills.text.includes("- new")) break;
  }
  assert.deepEqual((await changes.next()).done, true);

  // The iteration ends with the session.
  const more = skills.changes();
  const next = more.next();
  await skills.close();
  assert.equal((await next).done, true);
  assert.equal((await skills.changes().next()).done, true);
  await assert.rejects(skills.list(), (error) => error instanceof Refused && error.code === "SESSION_CLOSED");
  assert.equal(skills.isClosed, true);
});

test("own tools have a JSON Schema or a zod schema", async (t) => {
  const { address } = await serveDemo(t);
  const tools = new Tools();
  tools.tool(
    { name: "count", description: "Counts.", inputSchema: z.object({ text: z.string().min(1), step: z.number().default(2) }) },
    ({ text, step }) => text.split(" ").length * step,
  );
  const schema = { type: "object", properties: { kind: { type: "string" } } } as const;
  tools.tool({ name: "fail", namespace: "my", description: "Fails.", inputSchema: schema, external: true }, (args) => {
    if (args.kind === "words") throw new ToolError("the words");
    throw new Error("a secret");
  });
  let aborted: unknown;
  tools.tool({ name: "slow", description: "Is slow.", inputSchema: schema, timeLimit: 0.1 }, async (_, { signal }) => {
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    aborted = signal.reason;
  });
  tools.tool({ name: "bad", description: "Returns no JSON.", inputSchema: schema }, () => 1n);

  const warnings = watchWarnings(t);
  const skills = await connect(address, { tools });
  t.after(() => skills.close());
  assert.deepEqual(skills.tools.slice(3).map(({ name }) => name), ["count", "my_fail", "slow", "bad"]);
  assert.equal((await skills.call("count", { text: "a b" })).text, '{"result":4}');
  assert.match((await skills.call("count", { text: 1 })).text, /INVALID_ARGUMENTS/);
  const words = await skills.call("my_fail", { kind: "words" });
  assert.match(words.text, /the words/);
  assert.equal(words.external, true);
  for (const name of ["my_fail", "bad"]) {
    const { text } = await skills.call(name);
    assert.match(text, /TOOL_INTERNAL_ERROR/);
    assert.doesNotMatch(text, /secret/);
  }
  assert.match((await skills.call("slow")).text, /TOOL_TIMED_OUT/);
  while (!aborted) await new Promise((resolve) => setImmediate(resolve));
  assert.match(warnings.join(), /a secret/);

  assert.throws(() => tools.unregister("count"), SealedError);
  const copy = tools.copy();
  copy.unregister("count");
  assert.deepEqual(copy.names, ["my.fail", "slow", "bad"]);

  // A fork has the tools, also after the end of its session.
  const fork = await skills.fork({ roots: ["demo"] });
  await skills.close();
  assert.equal((await fork.call("count", { text: "a" })).text, '{"result":2}');
  await fork.close();
});

test("an aborted call is cancelled", async (t) => {
  const { address } = await serveDemo(t);
  const tools = new Tools();
  const signals: AbortSignal[] = [];
  tools.tool({ name: "wait", description: "Waits.", inputSchema: { type: "object" } }, (_, { signal }) => {
    signals.push(signal);
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
  });
  const skills = await connect(address, { tools });
  t.after(() => skills.close());

  const abort = new AbortController();
  const calls = Array.from({ length: 300 }, () => skills.call("wait", {}, { signal: abort.signal }));
  while (signals.length < 16) await new Promise((resolve) => setImmediate(resolve));
  abort.abort(new Error("no longer needed"));
  for (const outcome of await Promise.allSettled(calls)) {
    assert.match(String((outcome as PromiseRejectedResult).reason), /no longer needed/);
  }
  assert.equal((await skills.list()).length, 3);
  await assert.rejects(skills.call("wait", {}, { signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("a session is forked, saved and restored", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address, { choice: { include: ["name:triage-logs"] }, id: "thread-1" });
  const fork = await skills.fork();
  assert.equal((await fork.list()).length, 1);
  const narrower = await skills.fork({ exclude: ["name:triage-logs"] });
  assert.equal((await narrower.list()).length, 0);
  await narrower.close();
  await assert.rejects(skills.fork({ include: ["pdf"] }), ConfigError);
  await assert.rejects(skills.fork({ roots: ["none"] }), /none/);
  const saved = await skills.save();
  await skills.close();
  await fork.close();

  const restored = await restore(saved, { address });
  t.after(() => restored.close());
  assert.equal(restored.id, "thread-1");
  assert.equal((await restored.list()).length, 1);
  assert.deepEqual((await restored.changesSinceSave()).map(({ environmentId }) => environmentId), ["local"]);
  await assert.rejects(restore("{", { address }), ConfigError);
  await assert.rejects(restore("{}", { address }), ConfigError);
});

test("uses of skills are events, and a hidden skill can be named", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address);
  t.after(() => skills.close());
  const fork = await skills.fork({ manual: ["name:triage-logs"] });
  assert.equal((await fork.list()).length, (await skills.list()).length - 1);
  assert.ok(skills.text.includes("triage-logs") && !fork.text.includes("triage-logs"));

  const usage = fork.usage();
  await fork.inject("use $triage-logs");
  const { value } = await usage.next();
  assert.deepEqual([value.kind, value.name, value.session], ["injected", "triage-logs", fork.id]);
  assert.ok(value.digest.startsWith("sha256:"));
  await fork.close();
  assert.equal((await usage.next()).done, true);
});

test("sessions of a fleet share one program", async (t) => {
  const { address } = await serveDemo(t);
  const fleet = new Fleet({ local: address });
  const sessions = await Promise.all(Array.from({ length: 20 }, () => connect({ fleet })));
  const programs = () => childrenOf().filter(({ command }) => command.includes(" call "));
  assert.equal(programs().length, 1);
  assert.equal(new Set(sessions.map(({ id }) => id)).size, 20);
  const roots = [{ id: "demo", location: { type: "environment", environmentId: "local", path: "published:demo" } }];
  const chosen = await connect({ fleet, roots: { selectedCapabilityRoots: roots } });
  assert.equal((await chosen.list()).length, 3);
  for (const session of [...sessions, chosen]) await session.close();
  assert.equal(programs().length, 0);

  const table = await connect({ fleet: { local: { address, timeout: 5 } }, roots: JSON.stringify(roots) });
  assert.equal((await table.list()).length, 3);
  await table.close();
});

test("local directories need no daemon", async (t) => {
  const sources = [new LocalSkills({ mine: demoTree })];
  const skills = await connect({ sources });
  t.after(() => skills.close());
  const [first] = await skills.list();
  assert.equal(first?.authority.kind, "local");
  assert.deepEqual(skills.warnings, []);
});

test("presets are local directories", async (t) => {
  const home = makeDirectory(t);
  writeSkill(join(home, ".claude/skills"), "of-claude", "Skill at home.");
  const before = process.env.HOME;
  t.after(() => {
    process.env.HOME = before;
  });
  process.env.HOME = home;
  const skills = await connect({ sources: [new LocalSkills({}, ["claude"])] });
  t.after(() => skills.close());
  const packages = (await skills.list()).map((skill) => skill.package);
  assert.ok(packages.includes("skill://claude/of-claude"), packages.join());
  assert.throws(() => new LocalSkills({}), ConfigError);
});

test("a site is a source", async (t) => {
  const main = "---\nname: pdf\ndescription: Fills forms.\n---\n# Body\n";
  const digest = `sha256:${createHash("sha256").update(main).digest("hex")}`;
  const files: Record<string, string> = {
    "index.json": JSON.stringify({ skills: [{ name: "pdf", description: "Fills forms.", url: "pdf/SKILL.md", digest }] }),
    "pdf/SKILL.md": main,
  };
  const server = createServer((request, response) => {
    const text = files[request.url?.replace("/.well-known/agent-skills/", "") ?? ""];
    response.writeHead(text === undefined ? 404 : 200).end(text);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;

  const skills = await connect({ sources: [new Site(`http://${host}`, { allowPrivate: true })] });
  t.after(() => skills.close());
  const [skill] = await skills.list();
  assert.deepEqual([skill?.authority.kind, skill?.package], ["site", `site://${host}/pdf`]);
  assert.match(await skills.read("pdf"), /# Body/);
  await assert.rejects(connect({ sources: [new Site(host)] }), /not a globally routable address/);
});

test("all mistakes are reported", async (t) => {
  const { address } = await serveDemo(t);
  const mistakes = async (options: ConnectOptions) => {
    const error = await connect(options).then(() => assert.fail("no error"), (error: unknown) => error);
    assert.ok(error instanceof ConfigError, String(error));
    return error.mistakes.join("\n");
  };
  assert.match(await mistakes({ fleet: {}, ca: "ca.pem", token: "t" }), /`fleet` and `ca` .*\n`fleet` and `token` /);
  assert.match(await mistakes({ cert: "c", token: "t", tokenFile: "f" }), /`cert` and `key`.*\n`token` and `tokenFile`/);
  assert.match(await mistakes({ fleet: "/nonexistent" }), /nonexistent/);
  assert.match(await mistakes({ fleet: { local: "nowhere" } }), /nowhere/);
  const wrong = { fleet: { local: address }, choice: { include: ["pdf"], exclude: ["x"] }, id: "a b" };
  assert.match(await mistakes(wrong), /"pdf".*\n.*"x"/);
  assert.match(await mistakes({ fleet: { local: address }, roots: "[" }), /^roots: /);
  await assert.rejects(connect("tcp:127.0.0.1:1", { startTimeout: 1 }), (error) => error instanceof Refused && error.code === "EXECUTOR_UNAVAILABLE");
});

test("a token is in no argument, variable or file of the program", async (t) => {
  const { address } = await serveDemo(t);
  const temporary = makeDirectory(t);
  process.env.TMPDIR = temporary;
  t.after(() => delete process.env.TMPDIR);
  let calls = 0;
  const skills = await connect(address, { token: async () => `token-${(calls += 1)}` });
  t.after(() => skills.close());
  const pid = callProcess();
  for (const part of ["cmdline", "environ"]) assert.ok(!readFileSync(`/proc/${pid}/${part}`, "utf8").includes("token-1"));
  assert.deepEqual(readdirSync(temporary), []);
  assert.ok(calls > 0);
});

test("a session may be disposed of, and an idle session does not keep a program", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address);
  await skills[Symbol.asyncDispose]();
  assert.equal(skills.isClosed, true);
  const { spawnSync } = await import("node:child_process");
  const program = `import { connect } from "caproot"; const skills = await connect(${JSON.stringify(address)}); console.log(skills.tools.length);`;
  const ended = spawnSync(process.execPath, ["--input-type=module", "--eval", program], {
    cwd: join(import.meta.dirname, ".."), encoding: "utf8", timeout: 60_000,
  });
  assert.equal(ended.stdout, "3\n", ended.stderr);
  assert.equal(ended.status, 0);
});

test("a directory of PATH may have no program", async (t) => {
  makeDirectory(t);
  replaceProgram(t, undefined);
  await assert.rejects(connect(), { name: "ProgramError", message: /is missing: install the package caproot-linux-/ });
});
