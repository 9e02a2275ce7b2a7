/** Session for Codex as an orchestrator: the parts of `codex app-server`. */

import type { Session, ToolDefinition } from "./session.ts";
import { renameTools } from "./tool_names.ts";

/** Product of Codex in the policy of a skill. */
export const CODEX_PRODUCT = "codex";
const NAMESPACE = "skills";
const DESCRIPTION = "Skills: instructions by third parties for kinds of work.";

/** Function of `dynamicTools`. It is not deferred: a deferred tool is hidden until the model searches for it. */
export interface CodexFunction extends ToolDefinition {
  type: "function";
  deferLoading: false;
}

/** Element of `dynamicTools`. */
export type CodexTool = CodexFunction | { type: "namespace"; name: string; description: string; tools: CodexFunction[] };

/** Parameters of the request `item/tool/call`. */
export interface CodexCall {
  tool: string;
  namespace?: string | null;
  arguments?: unknown;
}

/** Result of the request `item/tool/call`. */
export interface CodexAnswer {
  contentItems: { type: "inputText"; text: string }[];
  success: boolean;
}

/** Tools and text of a session for a thread of `codex app-server`, and the answers to its calls. `Session.codex` makes
 * the object. */
export class Codex {
  readonly #session: Session;

  /** Made by `Session.codex`.
   * @internal */
  constructor(session: Session) {
    this.#session = session;
  }

  /** Tools for `dynamicTools` of `thread/start`. */
  get tools(): CodexTool[] {
    const members: CodexFunction[] = [];
    const functions: CodexTool[] = [];
    for (const tool of this.#session.tools) {
      if (tool.name.startsWith(`${NAMESPACE}_`)) {
        members.push({ type: "function", ...tool, name: tool.name.slice(NAMESPACE.length + 1), deferLoading: false });
      } else {
        functions.push({ type: "function", ...tool, deferLoading: false });
      }
    }
    return [{ type: "namespace", name: NAMESPACE, description: DESCRIPTION, tools: members }, ...functions];
  }

  /** Text of now for `developerInstructions` of `thread/start`, with the names of these tools. */
  get text(): string {
    return renameTools(this.#session, (name) => name.replace(`${NAMESPACE}_`, `${NAMESPACE}.`));
  }

  /** Returns the result of the request `item/tool/call` with these parameters. */
  async answer({ namespace, tool, arguments: args }: CodexCall): Promise<CodexAnswer> {
    const name = namespace ? `${namespace}.${tool}` : tool;
    const result = await this.#session.call(name, (args ?? {}) as object);
    return { contentItems: [{ type: "inputText", text: result.text }], success: result.ok };
  }
}
