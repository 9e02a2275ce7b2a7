/** The programs of the page, with the strict compiler, with the output that the page shows, and with mock models. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { serveDemo } from "./support.ts";

const top = join(import.meta.dirname, "..");
const models = join(import.meta.dirname, "models");
const page = readFileSync(join(top, "../docs/orchestrate/typescript.md"), "utf8");
const programs = [...page.matchAll(/```typescript\n(\/\/ ([\w-]+\.ts)\n.*?)```/gs)].map(([, text = "", name = ""]) => ({ name, text }));
/** Programs with a model. */
const frameworks = ["ai-sdk.ts", "openai-agents.ts", "claude.ts"];

/** Writes the programs, which find the package as this test does, and compiles them. */
function compile(directory: string): void {
  for (const { name, text } of programs) {
    // Each program imports `model` of its framework.
    const own = text.replace('"./model.ts"', `"./model-${name}"`);
    if (own !== text) copyFileSync(join(models, name), join(directory, `model-${name}`));
    writeFileSync(join(directory, name), own);
  }
  const options = ["--strict", "--noEmit", "--skipLibCheck", "--allowImportingTsExtensions", "--target", "es2023"];
  const modules = ["--module", "nodenext", "--types", "node"];
  const files = programs.map(({ name }) => join(directory, name));
  const compiler = join(top, "node_modules/typescript/bin/tsc");
  const checked = spawnSync(process.execPath, [compiler, ...options, ...modules, ...files], { cwd: top, encoding: "utf8" });
  assert.equal(checked.stdout, "");
}

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
