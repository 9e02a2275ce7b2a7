/** Dispatchers: pending calls of a platform, which a session answers. */

import type { CallChild, Fields, Method, Result } from "./child.ts";
import { ConfigError, DispatchError, Refused } from "./errors.ts";
import { spanOf } from "./fleet.ts";
import type { ProgramHost } from "./host.ts";
import type { CallEvent, DispatchAnswer, DrainCounts, ProgramCall, ProgramCallPage, TurnAnswer, UnneededAnswer } from "./lines.ts";
import { checkOptions, type OptionNames } from "./options.ts";
import { readImages, ToolResult } from "./session.ts";

type Awaitable<T> = T | Promise<T>;

/** Pending calls of a platform. A method that throws is called again. */
export interface Manager {
  /** Returns a page of about `limit` calls, from the beginning or from a token on. */
  listPending(token: string | undefined, limit: number): Awaitable<ProgramCallPage>;
  /** Takes the answer of a call, or says why the platform needs none. */
  submitResult(requestId: string, result: ToolResult): Awaitable<UnneededAnswer | undefined | null | void>;
}

/** Thread of a platform's agent. */
export interface Thread {
  /** Sends a turn, once. */
  sendTurn(turn: unknown): Awaitable<unknown>;
  /** Returns the name of the thread's status. */
  status(): Awaitable<string>;
}

/** Options of a dispatcher. */
export interface DispatcherOptions {
  /** Turns of the thread, for `runTurn`. */
  thread?: Thread;
  /** Calls at once; 16 by default. */
  maxInFlight?: number;
  /** Answers that the platform did not take yet; 1,000 by default. */
  maxUnsent?: number;
  /** Seconds of a tool; 120 by default. */
  answerTimeout?: number;
  /** Seconds of a call of the manager; 10 by default. */
  managerTimeout?: number;
  /** Seconds of a turn; 600 by default. */
  turnTimeout?: number;
}

const DISPATCHER_NAMES: OptionNames<DispatcherOptions> = {
  thread: true,
  maxInFlight: true,
  maxUnsent: true,
  answerTimeout: true,
  managerTimeout: true,
  turnTimeout: true,
};

/** Event by which a dispatcher calls a platform. */
export type PlatformEvent = Extract<CallEvent, { dispatcher: number }>;

/** Platform of a dispatcher. */
export interface Platform {
  manager: Manager;
  thread: Thread | undefined;
}

/** Calls a method of a platform. Returns JSON. */
export async function callPlatform({ manager, thread }: Platform, event: PlatformEvent): Promise<unknown> {
  switch (event.event) {
    case "listPending":
      return manager.listPending(event.token ?? undefined, event.limit);
    case "submitResult": {
      const result = new ToolResult(event.success, event.externalContext, event.result, readImages(event.images));
      return (await manager.submitResult(event.requestId, result)) ?? null;
    }
    case "sendTurn":
      await thread?.sendTurn(event.turn);
      return null;
    case "threadStatus":
      return thread?.status();
  }
}

/**
 * Answers the pending calls of a platform's thread. A tool runs once for a request id, although the platform
 * repeats the call or loses the answer. `Session.dispatcher` makes a dispatcher.
 *
 * If the program `caproot` dies, the dispatcher ends with it, as nothing knows any more which tools ran.
 */
export class Dispatcher {
  readonly #host: ProgramHost;
  readonly #child: CallChild;
  readonly #number: number;
  readonly #hasThread: boolean;

  /** Dispatchers are made by `Session.dispatcher`.
   * @internal */
  constructor(host: ProgramHost, child: CallChild, number: number, hasThread: boolean) {
    this.#host = host;
    this.#child = child;
    this.#number = number;
    this.#hasThread = hasThread;
  }

  /** Makes the dispatcher of a session.
   * @internal */
  static async make(
    host: ProgramHost,
    child: CallChild,
    session: string,
    fields: { threadId: string; manager: Manager; options: DispatcherOptions },
  ): Promise<Dispatcher> {
    const { threadId, manager, options } = fields;
    checkOptions("options", options, DISPATCHER_NAMES);
    const { dispatcher } = await child.request("dispatcher", dispatcherFields(threadId, options), session);
    host.addPlatform(dispatcher, session, { manager, thread: options.thread });
    return new Dispatcher(host, child, dispatcher, options.thread !== undefined);
  }

  /** Answers all pending calls. Throws `DispatchError`. */
  drain(): Promise<DrainCounts> {
    return this.#request("drain", { dispatcher: this.#number });
  }

  /** Answers a call that the platform pushed. A dispatcher takes pushed calls or drains, not both. Throws
   * `DispatchError`. */
  dispatch(call: ProgramCall): Promise<DispatchAnswer> {
    return this.#request("dispatch", { dispatcher: this.#number, call });
  }

  /**
   * Sends a turn, once, and answers calls until the thread has one of the statuses. `undefined` waits for a turn
   * that was sent before. Throws `DispatchError` if the turn was not sent or did not end in time. Calls in flight
   * go on.
   */
  async runTurn(turn: unknown, until: readonly string[]): Promise<TurnAnswer> {
    if (!this.#hasThread) throw new ConfigError(["the dispatcher has no thread: pass `thread` to Session.dispatcher"]);
    return this.#request("run_turn", { dispatcher: this.#number, turn: turn ?? null, until: [...until] });
  }

  /** Ends the dispatcher. The end of its session also ends a dispatcher. */
  async close(): Promise<void> {
    if (this.#child.isAlive && this.#host.hasPlatform(this.#number)) {
      await this.#request("close_dispatcher", { dispatcher: this.#number });
    }
    this.#host.removePlatform(this.#number);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #request<M extends Method>(method: M, fields: Fields<M>): Promise<Result<M>> {
    if (!this.#child.isAlive || !this.#host.hasPlatform(this.#number)) {
      throw new DispatchError("the dispatcher has ended with its session or the program caproot: make another one");
    }
    try {
      return await this.#child.request(method, fields);
    } catch (error) {
      const isFailed = error instanceof Refused && error.code === "FAILED";
      throw isFailed ? new DispatchError(error.message.replace(/^FAILED: /, ""), { cause: error }) : error;
    }
  }
}

function dispatcherFields(threadId: string, options: DispatcherOptions): Fields<"dispatcher"> {
  return {
    thread: threadId,
    max_in_flight: options.maxInFlight ?? null,
    max_unsent: options.maxUnsent ?? null,
    answer_timeout: spanOf(options.answerTimeout) ?? null,
    manager_timeout: spanOf(options.managerTimeout) ?? null,
    turn_timeout: spanOf(options.turnTimeout) ?? null,
  };
}
