// Fake model of the AI SDK.

import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { MockLanguageModelV4 } from "ai/test";
import { answer } from "./with_ai_sdk.ts";

const added = "rotate-keys";
const received: Record<string, string>[] = [];
const results: string[] = [];
const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

// Reads a skill, and ends.
const model = new MockLanguageModelV4({
  doGenerate: async ({ tools, prompt }: any) => {
    received.push(Object.fromEntries(tools.map((tool: any) => [tool.name, tool.description])));
    const outputs = prompt.filter((message: any) => message.role === "tool");
    results.push(...outputs.map((message: any) => JSON.stringify(message.content)));
    const call = {
      type: "tool-call", toolCallId: "c", toolName: "skills_read",
      input: JSON.stringify({ package: "skill://demo/triage-logs" }),
    };
    return outputs.length
      ? { content: [{ type: "text", text: "done" }], finishReason: { unified: "stop", raw: "stop" }, usage, warnings: [] }
      : { content: [call], finishReason: { unified: "tool-calls", raw: "tool-calls" }, usage, warnings: [] };
  },
} as any);

// One prompt, and more after a change until the model receives the new skill.
async function* prompts() {
  yield "Look at the log.";
  const directory = `${process.env.TREE}/${added}`;
  mkdirSync(directory);
  const text = `---\nname: ${added}\ndescription: Rotates keys. Use when a key is old.\n---\n`;
  writeFileSync(`${directory}/.draft`, text);
  renameSync(`${directory}/.draft`, `${directory}/SKILL.md`);
  while (!received.at(-1)!.skills_read.includes(added)) yield "Look again.";
}

function check(condition: unknown) {
  if (!condition) throw new Error(JSON.stringify({ received, results }));
}

const limit = setTimeout(() => check(false), 60_000);
await answer(model, prompts());
clearTimeout(limit);
const [first, last] = [received[0], received.at(-1)!];
check(Object.keys(first).sort().join() === "skills_list,skills_read,skills_search");
check(first.skills_read.includes(process.env.SHOWN!) && !first.skills_read.includes(added));
check(last.skills_read.includes(added) && results[0].includes("# Triage a log"));
console.log("== fake_ai_sdk: the model received");
for (const [name, description] of Object.entries(first)) console.log(`${name}: ${description}`);
console.log(`result of skills_read: ${results[0].slice(0, 200)}…`);
console.log(`== after a change: ${last.skills_read.split("\n").at(-1)}`);
