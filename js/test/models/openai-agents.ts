/** Model of the OpenAI Agents SDK that reads a skill, and then repeats the first heading. */

import { type Model, type ModelResponse, setTracingDisabled, Usage } from "@openai/agents";

setTracingDisabled(true);

const call = {
  type: "function_call" as const,
  callId: "1",
  name: "skills_read",
  arguments: '{"package":"skill://demo/triage-logs"}',
  status: "completed" as const,
};

export const model: Model = {
  async getResponse({ input }): Promise<ModelResponse> {
    const heading = /# (Triage a log)/.exec(JSON.stringify(input))?.[1];
    if (heading === undefined) return { usage: new Usage(), output: [call] };
    const content = [{ type: "output_text" as const, text: heading }];
    return { usage: new Usage(), output: [{ type: "message", role: "assistant", status: "completed", content }] };
  },
  getStreamedResponse() {
    throw new Error("the model does not stream");
  },
};
