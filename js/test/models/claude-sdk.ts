/** The Claude Agent SDK with another program in the place of its command line: see `claude.ts`. */

import { join } from "node:path";
import * as sdk from "@anthropic-ai/claude-agent-sdk";

export const query: typeof sdk.query = ({ prompt, options }) =>
  sdk.query({ prompt, options: { ...options, pathToClaudeCodeExecutable: join(import.meta.dirname, "claude.ts") } });
