/** Sources of a session next to its executors. */

import { resolve } from "node:path";
import { ConfigError } from "./errors.ts";
import { type PrivateFiles, readToken, type Token } from "./fleet.ts";

/** Skills below directories of this machine. */
export class LocalSkills {
  /** Directories by the ids of their authorities, which are the first part of the handles. */
  readonly directories: Record<string, string>;

  constructor(directories: Record<string, string>) {
    if (Object.keys(directories).length === 0) throw new ConfigError(["LocalSkills needs a directory"]);
    this.directories = directories;
  }
}

/** Address or command of an MCP server. `${NAME}` in a text is an environment variable. */
export interface McpServerOptions {
  /** URL of a server over HTTP. */
  url?: string;
  /** Headers of each request. */
  headers?: Record<string, string>;
  /** Program that speaks MCP on stdin and stdout. */
  command?: string;
  /** Arguments of the program. */
  args?: string[];
  /** Environment variables of the program. */
  env?: Record<string, string>;
  /** Working directory of the program. */
  cwd?: string;
  /** Bearer token of a server over HTTP. A function is called at first, and after the server rejected the token. */
  token?: Token;
  /** File with the bearer token. */
  tokenFile?: string;
}

/** MCP server with skills, over HTTP or as a process. */
export class McpServer {
  /** Name of the server, also in handles: 1 to 64 letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  readonly options: McpServerOptions;

  constructor(name: string, options: McpServerOptions) {
    if ((options.url === undefined) === (options.command === undefined)) {
      throw new ConfigError([`the MCP server ${JSON.stringify(name)} needs either url or command`]);
    }
    if (options.token !== undefined && (options.url === undefined || options.tokenFile !== undefined)) {
      throw new ConfigError([`the MCP server ${JSON.stringify(name)} has \`token\`: set \`url\`, and no \`tokenFile\``]);
    }
    this.name = name;
    this.options = options;
  }
}

export type Source = LocalSkills | McpServer;

/** Returns the token of an MCP server of now. */
export async function mcpToken(sources: readonly Source[], name: string): Promise<string> {
  const server = sources.find((source) => source instanceof McpServer && source.name === name);
  const token = server instanceof McpServer ? server.options.token : undefined;
  if (token === undefined) throw new ConfigError([`the MCP server ${JSON.stringify(name)} has no token`]);
  return readToken(token);
}

/** Returns the flags of the program for the sources. */
export function sourceFlags(sources: readonly Source[], files: PrivateFiles): string[] {
  const flags: string[] = [];
  const servers: Record<string, McpServerOptions> = {};
  for (const source of sources) {
    if (source instanceof LocalSkills) {
      for (const [id, path] of Object.entries(source.directories)) flags.push(`--local=${id}=${resolve(path)}`);
    } else {
      if (source.name in servers) {
        throw new ConfigError([`two MCP servers have the name ${JSON.stringify(source.name)}`]);
      }
      // The program asks for the token.
      const { token, ...options } = source.options;
      servers[source.name] = options;
      if (token !== undefined) flags.push(`--ask-token=${source.name}`);
    }
  }
  // A header may have a secret, so that the list is no argument.
  const list = JSON.stringify({ mcpServers: servers });
  return Object.keys(servers).length === 0 ? flags : [...flags, "--mcp-servers", files.write("mcp.json", list)];
}
