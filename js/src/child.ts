/** One process of `caproot call`: requests, answers and events as lines of JSON. */

import { AsyncResource } from "node:async_hooks";
import { type ChildProcessByStdio, execFile, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { CaprootError, ConfigError, ProgramError, Refused } from "./errors.ts";
import type { AnswerImage, CallEvent, CallRequest, RequestError, ResultsByMethod } from "./lines.ts";
import { findProgram, version } from "./program.ts";

/** Limit of a line of the program: a file of 16 MiB in which each byte is escaped. */
const MAX_LINE_BYTES = 128 * 1024 * 1024;
/** End of stderr that an error quotes. */
const MAX_STDERR = 4096;
/** Seconds that the program gets to end after its last session. */
const EXIT_TIMEOUT = 5;
/** Seconds after the exit of the program within which the last words are read. */
const PIPE_TIMEOUT = 1;
/** Field of a request at the start of a mistake, or after the executor of a table. */
const FIELD = /(^|: )([a-z]+(?:_[a-z]+)*): /;
/** Exit code of a program that does not know a flag. */
const USAGE = 2;

export type Method = CallRequest["method"];
export type Result<M extends Method> = ResultsByMethod[M];
export type Fields<M extends Method> = Omit<Extract<CallRequest, { method: M }>, "method">;

/** Line of an answer, with its text. */
export interface Answer {
  result?: unknown;
  success?: boolean;
  externalContext?: boolean;
  images?: AnswerImage[];
  error?: RequestError;
  line: string;
}

export interface ChildOptions {
  environment: NodeJS.ProcessEnv;
  /** Seconds of silence after which the program counts as stuck. */
  programTimeout: number;
  onEvent(event: CallEvent, child: CallChild): void;
  onLog(line: string): void;
  /** Called once, after all requests in flight failed. */
  onExit(reason: CaprootError): void;
}

interface Pending {
  resolve(answer: Answer): void;
  reject(error: Error): void;
  /** Context of the caller of a tool, in which own tools run. */
  readonly context: AsyncResource | undefined;
}

interface Queued {
  id: number;
  line: string;
}

export class CallChild {
  readonly #program = findProgram();
  readonly #process: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #options: ChildOptions;
  readonly #pending = new Map<number, Pending>();
  /** Requests that wait for room in the program. */
  readonly #queue: Queued[] = [];
  readonly #exited: Promise<void>;
  #inFlight = new Set<number>();
  #maxInFlight = 1;
  #maxLineBytes = Number.POSITIVE_INFINITY;
  #lastId = 0;
  #chunks: Buffer[] = [];
  #chunkBytes = 0;
  #stderr = "";
  /** Seconds of silence after which the program is asked or counts as stuck. */
  #silence: number;
  #timer: NodeJS.Timeout | undefined;
  #isPinged = false;
  #users = 0;
  #failure: CaprootError | undefined;

  private constructor(options: ChildOptions) {
    this.#options = options;
    this.#silence = options.programTimeout / 2;
    this.#process = spawn(this.#program, ["call", "--no-session"], {
      env: options.environment,
      stdio: ["pipe", "pipe", "pipe"],
    }) as ChildProcessByStdio<Writable, Readable, Readable>;
    this.#exited = new Promise((resolve) => this.#process.once("close", () => resolve()));
    this.#process.once("error", (error) => {
      this.#fail(new ProgramError(`the program caproot cannot be started: ${error.message}`));
    });
    this.#process.once("exit", () => {
      // A server that the program started may keep the pipes open.
      setTimeout(() => this.#closePipes(), PIPE_TIMEOUT * 1000).unref();
    });
    this.#process.once("close", (code, signal) => this.#fail(this.#exitReason(code, signal)));
    // A write to a program that ended fails; its exit has the reason.
    this.#process.stdin.on("error", () => {});
    this.#process.stdout.on("data", (chunk: Buffer) => this.#readChunk(chunk));
    this.#process.stdout.on("error", () => {});
    this.#process.stderr.setEncoding("utf8").on("data", (text: string) => this.#readLog(text));
    this.#process.stderr.on("error", () => {});
    this.#setReferenced(false);
  }

  /** Starts the program and checks its version. */
  static async start(options: ChildOptions): Promise<CallChild> {
    const child = new CallChild(options);
    try {
      const answer = await child.#send("hello", {}, true);
      const hello = answer.result as Result<"hello"> | undefined;
      if (hello?.version !== version) throw wrongVersion(hello?.version);
      child.#maxInFlight = hello.maxInFlight;
      child.#maxLineBytes = hello.maxLineBytes;
      return child;
    } catch (error) {
      child.kill();
      await child.#waitForExit();
      // Another version may not know the flags.
      const found = child.#process.exitCode === USAGE ? await child.#askVersion() : version;
      throw found === version ? error : wrongVersion(found);
    }
  }

  get isAlive(): boolean {
    return this.#failure === undefined;
  }

  /** Keeps the event loop of the program that uses the package while something waits. */
  retain(): void {
    this.#users += 1;
    if (this.#users === 1) this.#setReferenced(true);
  }

  release(): void {
    this.#users -= 1;
    if (this.#users === 0) this.#setReferenced(false);
  }

  /** Sends a request. Throws the error of the answer. */
  async request<M extends Method>(method: M, fields: Fields<M>, session?: string, signal?: AbortSignal): Promise<Result<M>> {
    const answer = await this.requestLine(method, fields, session, signal);
    return answer.result as Result<M>;
  }

  /** Sends a request, and returns the answer with its line. */
  async requestLine<M extends Method>(method: M, fields: Fields<M>, session?: string, signal?: AbortSignal): Promise<Answer> {
    signal?.throwIfAborted();
    const answer = await this.#send(method, session === undefined ? fields : { ...fields, session }, false, signal);
    if (answer.error) throw toError(answer.error);
    return answer;
  }

  /** Answers a call of the program by an event. */
  sendOutcome(call: number, outcome: Omit<Fields<"tool_result">, "call">): void {
    this.#send("tool_result", { call, ...outcome }, true).catch((error: Error) => {
      // The exit of the program has its own reason.
      if (this.isAlive) this.sendOutcome(call, { bug: error.message });
    });
  }

  /** Runs a function in the context of the caller of a tool, if the request is in flight. */
  runAsCaller<T>(request: unknown, run: () => T): T {
    const context = this.#pending.get(request as number)?.context;
    return context ? context.runInAsyncScope(run) : run();
  }

  /** Ends the program after its requests, and waits for its exit. */
  async end(): Promise<void> {
    this.#process.stdin.end();
    const timer = setTimeout(() => this.kill(), EXIT_TIMEOUT * 1000);
    await this.#waitForExit();
    clearTimeout(timer);
  }

  async #waitForExit(): Promise<void> {
    this.retain();
    await this.#exited;
    this.release();
  }

  /** Ends the program at once. */
  kill(): void {
    // SIGKILL also ends a program that is stopped.
    this.#process.kill("SIGKILL");
  }

  #askVersion(): Promise<string | undefined> {
    return new Promise((resolve) => {
      execFile(this.#program, ["--version"], { timeout: 5000 }, (_, stdout) => {
        resolve(/^caproot (\S+)/.exec(stdout)?.[1]);
      });
    });
  }

  #send(method: Method, fields: object, isUrgent: boolean, signal?: AbortSignal): Promise<Answer> {
    if (this.#failure) return Promise.reject(this.#failure);
    this.#lastId += 1;
    const id = this.#lastId;
    const line = `${JSON.stringify({ ...fields, id, method })}\n`;
    const bytes = Buffer.byteLength(line);
    if (bytes > this.#maxLineBytes) {
      const message = `the request has ${bytes} bytes, and its limit is ${this.#maxLineBytes} bytes`;
      return Promise.reject(new Refused("TOO_LARGE", message, "Send less at once."));
    }
    const context = method === "call" ? new AsyncResource("caproot") : undefined;
    const answered = new Promise<Answer>((resolve, reject) => this.#pending.set(id, { resolve, reject, context }));
    this.retain();

    if (isUrgent || this.#inFlight.size < this.#maxInFlight) this.#write(id, line, isUrgent);
    else this.#queue.push({ id, line });
    const onAbort = () => this.#abort(id, signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    return answered.finally(() => {
      signal?.removeEventListener("abort", onAbort);
      this.release();
    });
  }

  #write(id: number, line: string, isUrgent: boolean): void {
    if (!isUrgent) this.#inFlight.add(id);
    this.#process.stdin.write(line);
    if (!this.#timer) this.#startTimer();
  }

  #abort(id: number, reason: unknown): void {
    const pending = this.#pending.get(id);
    if (!pending) return;
    const queued = this.#queue.findIndex((entry) => entry.id === id);
    if (queued >= 0) {
      this.#queue.splice(queued, 1);
      this.#pending.delete(id);
    } else {
      // The answer with the error CANCELLED still counts as in flight.
      this.#pending.set(id, { ...pending, resolve() {}, reject() {} });
      this.#send("cancel", { request: id }, true).catch(() => {
        // The exit of the program has the reason.
      });
    }
    pending.reject(reason as Error);
  }

  #readChunk(chunk: Buffer): void {
    if (this.#failure) return;
    this.#restartTimer();
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0 && !this.#failure; end = chunk.indexOf(10, start)) {
      this.#chunks.push(chunk.subarray(start, end));
      start = end + 1;
      const line = Buffer.concat(this.#chunks).toString("utf8");
      this.#chunks = [];
      this.#chunkBytes = 0;
      if (line) this.#readLine(line);
    }
    this.#chunks.push(chunk.subarray(start));
    this.#chunkBytes += chunk.length - start;
    if (this.#chunkBytes > MAX_LINE_BYTES) {
      this.#fail(new ProgramError(`the program caproot wrote a line over ${MAX_LINE_BYTES} bytes`));
      this.kill();
    }
  }

  #readLine(line: string): void {
    let message: Record<string, unknown>;
    try {
      message = JSON.parse(line) as Record<string, unknown>;
      if (typeof message !== "object" || message === null) throw new SyntaxError("no object");
    } catch {
      this.#fail(new ProgramError(`the program caproot wrote a line that is no JSON object: ${line.slice(0, 200)}`));
      this.kill();
      return;
    }

    if (typeof message.event === "string") {
      this.#options.onEvent(message as unknown as CallEvent, this);
      return;
    }
    const id = message.id as number;
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    this.#inFlight.delete(id);
    pending?.resolve({ ...message, line } as Answer);
    if (this.#pending.size === 0) this.#stopTimer();

    const next = this.#inFlight.size < this.#maxInFlight ? this.#queue.shift() : undefined;
    if (next) this.#write(next.id, next.line, false);
  }

  #readLog(text: string): void {
    this.#stderr = (this.#stderr + text).slice(-MAX_STDERR);
    for (const line of text.split("\n")) if (line.trim()) this.#options.onLog(line);
  }

  #restartTimer(): void {
    this.#stopTimer();
    if (this.#pending.size > 0) this.#startTimer();
  }

  #stopTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#isPinged = false;
  }

  /** Waits for the next line. After a time of silence, the program gets a request that it answers at
   * once. */
  #startTimer(): void {
    this.#timer = setTimeout(() => {
      if (this.#isPinged) {
        this.#fail(new ProgramError(`the program caproot did not answer within ${Number((2 * this.#silence).toFixed(3))} s`));
        this.kill();
        return;
      }
      this.#isPinged = true;
      this.#startTimer();
      this.#send("hello", {}, true).catch(() => {
        // The exit of the program has the reason.
      });
    }, this.#silence * 1000);
  }

  #exitReason(code: number | null, signal: string | null): CaprootError {
    const words = this.#stderr.trim().replaceAll(/\s*\n\s*/g, " ");
    const said = words ? `: ${words}` : "";
    return new ProgramError(`the program caproot ended with ${signal ?? `the exit code ${code}`}${said}`);
  }

  /** Fails everything that waits. Only the first reason counts. */
  #fail(reason: CaprootError): void {
    if (this.#failure) return;
    this.#failure = reason;
    this.#stopTimer();
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    this.#queue.length = 0;
    for (const { reject } of pending) reject(reason);
    this.#options.onExit(reason);
  }

  #closePipes(): void {
    this.#process.stdout.destroy();
    this.#process.stderr.destroy();
  }

  #setReferenced(isReferenced: boolean): void {
    const handles = [this.#process, this.#process.stdin, this.#process.stdout, this.#process.stderr];
    for (const handle of handles as { ref?(): void; unref?(): void }[]) {
      if (isReferenced) handle.ref?.();
      else handle.unref?.();
    }
  }
}

function nameOption(_: string, before: string, field: string): string {
  return `${before}${field === "endpoint" ? "address" : field.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())}: `;
}

function wrongVersion(found = "an older version"): ProgramError {
  return new ProgramError(
    `the program caproot has the wrong version: found ${found}, and this package needs ${version}`,
  );
}

function toError(error: RequestError): CaprootError {
  if (error.code === "BAD_CONFIG") {
    // Options of this package have names in another form than the fields of a line.
    return new ConfigError((error.mistakes ?? [error.message]).map((mistake) => mistake.replace(FIELD, nameOption)));
  }
  return new Refused(error.code, error.message, error.next ?? "");
}
