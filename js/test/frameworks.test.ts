/** An agent of each framework with a model that asks for skills. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Agent, type Model, type ModelRequest, type ModelResponse, Runner, Usage } from "@openai/agents";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { connect, Tools } from "caproot";
import { ai } from "caproot/ai";
import { claude, claudeText } from "caproot/claude";
import { openaiAgents } from "caproot/openai-agents";
import { serveDemo, writeSkill } from "./support.ts";

const arguments_ = { package: "skill://demo/triage-logs" };

test("the AI SDK calls the tools", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address);
  t.after(() => skills.close());
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } } as never;
  let turn = 0;
  const model = new MockLanguageModelV4({
    doGenerate: async () => {
      turn += 1;
      const call = { type: "tool-call" as const, toolCallId: "1", toolName: "skills_read", input: JSON.stringify(arguments_) };
      return turn === 1
        ? { content: [call], finishReason: { unified: "tool-calls", raw: undefined }, usage, warnings: [] }
        : { content: [{ type: "text", text: "Done." }], finishReason: { unified: "stop", raw: undefined }, usage, warnings: [] };
    },
  });
  const { text, steps } = await generateText({ model, tools: ai(skills), stopWhen: stepCountIs(3), prompt: `${skills.text}\n\nTriage the log.` });
  assert.equal(text, "Done.");
  const [result] = steps[0]?.toolResults ?? [];
  assert.match(String(result?.output), /# Triage a log/);
});

test("the OpenAI Agents SDK calls the tools", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address);
  t.after(() => skills.close());
  const requests: ModelRequest[] = [];
  const model: Model = {
    async getResponse(request): Promise<ModelResponse> {
      requests.push(request);
      const call = { type: "function_call" as const, callId: "1", name: "skills_read", arguments: JSON.stringify(arguments_), status: "completed" as const };
      const message = { type: "message" as const, role: "assistant" as const, status: "completed" as const, content: [{ type: "output_text" as const, text: "Done." }] };
      return { usage: new Usage(), output: requests.length === 1 ? [call] : [message] };
    },
    getStreamedResponse: () => assert.fail("not streamed"),
  };
  const agent = new Agent({ name: "a", model, tools: openaiAgents(skills) });
  const runner = new Runner({ tracingDisabled: true });
  const result = await runner.run(agent, `${skills.text}\n\nTriage the log.`);
  assert.equal(result.finalOutput, "Done.");
  assert.deepEqual(requests[0]?.tools.map(({ name }) => name), ["skills_list", "skills_read", "skills_search"]);
  assert.match(JSON.stringify(requests[1]?.input), /# Triage a log/);
});

test("the server of the Claude Agent SDK has the tools", async (t) => {
  const { address } = await serveDemo(t);
  const skills = await connect(address);
  t.after(() => skills.close());
  const { instance, name, type } = claude(skills);
  assert.deepEqual({ name, type }, { name: "caproot", type: "sdk" });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  const client = new Client({ name: "a", version: "1" });
  await Promise.all([instance.connect(ours), client.connect(theirs)]);
  t.after(() => client.close());

  const { tools } = await client.listTools();
  assert.deepEqual(tools.map(({ name }) => name), ["skills_list", "skills_read", "skills_search"]);
  assert.deepEqual(tools[1]?.inputSchema.required, ["package"]);
  assert.ok(tools.every(({ _meta }) => _meta?.["anthropic/alwaysLoad"] === true));
  const result = await client.callTool({ name: "skills_read", arguments: arguments_ });
  assert.match(JSON.stringify(result.content), /# Triage a log/);
  const failed = await client.callTool({ name: "skills_read", arguments: { package: "none" } });
  assert.equal(failed.isError, true);
});

test("the text for Claude has the names that the model sees", async (t) => {
  const { address, root } = await serveDemo(t);
  writeSkill(root, "odd", "Says `skills_read`.");
  const tools = new Tools();
  tools.tool({ name: "count", description: "Counts.", inputSchema: { type: "object" }, outputDescription: "The count." }, () => 1);
  const skills = await connect(address, { tools });
  t.after(() => skills.close());
  const changes = skills.changes();
  while (!skills.text.includes("- odd: ")) await changes.next();

  const text = claudeText(skills);
  assert.match(text, /call `mcp__caproot__skills_read`/);
  assert.match(text, /\n- mcp__caproot__count: The count\./);
  // Lines of skills stay as their authors wrote them.
  assert.match(text, /\n- odd: Says `skills_read`\./);
  assert.equal(text.replaceAll("mcp__caproot__", ""), skills.text);
});
