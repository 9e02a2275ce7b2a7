/** Tools of a session for the Claude Agent SDK: `query({ options: { mcpServers: { caproot: claude(skills) } } })`. */

import { createSdkMcpServer, type McpSdkServerConfigWithInstance } from "@anthropic-ai/claude-agent-sdk";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import type { Session } from "./session.ts";

/** Name of the server. The SDK calls its tools `mcp__caproot__NAME`. */
const SERVER = "caproot";

/** Returns the tools of a session as an in-process MCP server. */
export function claude(session: Session): McpSdkServerConfigWithInstance {
  const config = createSdkMcpServer({ name: SERVER });
  // The tools of the SDK have zod schemas; those of a session are JSON Schemas already.
  const { server } = config.instance;
  server.registerCapabilities({ tools: {} });
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: session.tools.map((tool) => ({ ...tool, inputSchema: { ...tool.inputSchema, type: "object" as const } })),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal }) => {
    const result = await session.call(params.name, params.arguments ?? {}, { signal });
    return { content: [{ type: "text" as const, text: result.text }], isError: !result.ok };
  });
  return config;
}
