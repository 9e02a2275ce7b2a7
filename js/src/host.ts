/** Program of one or more sessions. A program that died is started again by the next call. */

import { CallChild } from "./child.ts";
import { callPlatform, type Platform, type PlatformEvent } from "./dispatch.ts";
import type { CaprootError } from "./errors.ts";
import { type Connection, makeKey } from "./fleet.ts";
import type { CallEvent } from "./lines.ts";
import { type AuthorizationFunction, type PluginServers, serverAuthorization, serverValue } from "./plugin_servers.ts";
import { mcpToken, type Source } from "./sources.ts";
import { type ToolOutcome, Tools, toJson } from "./tools.ts";

/** Executors and sources of a session, which the program asks about. */
export class SessionOrigin {
  readonly key = makeKey();
  readonly connection: Connection;
  readonly sources: readonly Source[];
  readonly pluginServers: PluginServers | undefined;
  readonly authorize: AuthorizationFunction | undefined;

  constructor(
    connection: Connection,
    sources: readonly Source[],
    pluginServers: PluginServers | undefined,
    authorize: AuthorizationFunction | undefined,
  ) {
    this.connection = connection;
    this.sources = sources;
    this.pluginServers = pluginServers;
    this.authorize = authorize;
  }
}

/** Session of a program. */
export interface HostedSession {
  readonly origin: SessionOrigin;
  onEvent(event: CallEvent): void;
  onExit(reason: CaprootError): void;
}

export interface HostOptions {
  programTimeout: number;
  log: ((line: string) => void) | undefined;
}

/** Call of the program by an event, which the package answers. */
type QuestionEvent = Exclude<Extract<CallEvent, { call: number }>, { event: "toolCancelled" }>;

interface OwnedTools {
  tools: Tools;
  /** The session that started with the tools, and its forks. */
  users: number;
}

export class ProgramHost {
  readonly #options: HostOptions;
  readonly #sessions = new Map<string, HostedSession>();
  /** Origins of sessions that start. */
  readonly #starts = new Set<SessionOrigin>();
  readonly #tools = new Map<string, OwnedTools>();
  readonly #calls = new Map<number, AbortController>();
  /** Platforms of dispatchers, with the sessions of the dispatchers. */
  readonly #platforms = new Map<number, Platform & { session: string }>();
  #starting: Promise<CallChild> | undefined;
  #child: CallChild | undefined;
  #users = 0;

  constructor(options: HostOptions) {
    this.#options = options;
  }

  /** Returns the program. Starts it if it does not run. */
  async child(): Promise<CallChild> {
    if (this.#child?.isAlive) return this.#child;
    this.#starting ??= this.#start().finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  /** The program, if it runs. */
  get running(): CallChild | undefined {
    return this.#child?.isAlive ? this.#child : undefined;
  }

  retain(): void {
    this.#users += 1;
  }

  /** Removes a user. The program ends with its last user. */
  async release(): Promise<void> {
    this.#users -= 1;
    if (this.#users > 0) return;
    const child = this.#child;
    this.#child = undefined;
    await child?.end();
  }

  /** Routes the events of a session. */
  add(id: string, session: HostedSession): void {
    this.#sessions.set(id, session);
  }

  remove(id: string): void {
    this.#sessions.delete(id);
    for (const [number, { session }] of this.#platforms) if (session === id) this.#platforms.delete(number);
  }

  /** Routes the calls of a dispatcher. */
  addPlatform(dispatcher: number, session: string, platform: Platform): void {
    this.#platforms.set(dispatcher, { ...platform, session });
  }

  hasPlatform(dispatcher: number): boolean {
    return this.#platforms.has(dispatcher);
  }

  removePlatform(dispatcher: number): void {
    this.#platforms.delete(dispatcher);
  }

  /** Routes the calls of the tools that a session started with, for the session or a fork. */
  retainTools(owner: string, tools: Tools): void {
    const owned = this.#tools.get(owner) ?? { tools, users: 0 };
    owned.users += 1;
    this.#tools.set(owner, owned);
  }

  releaseTools(owner: string): void {
    const owned = this.#tools.get(owner);
    if (!owned) return;
    owned.users -= 1;
    if (owned.users === 0) this.#tools.delete(owner);
  }

  /** Starts a session by a function, and answers the questions about its origin meanwhile. */
  async starting<T>(origin: SessionOrigin, start: () => Promise<T>): Promise<T> {
    this.#starts.add(origin);
    try {
      return await start();
    } finally {
      this.#starts.delete(origin);
    }
  }

  async #start(): Promise<CallChild> {
    const { programTimeout, log } = this.#options;
    const environment = { ...process.env };
    // Each session names its executors.
    for (const name of ["ENDPOINT", "CA", "CERT", "KEY", "TOKEN_FILE"]) delete environment[`CAPROOT_${name}`];
    this.#child = await CallChild.start({
      environment,
      programTimeout,
      onEvent: (event, child) => this.#onEvent(event, child),
      onLog: (line) => log?.(line),
      onExit: (reason) => this.#onExit(reason),
    });
    return this.#child;
  }

  #onEvent(event: CallEvent, child: CallChild): void {
    if (event.event === "toolCancelled") {
      this.#calls.get(event.call)?.abort(new Error("the time limit is over, or the caller has gone"));
    } else if ("call" in event) {
      void this.#answer(event, child);
    } else if (event.event === "changed" || event.event === "plugins" || event.event === "usage") {
      this.#sessions.get(event.session)?.onEvent(event);
    }
  }

  /** Answers a call of the program by an event, unless the call is cancelled meanwhile. */
  async #answer(event: QuestionEvent, child: CallChild): Promise<void> {
    const abort = new AbortController();
    this.#calls.set(event.call, abort);
    const outcome = await this.#run(event, child, abort.signal);
    this.#calls.delete(event.call);
    if (!abort.signal.aborted && child.isAlive) child.sendOutcome(event.call, outcome);
  }

  #run(event: QuestionEvent, child: CallChild, signal: AbortSignal): Promise<ToolOutcome> {
    switch (event.event) {
      case "tool":
        return child.runAsCaller(event.request, () => this.#runTool(event, signal));
      case "findExecutor":
        return secretOf("executor", () => this.#origin(event.key).connection.find(event.environmentId));
      case "mcpToken":
        return secretOf("token", () => mcpToken(this.#origin(event.key).sources, event.server));
      case "serverValue":
        return secretOf("value", () => serverValue(this.#origin(event.key).pluginServers, event));
      case "authorize":
        return secretOf("credential", () => serverAuthorization(this.#origin(event.key).authorize, event));
      default:
        return outcomeOf(() => this.#callPlatform(event));
    }
  }

  /** Returns the origin with a key, also if the key is that of its executors. */
  #origin(key: string): SessionOrigin {
    const origins = [...this.#starts, ...[...this.#sessions.values()].map(({ origin }) => origin)];
    const found = origins.find((origin) => origin.key === key || origin.connection.key === key);
    if (!found) throw new Error("the session has ended");
    return found;
  }

  async #runTool(event: Extract<CallEvent, { event: "tool" }>, signal: AbortSignal): Promise<ToolOutcome> {
    const tools = this.#tools.get(event.session)?.tools;
    if (!tools) return { bug: "the session has no tools" };
    const outcome = await Tools.run(tools, event.tool, event.arguments, signal);
    if ("bug" in outcome && !signal.aborted) {
      process.emitWarning(`the tool ${event.tool} has a defect: ${outcome.bug}`, "CaprootWarning");
    }
    return outcome;
  }

  #callPlatform(event: PlatformEvent): Promise<unknown> {
    const platform = this.#platforms.get(event.dispatcher);
    if (!platform) throw new Error("the dispatcher has ended");
    return callPlatform(platform, event);
  }

  #onExit(reason: CaprootError): void {
    for (const call of this.#calls.values()) call.abort(reason);
    this.#calls.clear();
    this.#platforms.clear();
    for (const session of this.#sessions.values()) session.onExit(reason);
  }
}

/** Returns the outcome of a function whose errors the program may repeat. */
async function outcomeOf(run: () => unknown): Promise<ToolOutcome> {
  try {
    return { result: toJson(await run()) };
  } catch (error) {
    return { error: error instanceof Error ? error.message || error.name : String(error) };
  }
}

/** Returns the outcome of a function for a secret. Its error may have the secret, and no result repeats the error. */
async function secretOf(secret: string, run: () => unknown): Promise<ToolOutcome> {
  const outcome = await outcomeOf(run);
  if ("error" in outcome) process.emitWarning(`the function of a ${secret} failed: ${outcome.error}`, "CaprootWarning");
  return outcome;
}
