/** HTTP MCP servers of plugins as tools of a session. */

import type { CallEvent } from "./lines.ts";
import type { OptionNames } from "./options.ts";

/** Servers of plugins whose tools a session has. */
export interface PluginServers {
  /**
   * Each text chooses one server: its handle, such as `skill://a/p#tracker`, or `PLUGIN/SERVER` or `PLUGIN` if only
   * one server fits; all servers by default.
   */
  names?: readonly string[];
  /** Origins whose addresses need not be globally routable, such as `https://mcp.internal.example`. */
  privateOrigins?: readonly string[];
  /**
   * Returns a value that a declaration withholds, such as a token, or `undefined` to send nothing. Compare `origin`
   * with the origin that the secret is for: a plugin's author chooses all names. An error
   * of the function is a warning of the process, and does not reach the model.
   */
  value?: (request: ServerValueRequest) => string | undefined | Promise<string | undefined>;
}

export const PLUGIN_SERVERS_NAMES: OptionNames<PluginServers> = { names: true, privateOrigins: true, value: true };

/** Request of a value for a server of a plugin. */
export type ServerValueRequest = Omit<Extract<CallEvent, { event: "serverValue" }>, "event" | "call" | "key">;

/** HTTP MCP server that answered 401 and whose declaration has no credential. */
export type AuthorizationRequest = Omit<Extract<CallEvent, { event: "authorize" }>, "event" | "call" | "key">;

/**
 * Returns the value of `Authorization`, such as `Bearer …`, or `undefined` if the server must not get one. It may take
 * 15 minutes. Compare `origin` with the origin that the credential is for. The server names `resourceMetadata` and is not
 * trusted: the host can resolve to a machine of your network. An error of the function is a warning of the process, and does not
 * reach the model.
 */
export type AuthorizationFunction = (request: AuthorizationRequest) => string | undefined | Promise<string | undefined>;

/** Returns the value of `Authorization` that the program of the caller gives, or `null`. */
export async function serverAuthorization(
  authorize: AuthorizationFunction | undefined,
  { event: _event, call: _call, key: _key, ...request }: Extract<CallEvent, { event: "authorize" }>,
): Promise<string | null> {
  return (await authorize?.(request)) ?? null;
}

/** Returns the servers of a request. */
export function serverNames(servers: PluginServers | undefined): string[] | null {
  return servers === undefined ? null : [...(servers.names ?? ["all"])];
}

/** Returns the value that the program of the caller gives, or `null`. */
export async function serverValue(
  servers: PluginServers | undefined,
  { event: _event, call: _call, key: _key, ...request }: Extract<CallEvent, { event: "serverValue" }>,
): Promise<string | null> {
  return (await servers?.value?.(request)) ?? null;
}
