/** Model of the AI SDK that reads a skill, and then repeats the first heading. */

import { MockLanguageModelV4 } from "ai/test";

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } } as never;
const call = {
  type: "tool-call" as const,
  toolCallId: "1",
  toolName: "skills_read",
  input: '{"package":"skill://demo/triage-logs"}',
};

export const model = new MockLanguageModelV4({
  doGenerate: async ({ prompt }) => {
    const heading = /# (Triage a log)/.exec(JSON.stringify(prompt.filter(({ role }) => role === "tool")))?.[1];
    return heading === undefined
      ? { content: [call], finishReason: { unified: "tool-calls", raw: undefined }, usage, warnings: [] }
      : { content: [{ type: "text", text: heading }], finishReason: { unified: "stop", raw: undefined }, usage, warnings: [] };
  },
});
