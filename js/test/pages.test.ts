/** The programs of the page, with the strict compiler, with the output that the page shows, and with mock models. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { serveDemo } from "./support.ts";

const top = join(import.meta.dirname, "..");
const models = join(import.meta.dirname, "models");
const page = readFileSync(join(top, "../docs/orchestrate/typescript.md"), "utf8");
const programs = [...page.matchAll(/```typescript\n(\/\/ ([\w-]+\.ts)\n.*?)```/gs)].map(([, text = "", name = ""]) => ({ name, text }));
const codexPage = readFileSync(join(top, "../docs/orchestrate/codex.md"), "utf8");
/** Programs with a model. */
const frameworks = ["ai-sdk.ts", "openai-agents.ts", "claude.ts"];

/** Compiles programs with the strict compiler. */
function check(files: string[]): void {
  const options = ["--strict", "--noEmit", "--skipLibCheck", "--allowImportingTsExtensions", "--target", "es2023"];
  const modules = ["--module", "nodenext", "--types", "node"];
  const compiler = join(top, "node_modules/typescript/bin/tsc");
  const checked = spawnSync(process.execPath, [compiler, ...options, ...modules, ...files], { cwd: top, encoding: "utf8" });
  assert.equal(checked.stdout, "");
}

/** Writes the programs, which find the package as this test does, and compiles them. */
function compile(directory: string): void {
  for (const { name, text } of programs) {
    // Each program imports `model` of its framework.
    const own = text.replace('"./model.ts"', `"./model-${name}"`);
    if (own !== text) copyFileSync(join(models, name), join(directory, `model-${name}`));
    writeFileSync(join(directory, name), own);
  }
  check(programs.map(({ name }) => join(directory, name)));
}

test("the program of the Codex page drives Codex", async (t) => {
  const { address } = await serveDemo(t);
  const directory = mkdtempSync(join(top, "test/pages-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const [, text = ""] = /```typescript\n\/\/ orchestrate\.ts\n(.*?)```/s.exec(codexPage) ?? [];
  assert.ok(text.split("\n").filter(Boolean).length <= 20);
  const program = join(directory, "orchestrate.ts");
  writeFileSync(program, text);
  check([program]);

  symlinkSync(join(top, "../tests/foreign/codex/app_server.py"), join(directory, "codex"));
  const env = { ...process.env, CAPROOT_ENDPOINT: address, PATH: `${directory}:${process.env.PATH}` };
  const ran = spawnSync(process.execPath, [program, "Triage the log."], { env, encoding: "utf8", timeout: 60_000 });
  assert.equal(ran.stdout, "Triage a log\n", ran.stderr);
});

test("the programs of the page are strict, and print the output of the page", async (t) => {
  const { address } = await serveDemo(t);
  const directory = mkdtempSync(join(top, "test/pages-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  assert.deepEqual(programs.map(({ name }) => name), ["agent.ts", "tools.ts", "pending.ts", ...frameworks]);
  compile(directory);

  const env = { ...process.env, CAPROOT_ENDPOINT: address, OPENAI_API_KEY: "none" };
  for (const { name, text } of programs) {
    let shown = new RegExp(`\\$ node ${name}\\n(.*?)\`\`\``, "s").exec(page)?.[1];
    if (frameworks.includes(name)) shown = "Triage a log\n";
    if (name === "claude.ts") {
      const sdk = `"${join(models, "claude-sdk.ts")}"`;
      writeFileSync(join(directory, name), text.replace('"@anthropic-ai/claude-agent-sdk"', sdk));
    }
    const ran = spawnSync(process.execPath, [join(directory, name)], { env, encoding: "utf8", timeout: 60_000 });
    assert.equal(ran.stdout, shown, `${name}: ${ran.stderr}`);
  }
});
