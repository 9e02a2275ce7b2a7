/** Sessions: skills of one conversation. */

import { resolve } from "node:path";
import { Changes } from "./changes.ts";
import { CODEX_PRODUCT, Codex } from "./codex.ts";
import type { Answer, CallChild, Fields, Method, Result } from "./child.ts";
import { Dispatcher, type DispatcherOptions, type Manager } from "./dispatch.ts";
import { type CaprootError, ConfigError, Refused, StoreError } from "./errors.ts";
import { Connection, CREDENTIAL_NAMES, type Credentials, type Executor, type FindExecutor, type FleetTable, type FoundFleet, spanOf } from "./fleet.ts";
import { ProgramHost, SessionOrigin } from "./host.ts";
import { type AnswerImage, type CallEvent, type ListedSkill, type SavedChanges, type SourcesRequest, START_FIELDS, type StartOptions } from "./lines.ts";
import { checkOptions, type OptionNames, unknownOptions } from "./options.ts";
import { type AuthorizationFunction, PLUGIN_SERVERS_NAMES, type PluginServers, serverNames } from "./plugin_servers.ts";
import { describeSources, type Source } from "./sources.ts";
import { callStore, readStored, type Store } from "./store.ts";
import { type JsonSchema, Tools } from "./tools.ts";

/** Selected roots as a platform made them: the array, an object with `selectedCapabilityRoots`, or the JSON
 * of one of them. */
export type Roots = string | readonly object[] | { selectedCapabilityRoots: readonly object[] };

/** Skills of a session, out of all skills of its sources. A rule is `name:NAME`, `handle:HANDLE` or
 * `source:KIND/ID`, where KIND is `executor`, `local`, `mcp` or `site`. */
export interface Choice {
  /** Rules that include skills; every skill by default. */
  include?: string[];
  /** Rules that exclude skills. They take precedence. */
  exclude?: string[];
  /** Rules of skills that the text never cuts while another skill is in the text. */
  pin?: string[];
  /** Rules of skills that the text lists without a description. */
  nameOnly?: string[];
  /** Rules of skills that are hidden from models. A person or the program may still name them. */
  manual?: string[];
  /** Rules of skills that are offered to models although they are switched off by default. */
  enable?: string[];
}

/** Options of a session apart from its executors. */
export interface SessionOptions extends StartOptions {
  /** Selected roots, passed on unchanged; the published roots by default. */
  roots?: Roots;
  /** Own tools. They are sealed by the start. */
  tools?: Tools;
  /** Rules that include or exclude skills, or change their place in the text. */
  choice?: Choice;
  /** Id of the session; random by default. */
  id?: string;
  /** Only skills for this product, or for every product. */
  product?: string;
  /** Seconds to wait for executors that do not answer; 5 by default. Their skills appear later. */
  startTimeout?: number;
  /** Seconds for which the skills of a lost executor stay listed; 10 by default. */
  gracePeriod?: number;
  /** Store for `persist` and `restore`. */
  store?: Store;
}

/** Options of `connect`. */
export interface ConnectOptions extends SessionOptions, Credentials {
  /** Many executors: a `Fleet`, the path of a fleet file, or executors or addresses by environment. */
  fleet?: Fleet | FleetTable;
  /** Local directories and MCP servers next to the executors. */
  sources?: readonly Source[];
  /** Lock of `caproot lock`: only skills that it approves, with its descriptions and verified files. */
  lock?: string;
  /** Keys that may sign the lock, as a file with the format of `allowed_signers`. */
  signers?: string;
  /** HTTP MCP servers of plugins whose tools the session has; none by default. */
  pluginServers?: PluginServers;
  /**
   * Returns the value of `Authorization` for an HTTP MCP server that answered 401 and whose declaration has no
   * credential: of plugins and of `sources`. The tools and skills of the server are a change.
   */
  authorize?: AuthorizationFunction;
  /** Seconds within which the program must show that it runs; 10 by default. */
  programTimeout?: number;
  /** Gets each line that the program logs. */
  log?: (line: string) => void;
}

const CHOICE_NAMES: OptionNames<Choice> = { include: true, exclude: true, pin: true, nameOnly: true, manual: true, enable: true };
const CONNECT_NAMES: OptionNames<ConnectOptions & { address?: string }> = {
  ...CREDENTIAL_NAMES,
  ...START_FIELDS,
  address: true,
  fleet: true,
  roots: true,
  tools: true,
  sources: true,
  choice: true,
  store: true,
  id: true,
  product: true,
  lock: true,
  signers: true,
  pluginServers: true,
  authorize: true,
  startTimeout: true,
  gracePeriod: true,
  programTimeout: true,
  log: true,
};
const FORK_NAMES: OptionNames<ForkOptions> = { ...CHOICE_NAMES, roots: true, product: true };
const INJECT_NAMES: OptionNames<InjectOptions> = { mentions: true, connectors: true, callerSkills: true, arguments: true };

/** Tool for a model. */
export interface ToolDefinition {
  name: string;
  description: string;
  /** JSON Schema of the arguments. */
  inputSchema: JsonSchema;
}

/** Source whose skills or state changed. */
export interface Change {
  kind: "executor" | "local" | "mcp" | "site";
  /** Id of the source; the environment of an executor. */
  id: string;
}

/** Changes of the plugins. */
export type PluginChanges = Pick<Extract<CallEvent, { event: "plugins" }>, "added" | "changed" | "removed">;

/** Use of a skill, without any text. */
export type UsageEvent = Omit<Extract<CallEvent, { event: "usage" }>, "event">;

/** Roots and rules of a fork. */
export interface ForkOptions extends Choice {
  /** Ids of the roots of the new session; by default all. */
  roots?: string[];
  /** Only skills of the session for this product, or for every product. */
  product?: string;
}

/** Context of a prompt, for `inject`. */
export interface InjectOptions {
  /** Mentions next to the text. */
  mentions?: { name?: string; handle?: string }[];
  /** Names that mean a connector if they stand alone. */
  connectors?: string[];
  /** Names of skills that the program has. */
  callerSkills?: string[];
  /** Text for the placeholders of the skills, such as `$ARGUMENTS`. */
  arguments?: string;
}

/** Image or sound of a tool's result. */
export interface ResultImage {
  /** Type as the server names it, such as `image/png`. */
  mimeType: string;
  /** Content. */
  data: Uint8Array;
}

/** Result of a tool for a model. */
export class ToolResult {
  /** Whether the call succeeded. If not, `text` has the error and the next step. */
  readonly ok: boolean;
  /** Whether third parties wrote the result, so that a model should follow no instruction in it. */
  readonly external: boolean;
  /** One JSON object of at most `resultBytes` bytes. */
  readonly text: string;
  /** Images and sounds that `text` names by type and size. Only tools of plugins' MCP servers have images. */
  readonly images: readonly ResultImage[];

  constructor(ok: boolean, external: boolean, text: string, images: readonly ResultImage[] = []) {
    this.ok = ok;
    this.external = external;
    this.text = text;
    this.images = images;
  }

  /** Returns the parsed object. */
  json(): Record<string, unknown> {
    return JSON.parse(this.text) as Record<string, unknown>;
  }
}

/** Executors by environment id. Sessions that share a fleet share its connections, and one program. */
export class Fleet {
  #connection: Connection | undefined;
  #table: FleetTable | FoundFleet;
  #host: ProgramHost | undefined;

  /** Takes the executor or address of each environment. */
  constructor(executors: FleetTable) {
    this.#table = executors;
  }

  /** Returns the fleet of a fleet file, which is read again when it changes. */
  static fromFile(path: string): Fleet {
    return new Fleet(path);
  }

  /** Returns a fleet whose executors a function finds, before each connection, within 10 s. `environments` are
   * those of a session without a selection. */
  static find(find: FindExecutor, environments: readonly string[] = []): Fleet {
    const fleet = new Fleet({});
    fleet.#table = { find, environments };
    return fleet;
  }

  /** Returns the program and the executors of a session of the fleet.
   * @internal */
  static open(
    fleet: Fleet,
    makeHost: () => ProgramHost,
    connect: (table: FleetTable | FoundFleet) => Connection,
  ): { host: ProgramHost; connection: Connection } {
    fleet.#connection ??= connect(fleet.#table);
    fleet.#host ??= makeHost();
    return { host: fleet.#host, connection: fleet.#connection };
  }
}

/**
 * Begins a session: `await using skills = await connect()`.
 *
 * Without arguments, the session has the published roots of the daemon that the command line would find: at
 * `CAPROOT_ENDPOINT`, or at the first default socket that answers. `address` is the address of one daemon:
 * `unix:PATH`, `tcp:HOST:PORT` or `tls:HOST:PORT`.
 *
 * Throws `ConfigError` with all mistakes of the arguments, `Refused` if no daemon answers, and `ProgramError`
 * if the program cannot be used.
 */
export function connect(options?: ConnectOptions): Promise<Session>;
export function connect(address: string | Executor, options?: ConnectOptions): Promise<Session>;
export async function connect(first?: string | Executor | ConnectOptions, more?: ConnectOptions): Promise<Session> {
  const { address, ...options } = readArguments(first, more);
  return begin(openHost(address, options), options, undefined);
}

/**
 * Restores a session with its id, product, choice and selection. `saved` is a text of `save` or, with `store`,
 * the id of a session that was persisted. The options are those of `connect`. `changesSinceSave` has the changes
 * of each executor, and `warnings` the parts that could not be restored.
 */
export async function restore(saved: string, options: ConnectOptions & { address?: string } = {}): Promise<Session> {
  const { address, ...rest } = options;
  const isText = !options.store || saved.trimStart().startsWith("{");
  const text = options.store && !isText ? await readStored(options.store, saved) : saved;
  return begin(openHost(address, rest), rest, parseJson("saved", text));
}

function readArguments(first?: string | Executor | ConnectOptions, more?: ConnectOptions): ConnectOptions & { address?: string } {
  if (first === undefined) return { ...more };
  return typeof first === "string" ? { ...more, address: first } : { ...first, ...more };
}

/** Program of a session, and its origin. */
interface OpenHost {
  host: ProgramHost;
  origin: SessionOrigin;
}

function openHost(address: string | undefined, options: ConnectOptions): OpenHost {
  const mistakes = [
    ...unknownOptions("options", options, CONNECT_NAMES),
    ...unknownOptions("choice", options.choice, CHOICE_NAMES),
    ...unknownOptions("pluginServers", options.pluginServers, PLUGIN_SERVERS_NAMES),
  ];
  if (mistakes.length > 0) throw new ConfigError(mistakes);
  const { ca, cert, key, serverName, spiffeId, token, tokenFile, timeout } = options;
  const credentials = { ca, cert, key, serverName, spiffeId, token, tokenFile, timeout };
  const given = Object.fromEntries(Object.entries(credentials).filter(([, value]) => value !== undefined));
  const connect = (table?: FleetTable | FoundFleet) => new Connection(address, table, given as Credentials);
  const makeHost = () => new ProgramHost({ programTimeout: options.programTimeout ?? 10, log: options.log });

  const { fleet } = options;
  const { host, connection } =
    fleet instanceof Fleet ? Fleet.open(fleet, makeHost, connect) : { host: makeHost(), connection: connect(fleet) };
  return { host, origin: new SessionOrigin(connection, options.sources ?? [], options.pluginServers, options.authorize) };
}

function describeOrigin(origin: SessionOrigin, { lock, signers }: ConnectOptions): SourcesRequest {
  return {
    key: origin.key,
    executors: origin.connection.describe(),
    ...describeSources(origin.sources),
    lock: lock === undefined ? null : resolve(lock),
    signers: signers === undefined ? null : resolve(signers),
    private_origins: [...(origin.pluginServers?.privateOrigins ?? [])],
    ask_values: origin.pluginServers?.value !== undefined,
    ask_authorization: origin.authorize !== undefined,
  };
}

function ruleFields({ include = [], exclude = [], pin = [], nameOnly = [], manual = [], enable = [] }: Choice) {
  return { include, exclude, pin, name_only: nameOnly, manual, enable };
}

async function begin({ host, origin }: OpenHost, options: ConnectOptions, saved: unknown): Promise<Session> {
  const tools = options.tools && Tools.seal(options.tools);
  const fields = Object.entries(START_FIELDS).map(([name, field]) => [field, options[name as keyof StartOptions] ?? null]);
  const settings: Fields<"start"> = {
    ...(Object.fromEntries(fields) as Fields<"start">),
    tools: tools ?? [],
    plugin_servers: serverNames(options.pluginServers),
    start_timeout: spanOf(options.startTimeout ?? 5) ?? null,
    grace_period: spanOf(options.gracePeriod ?? 10) ?? null,
    sources: describeOrigin(origin, options),
  };
  const selection =
    saved === undefined
      ? {
          roots: typeof options.roots === "string" ? parseJson("roots", options.roots) : (options.roots ?? null),
          session_id: options.id ?? null,
          product: options.product ?? null,
          ...ruleFields(options.choice ?? {}),
        }
      : { saved };

  host.retain();
  try {
    const child = await host.child();
    const started = await host.starting(origin, () => child.request("start", { ...selection, ...settings }));
    const session = new Session(host, started.session, { settings, origin, tools: options.tools, store: options.store });
    await Session.attach(session, child, started);
    return session;
  } catch (error) {
    await host.release();
    throw error;
  }
}

/** Parts of a session that its forks have, too. */
interface SharedParts {
  settings: Fields<"start">;
  origin: SessionOrigin;
  tools: Tools | undefined;
  store: Store | undefined;
}

/**
 * Skills of one conversation: a text and tools for a model.
 *
 * Each method may be called any number of times at once. Skills are external context: third parties wrote
 * them. The text belongs into a developer message or a user message, never into the system prompt.
 */
export class Session {
  /** Id of the session. */
  readonly id: string;
  readonly #host: ProgramHost;
  readonly #parts: SharedParts;
  readonly #changes = new Set<Changes<Change>>();
  readonly #pluginChanges = new Set<Changes<PluginChanges>>();
  readonly #usage = new Set<Changes<UsageEvent>>();
  /** Events that a slow reader of `#usage` lost. */
  readonly #lostUsage = new WeakMap<Changes<UsageEvent>, number>();
  /** Program that prints the uses of the session. */
  #usageChild: CallChild | undefined;
  /** Id of the session whose tools this session has. */
  #toolOwner: string;
  #child: CallChild | undefined;
  #attachedAt = 0;
  #attaching: Promise<CallChild> | undefined;
  #saved: Record<string, unknown> = {};
  #text = "";
  #definitions: ToolDefinition[] = [];
  #warnings: string[] = [];
  /** Last operation of the store, so that an older state never replaces a newer one. */
  #storing: Promise<unknown> = Promise.resolve();
  #closing: Promise<void> | undefined;
  /** Forks of adapters, which end with the session. */
  readonly #forks = new Set<Session>();

  /** Sessions are made by `connect`, `restore` and `fork`.
   * @internal */
  constructor(host: ProgramHost, id: string, parts: SharedParts, toolOwner = id) {
    this.id = id;
    this.#host = host;
    this.#parts = parts;
    this.#toolOwner = toolOwner;
  }

  /** Makes a session that a program started usable.
   * @internal */
  static async attach(session: Session, child: CallChild, started?: Result<"start">): Promise<void> {
    const { id } = session;
    session.#host.add(id, {
      origin: session.#parts.origin,
      onEvent: (event) => session.#onEvent(event),
      onExit: (reason) => session.#onExit(reason),
    });
    if (session.#parts.tools) session.#host.retainTools(session.#toolOwner, session.#parts.tools);
    const [watched, saved] = await Promise.all([child.request("watch", {}, id), child.request("save", {}, id)]);
    session.#text = watched.text;
    session.#definitions = readTools(watched.tools);
    session.#saved = saved;
    session.#warnings = started?.warnings ?? session.#warnings;
    session.#child = child;
    session.#attachedAt = Date.now();
    for (const _ of session.#iterators) child.retain();
    if (session.#usage.size > 0) await session.#requestUsage(child);
  }

  /** Text that describes the skills to a model, in at most 8,000 bytes. It is renewed with each change. */
  get text(): string {
    return this.#text;
  }

  /** Tools for a model. */
  get tools(): ToolDefinition[] {
    return structuredClone(this.#definitions);
  }

  /** Executors and saved parts without which the session began, one sentence each. */
  get warnings(): string[] {
    return [...this.#warnings];
  }

  /** Whether the session is closed. */
  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  /**
   * Calls a tool for a model. An error of the call is a result, too, with the next step.
   *
   * `args` are the arguments as the model gave them: an object, or a text of JSON. If the signal is aborted,
   * the call is cancelled.
   */
  async call(name: string, args: object | string = {}, { signal }: { signal?: AbortSignal | undefined } = {}): Promise<ToolResult> {
    const fields = { tool: name, arguments: readModelArguments(args) };
    const child = await this.#attached();
    const answer = await child.requestLine("call", fields, this.id, signal);
    const images = readImages(answer.images);
    return new ToolResult(answer.success === true, answer.externalContext === true, resultText(answer), images);
  }

  /** Returns all skills that a model may use. */
  list(): Promise<ListedSkill[]> {
    return this.#request("list", {});
  }

  /**
   * Returns a text file of a skill, at most 16 MiB. `skill` may be a name or handle. `path` is relative to the
   * skill, as its SKILL.md links it, such as `references/patterns.md`; the SKILL.md by default.
   */
  async read(skill: ListedSkill | string, path = ""): Promise<string> {
    const named = typeof skill === "string" ? { skill } : { skill: skill.package, authority: skill.authority };
    const { text } = await this.#request("read", { ...named, path });
    return text;
  }

  /** Returns the changes from now on: `for await (const change of skills.changes())`. A change names its source,
   * and `text`, `tools` and `list` are new. The iteration ends with the session. */
  changes(): AsyncIterableIterator<Change> {
    return this.#watch(this.#changes);
  }

  /** Returns the plugins, if the session began with `plugins: true`, as JSON of the API. */
  plugins(): Promise<Result<"plugins">> {
    return this.#request("plugins", {});
  }

  /** Returns the changes of plugins from now on, with `added`, `changed` and `removed`. */
  pluginChanges(): AsyncIterableIterator<PluginChanges> {
    return this.#watch(this.#pluginChanges);
  }

  /** Tries again to use the MCP servers that cannot be used, of plugins and of `sources`, such as after a user logged
   * in: `authorize` is asked again after another 401. Returns those of plugins with their tools and errors. */
  retryServers(): Promise<Result<"retry_servers">> {
    return this.#request("retry_servers", {});
  }

  /** Returns the uses of skills from now on: a skill is used if it is listed, read, injected or searched. An
   * event has `lost` if events before it are lost, because the program read them too slowly. */
  usage(): AsyncIterableIterator<UsageEvent> {
    const events = this.#watch(this.#usage);
    if (!this.isClosed) {
      this.#attached()
        .then((child) => this.#requestUsage(child))
        .catch((error: Error) => {
          for (const reader of this.#usage) reader.fail(error);
        });
    }
    return events;
  }

  /** Reads the skills that a user mentions, for a user message next to the prompt. `$name` and `[$name](handle)`
   * mention a skill. */
  async inject(text: string, options: InjectOptions = {}): Promise<Result<"inject">> {
    checkOptions("options", options, INJECT_NAMES);
    const { mentions = [], connectors = [], callerSkills = [], arguments: given = "" } = options;
    return this.#request("inject", { text, mentions, connectors, caller_skills: callerSkills, arguments: given });
  }

  /** Returns the text of at most `budget` bytes, with its counts and warnings. With the id of the text that the model
   * has as `known`, the text is a notice of the changes, empty if nothing changed, or whole if that is shorter or the
   * session does not know the id. */
  instructionText(budget = 8000, known: string | null = null): Promise<Result<"instructions">> {
    return this.#request("instructions", { budget, known });
  }

  /** Returns the last 128 files of skills that the model read or was given, the most recently used first. */
  usedSkills(): Promise<Result<"used_skills">> {
    return this.#request("used_skills", {});
  }

  /** Returns the files of `usedSkills` for a model that has forgotten them, in at most `budget` bytes. */
  reinject(budget = 32_000): Promise<Result<"reinject">> {
    return this.#request("reinject", { budget });
  }

  /** Returns the state of each executor. */
  executors(): Promise<Result<"state">> {
    return this.#request("state", {});
  }

  /** Returns the state of each source: executors, directories, MCP servers and sites. */
  sourceStates(): Promise<Result<"source_states">> {
    return this.#request("source_states", {});
  }

  /** Returns a session with the roots and skills of this session, or some of them, such as for a subagent. The
   * fork has the rules of this session, too, and no skill that this session does not have. */
  async fork(options: ForkOptions = {}): Promise<Session> {
    checkOptions("options", options, FORK_NAMES);
    const { roots, product, ...choice } = options;
    const child = await this.#attached();
    this.#host.retain();
    try {
      const { session: id } = await child.request("fork", { roots: roots ?? null, product: product ?? null, ...ruleFields(choice) }, this.id);
      const fork = new Session(this.#host, id, this.#parts, this.#toolOwner);
      await Session.attach(fork, child);
      return fork;
    } catch (error) {
      await this.#host.release();
      throw error;
    }
  }

  /** Returns the tools, the text and the answers for a thread of `codex app-server`, with the skills of this session for
   * the product `codex`. */
  async codex(): Promise<Codex> {
    const fork = await this.fork({ product: CODEX_PRODUCT });
    this.#forks.add(fork);
    return new Codex(fork);
  }

  /** Returns the session as a text of JSON without the text of a skill, at most 4 MiB, for `restore`. */
  async save(): Promise<string> {
    return JSON.stringify(await this.#request("save", {}));
  }

  /** Returns the changes of each executor since the save; empty if the session was not restored. */
  changesSinceSave(): Promise<SavedChanges[]> {
    return this.#request("changes", {});
  }

  /** Saves the session in its store. Throws `StoreError`. */
  persist(): Promise<void> {
    return this.#store(async (store) => {
      const saved = await this.save();
      await callStore(() => store.put(this.id, saved));
    });
  }

  /** Returns a dispatcher that answers the pending calls of a platform's thread. Calls of other threads are
   * ignored. */
  async dispatcher(threadId: string, manager: Manager, options: DispatcherOptions = {}): Promise<Dispatcher> {
    return Dispatcher.make(this.#host, await this.#attached(), this.id, { threadId, manager, options });
  }

  /** Closes the session. Calls in flight end with `SESSION_CLOSED`; forks stay open. The program ends with its
   * last session. With `delete`, the store deletes the saved state. */
  async close(options: { delete?: boolean } = {}): Promise<void> {
    this.#closing ??= this.#close();
    await this.#closing;
    if (options.delete) await this.#store((store) => callStore(() => store.delete(this.id)));
  }

  /** Runs an operation of the store after those before. */
  #store(operate: (store: Store) => Promise<void>): Promise<void> {
    const { store } = this.#parts;
    if (!store) return Promise.reject(new StoreError("the session has no store: pass `store` to connect"));
    const stored = this.#storing.then(() => operate(store));
    this.#storing = stored.catch(() => {
      // The caller has the error.
    });
    return stored;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    const child = this.#child;
    for (const changes of this.#iterators) changes.end();
    for (const fork of this.#forks) await fork.close();
    if (child?.isAlive) {
      await child.request("close", {}, this.id).catch(() => {
        // A program that has ended has no session.
      });
    }
    this.#host.remove(this.id);
    if (this.#parts.tools) this.#host.releaseTools(this.#toolOwner);
    await this.#host.release();
  }

  async #request<M extends Method>(method: M, fields: Fields<M>): Promise<Result<M>> {
    const child = await this.#attached();
    return child.request(method, fields, this.id);
  }

  /** Returns the program with the session. Restores the session in a new program. */
  async #attached(): Promise<CallChild> {
    if (this.isClosed) throw new Refused("SESSION_CLOSED", "the session is closed", "Begin another session.");
    if (this.#child?.isAlive) return this.#child;
    this.#attaching ??= this.#restore().finally(() => {
      this.#attaching = undefined;
    });
    return this.#attaching;
  }

  async #restore(): Promise<CallChild> {
    const child = await this.#host.child();
    const { origin, settings } = this.#parts;
    const started = await this.#host.starting(origin, () => child.request("start", { saved: this.#saved, ...settings }));
    if (this.#parts.tools) this.#host.releaseTools(this.#toolOwner);
    // The session has the tools for itself now, also if it was a fork.
    this.#toolOwner = this.id;
    await Session.attach(this, child, started);
    for (const { environmentId } of started.changes) this.#publish({ kind: "executor", id: environmentId });
    return child;
  }

  #watch<T>(all: Set<Changes<T>>): AsyncIterableIterator<T> {
    const changes = new Changes<T>((ended) => {
      all.delete(ended);
      if (this.#child?.isAlive) this.#child.release();
    });
    if (this.isClosed) {
      changes.end();
      return changes;
    }
    all.add(changes);
    if (this.#child?.isAlive) this.#child.retain();
    return changes;
  }

  get #iterators(): { end(): void; fail(error: Error): void }[] {
    return [...this.#changes, ...this.#pluginChanges, ...this.#usage];
  }

  async #requestUsage(child: CallChild): Promise<void> {
    if (this.#usageChild === child) return;
    this.#usageChild = child;
    await child.request("watch_usage", {}, this.id);
  }

  #publishUsage(event: UsageEvent): void {
    for (const reader of this.#usage) {
      const lost = (this.#lostUsage.get(reader) ?? 0) + (event.lost ?? 0);
      this.#lostUsage.set(reader, reader.isFull ? lost + 1 : 0);
      if (!reader.isFull) reader.push(lost > 0 ? { ...event, lost } : event);
    }
  }

  #publish(change: Change): void {
    for (const changes of this.#changes) changes.push(change, `${change.kind}/${change.id}`);
  }

  #onEvent(event: CallEvent): void {
    if (event.event === "plugins") {
      const { added, changed, removed } = event;
      for (const changes of this.#pluginChanges) changes.push({ added, changed, removed });
    } else if (event.event === "usage") {
      const { event: _, ...used } = event;
      this.#publishUsage(used);
    } else if (event.event === "changed") {
      this.#text = event.text ?? this.#text;
      if (event.tools) this.#definitions = readTools(event.tools);
      if (event.source) this.#publish({ kind: event.source.kind as Change["kind"], id: event.source.id });
      else if (event.executor) this.#publish({ kind: "executor", id: event.executor.environmentId });
    }
  }

  /** Restores the session for its iterators. A program that ends at once is not started again. */
  #onExit(reason: CaprootError): void {
    const open = this.#iterators;
    if (open.length === 0 || this.isClosed) return;
    const restored = Date.now() - this.#attachedAt < 1000 ? Promise.reject(reason) : this.#attached();
    restored.catch((error: Error) => {
      for (const changes of open) changes.fail(error);
    });
  }
}

function readTools(tools: Result<"tools">): ToolDefinition[] {
  return tools.map(({ name, description, inputSchema }) => ({ name, description, inputSchema }));
}

/** Decodes the images of a line. */
export function readImages(images: AnswerImage[] = []): ResultImage[] {
  return images.map(({ mimeType, data }) => ({ mimeType, data: Buffer.from(data, "base64") }));
}

/** Returns the result as the program wrote it: its size is that of the limit. */
function resultText({ line }: Answer): string {
  const name = '"result":';
  return line.slice(line.indexOf(name) + name.length, line.lastIndexOf("}"));
}

/** A text that is no JSON is an invalid argument. */
function readModelArguments(args: object | string): unknown {
  if (typeof args !== "string") return args;
  try {
    return JSON.parse(args || "{}") as unknown;
  } catch {
    return args;
  }
}

function parseJson(name: string, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new ConfigError([`${name}: ${(error as Error).message}`]);
  }
}
