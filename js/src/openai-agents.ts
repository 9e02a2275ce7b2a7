/** Tools of a session for the OpenAI Agents SDK: `new Agent({ tools: openaiAgents(skills) })`. */

import { type FunctionTool, tool } from "@openai/agents";
import type { Session } from "./session.ts";

/** Returns the tools of a session. Their schemas are not strict: a strict schema has no optional arguments. */
export function openaiAgents(session: Session): FunctionTool[] {
  return session.tools.map(({ name, description, inputSchema }) =>
    tool({
      name,
      description,
      strict: false,
      parameters: { additionalProperties: true, properties: {}, required: [], ...inputSchema, type: "object" },
      execute: async (args, _context, details) => {
        const { text } = await session.call(name, args as object, { signal: details?.signal });
        return text;
      },
    }),
  ) as FunctionTool[];
}
