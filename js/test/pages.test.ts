/** The programs of the page, with the strict compiler and with the output that the page shows. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { serveDemo } from "./support.ts";

const top = join(import.meta.dirname, "..");
const page = readFileSync(join(top, "../docs/orchestrate/typescript.md"), "utf8");

test("the programs of the page print the output of the page", async (t) => {
  const { address } = await serveDemo(t);
  // The programs find the package as this test does.
  const directory = mkdtempSync(join(top, "test/pages-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const programs = [...page.matchAll(/```typescript\n(\/\/ (\w+\.ts)\n.*?)```/gs)].map(([, text = "", name = ""]) => ({ name, text }));
  assert.deepEqual(programs.map(({ name }) => name), ["agent.ts", "tools.ts"]);
  for (const { name, text } of programs) writeFileSync(join(directory, name), text);

  const options = ["--strict", "--noEmit", "--skipLibCheck", "--target", "es2023", "--module", "nodenext", "--types", "node"];
  const files = programs.map(({ name }) => join(directory, name));
  const checked = spawnSync(process.execPath, [join(top, "node_modules/typescript/bin/tsc"), ...options, ...files], { cwd: top, encoding: "utf8" });
  assert.equal(checked.stdout, "");

  for (const { name } of programs) {
    const shown = new RegExp(`\\$ node ${name}\\n(.*?)\`\`\``, "s").exec(page)?.[1];
    const env = { ...process.env, CAPROOT_ENDPOINT: address };
    const ran = spawnSync(process.execPath, [join(directory, name)], { env, encoding: "utf8", timeout: 60_000 });
    assert.equal(ran.stdout, shown, ran.stderr);
  }
});
