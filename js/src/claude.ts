/** Tools and text of a session for the Claude Agent SDK:
 * `query({ prompt: claudeText(skills), options: { mcpServers: { caproot: claude(skills) } } })`. */

import { createSdkMcpServer, type McpSdkServerConfigWithInstance } from "@anthropic-ai/claude-agent-sdk";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import type { Session } from "./session.ts";
import { renameTools } from "./tool_names.ts";

/** Name of the server. The SDK calls its tools `mcp__caproot__NAME`. */
const SERVER = "caproot";

/** Returns the tools of a session as an in-process MCP server. */
export function claude(session: Session): McpSdkServerConfigWithInstance {
  const config = createSdkMcpServer({ name: SERVER });
  // The tools of the SDK have zod schemas; those of a session are JSON Schemas already.
  const { server } = config.instance;
  server.registerCapabilities({ tools: {} });
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: session.tools.map((tool) => ({
      ...tool,
      inputSchema: { ...tool.inputSchema, type: "object" as const },
      // Otherwise a model has to search for the tools first, and does not know that they exist.
      _meta: { "anthropic/alwaysLoad": true },
    })),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal }) => {
    const result = await session.call(params.name, params.arguments ?? {}, { signal });
    return { content: [{ type: "text" as const, text: result.text }], isError: !result.ok };
  });
  return config;
}

/** Returns the text of a session with the names of its tools as the model sees them, such as
 * `mcp__caproot__skills_read`. */
export function claudeText(session: Session): string {
  return renameTools(session, (name) => `mcp__${SERVER}__${name}`);
}
