/** Sources of a session next to its executors. */

import { resolve } from "node:path";
import { ConfigError } from "./errors.ts";
import { readToken, type Token } from "./fleet.ts";
import type { SourcesRequest } from "./lines.ts";
import { checkOptions, type OptionNames } from "./options.ts";

/** Tool whose directories of skills are used: those of the project that contains the working directory,
 * and that of the home directory. */
export type LocalPreset = "agents" | "claude" | "codex";

/** Skills below directories of this machine. */
export class LocalSkills {
  /** Directories by the ids of their authorities, which are the first part of the handles. */
  readonly directories: Record<string, string>;
  /** Tools whose directories are used, too. */
  readonly presets: readonly LocalPreset[];

  constructor(directories: Record<string, string>, presets: readonly LocalPreset[] = []) {
    if (Object.keys(directories).length === 0 && presets.length === 0) {
      throw new ConfigError(["LocalSkills needs a directory or a preset"]);
    }
    this.directories = directories;
    this.presets = presets;
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
  /** Bearer token of a server over HTTP. A function is called at first, and after the server rejected the token. An
   * error of the function is a warning of the process, and does not reach the model. */
  token?: Token;
  /** File with the bearer token. */
  tokenFile?: string;
  /** Maximum age of the server's latest statement about a skill at a read; 30 by default. With 0, each read asks. */
  maxAgeSeconds?: number;
}

const MCP_SERVER_NAMES: OptionNames<McpServerOptions> = {
  url: true,
  headers: true,
  command: true,
  args: true,
  env: true,
  cwd: true,
  token: true,
  tokenFile: true,
  maxAgeSeconds: true,
};

/** MCP server with skills, over HTTP or as a process. */
export class McpServer {
  /** Name of the server, also in handles: 1 to 64 letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  readonly options: McpServerOptions;

  constructor(name: string, options: McpServerOptions) {
    checkOptions(`the MCP server ${JSON.stringify(name)}`, options, MCP_SERVER_NAMES);
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

/** Options of a site. */
export interface SiteOptions {
  /** Whether addresses that are not globally routable are allowed, and an http URL of a loopback address. */
  allowPrivate?: boolean;
}

/** Site with skills: the index `https://HOST/.well-known/agent-skills/index.json` and its files. */
export class Site {
  /** Host of the site, such as `docs.example`, with a port if needed. */
  readonly host: string;
  readonly options: SiteOptions;

  constructor(host: string, options: SiteOptions = {}) {
    checkOptions(`the site ${JSON.stringify(host)}`, options, { allowPrivate: true } satisfies OptionNames<SiteOptions>);
    this.host = host;
    this.options = options;
  }
}

/** Source of skills next to the executors. */
export type Source = LocalSkills | McpServer | Site;

/** Returns the token of an MCP server of now. */
export async function mcpToken(sources: readonly Source[], name: string): Promise<string> {
  const server = sources.find((source) => source instanceof McpServer && source.name === name);
  const token = server instanceof McpServer ? server.options.token : undefined;
  if (token === undefined) throw new ConfigError([`the MCP server ${JSON.stringify(name)} has no token`]);
  return readToken(token);
}

/** Returns the sources for the program. */
export function describeSources(sources: readonly Source[]): Pick<SourcesRequest, "local" | "mcp_servers" | "ask_tokens" | "sites"> {
  const local = sources.filter((source) => source instanceof LocalSkills);
  const servers = sources.filter((source) => source instanceof McpServer);
  const sites = sources.filter((source) => source instanceof Site);
  const named = local.flatMap(({ directories }) => Object.entries(directories));
  const directories = Object.fromEntries(named.map(([id, path]) => [id, resolve(path)]));
  // All directories are one source.
  const merged = { id: "local", directories, presets: local.flatMap(({ presets }) => [...presets]) };
  return {
    local: local.length === 0 ? [] : [merged],
    mcp_servers: servers.map(({ name, options: { token: _, ...server } }) => ({ name, server })),
    ask_tokens: servers.filter(({ options }) => options.token !== undefined).map(({ name }) => name),
    sites: sites.map(({ host, options }) => ({ host, allow_private: options.allowPrivate ?? false })),
  };
}
