/** Tools of a session for the AI SDK: `generateText({ tools: ai(skills) })`. */

import { dynamicTool, jsonSchema } from "ai";
import type { Session } from "./session.ts";

/** Tools by their names. A call that the SDK aborts is cancelled. */
export type AiTools = Record<string, ReturnType<typeof dynamicTool>>;

/** Returns the tools of a session for `generateText`, `streamText` and agents. The result of a tool is the text
 * for the model. */
export function ai(session: Session): AiTools {
  const named = session.tools.map(({ name, description, inputSchema }) => [
    name,
    dynamicTool({
      description,
      inputSchema: jsonSchema(inputSchema),
      execute: async (args, { abortSignal }) => {
        const { text } = await session.call(name, args as object, { signal: abortSignal });
        return text;
      },
    }),
  ]);
  return Object.fromEntries(named) as AiTools;
}
