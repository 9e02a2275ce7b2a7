/** Program of one or more sessions. A program that died is started again by the next call. */

import { CallChild } from "./child.ts";
import type { CaprootError } from "./errors.ts";
import { type Connection, PrivateFiles, spanOf } from "./fleet.ts";
import type { CallEvent } from "./lines.ts";
import { type Source, sourceFlags } from "./sources.ts";
import { Tools } from "./tools.ts";

/** Session of a program. */
export interface HostedSession {
  onEvent(event: CallEvent): void;
  onExit(reason: CaprootError): void;
}

export interface HostOptions {
  connection: Connection;
  sources: readonly Source[];
  startTimeout: number;
  programTimeout: number;
  log: ((line: string) => void) | undefined;
}

interface OwnedTools {
  tools: Tools;
  /** The session that started with the tools, and its forks. */
  users: number;
}

export class ProgramHost {
  readonly #options: HostOptions;
  readonly #files = new PrivateFiles();
  readonly #sessions = new Map<string, HostedSession>();
  readonly #tools = new Map<string, OwnedTools>();
  readonly #calls = new Map<number, AbortController>();
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
    this.#files.remove();
  }

  /** Routes the events of a session. */
  add(id: string, session: HostedSession): void {
    this.#sessions.set(id, session);
  }

  remove(id: string): void {
    this.#sessions.delete(id);
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

  async #start(): Promise<CallChild> {
    const { connection, sources, startTimeout, programTimeout, log } = this.#options;
    const files = this.#files;
    const flags = [
      "--no-session",
      `--connect-timeout=${spanOf(startTimeout)}`,
      ...(await connection.flags(files)),
      ...sourceFlags(sources, files),
    ];
    const child = await CallChild.start({
      flags,
      environment: connection.environment(),
      programTimeout,
      // The program waits for its executor and then for the lists of MCP servers.
      startLimit: programTimeout + 2 * startTimeout,
      onEvent: (event) => this.#onEvent(event),
      onLog: (line) => log?.(line),
      onExit: (reason) => this.#onExit(reason),
    }).catch((error: unknown) => {
      if (this.#users === 0) files.remove();
      throw error;
    });
    this.#child = child;
    return child;
  }

  #onEvent(event: CallEvent): void {
    if (event.event === "tool") {
      void this.#runTool(event);
    } else if (event.event === "toolCancelled") {
      this.#calls.get(event.call)?.abort(new Error("the time limit is over, or the caller has gone"));
    } else if (event.event === "changed" || event.event === "plugins" || event.event === "usage") {
      const isLost = event.event === "changed" && event.executor && event.executor.state !== "live";
      // The program reads the file before it connects again.
      if (isLost && this.#options.connection.hasTokenFunction) this.#renewTokens();
      this.#sessions.get(event.session)?.onEvent(event);
    }
  }

  #renewTokens(): void {
    this.#options.connection.writeTokens(this.#files).catch((error: unknown) => {
      process.emitWarning(`the function of a token failed: ${String(error)}`, "CaprootWarning");
    });
  }

  async #runTool(event: Extract<CallEvent, { event: "tool" }>): Promise<void> {
    const tools = this.#tools.get(event.session)?.tools;
    const child = this.#child;
    const abort = new AbortController();
    this.#calls.set(event.call, abort);
    const outcome = tools
      ? await Tools.run(tools, event.tool, event.arguments, abort.signal)
      : { bug: "the session has no tools" };
    this.#calls.delete(event.call);
    if (abort.signal.aborted || !child) return;
    if ("bug" in outcome) process.emitWarning(`the tool ${event.tool} has a defect: ${outcome.bug}`, "CaprootWarning");
    child.sendUrgent("tool_result", { call: event.call, ...outcome });
  }

  #onExit(reason: CaprootError): void {
    for (const call of this.#calls.values()) call.abort(reason);
    this.#calls.clear();
    for (const session of this.#sessions.values()) session.onExit(reason);
  }
}
