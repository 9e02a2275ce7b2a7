/** Executors and fleets. */

import { resolve } from "node:path";
import { ConfigError } from "./errors.ts";
import type { ExecutorsRequest, FoundExecutor } from "./lines.ts";
import { type OptionNames, unknownOptions } from "./options.ts";

/** A token, or a function that returns the token. The function may be asynchronous. */
export type Token = string | (() => string | Promise<string>);

/** Credentials of an executor's daemon. The files are PEM files, and are read again for each connection. */
export interface Credentials {
  /** Authorities that the daemon's certificate must come from; those of the machine by default. */
  ca?: string;
  /** Certificate of the client. */
  cert?: string;
  /** Key of the certificate. */
  key?: string;
  /** Name that the daemon's certificate must have; the host by default. */
  serverName?: string;
  /** SPIFFE ID that the daemon's certificate must have. */
  spiffeId?: string;
  /** Token of each call. A function is called before each connection. */
  token?: Token;
  /** File with the token, which is read again after the daemon rejected the token. */
  tokenFile?: string;
  /** Seconds for each call of the daemon with its retries; 30 by default. */
  timeout?: number;
}

/** Address and credentials of an executor's daemon. */
export interface Executor extends Credentials {
  /** `unix:PATH`, `tcp:HOST:PORT` or `tls:HOST:PORT`. */
  address: string;
}

export const CREDENTIAL_NAMES: OptionNames<Credentials> = {
  ca: true,
  cert: true,
  key: true,
  serverName: true,
  spiffeId: true,
  token: true,
  tokenFile: true,
  timeout: true,
};
const EXECUTOR_NAMES: OptionNames<Executor> = { ...CREDENTIAL_NAMES, address: true };

/** Path of a fleet file, or executors or addresses by environment. */
export type FleetTable = string | Record<string, Executor | string>;

/** Function from an environment id to its executor or address, or to nothing. It may be asynchronous. An error of the
 * function is a warning of the process, and does not reach the model. */
export type FindExecutor = (
  environmentId: string,
) => Executor | string | null | undefined | Promise<Executor | string | null | undefined>;

/** Executors that a function finds. */
export interface FoundFleet {
  find: FindExecutor;
  /** Environments of a session without a selection. */
  environments: readonly string[];
}

let lastKey = 0;

/** Returns a key that no other fleet and session of this process has. */
export function makeKey(): string {
  lastKey += 1;
  return String(lastKey);
}

/** Executors of a session or fleet. */
export class Connection {
  readonly key = makeKey();
  readonly #table: Record<string, Executor> | undefined;
  readonly #file: string | undefined;
  readonly #found: FoundFleet | undefined;
  /** Executor without a fleet. */
  readonly #single: Partial<Executor>;
  /** Whether nothing names an executor. */
  readonly #isDefault: boolean;

  constructor(address: string | undefined, fleet: FleetTable | FoundFleet | undefined, credentials: Credentials) {
    const given = Object.entries(credentials).filter(([, value]) => value !== undefined);
    const names = [...(address === undefined ? [] : ["address"]), ...given.map(([name]) => name)];
    if (fleet !== undefined && names.length > 0) {
      throw new ConfigError(names.map((name) => `\`fleet\` and \`${name}\` are both set: set one`));
    }
    this.#found = isFound(fleet) ? fleet : undefined;
    this.#file = typeof fleet === "string" ? resolve(fleet) : undefined;
    if (typeof fleet === "object" && !isFound(fleet)) {
      this.#table = Object.fromEntries(Object.entries(fleet).map(([name, executor]) => [name, toExecutor(executor)]));
    }
    this.#isDefault = names.length === 0 && fleet === undefined;
    this.#single = this.#isDefault ? executorOfEnvironment() : { ...credentials, ...(address !== undefined && { address }) };
    const mistakes = [this.#single, ...Object.values(this.#table ?? {})].flatMap(findMistakes);
    if (mistakes.length > 0) throw new ConfigError(mistakes);
  }

  /** Returns the executors for the program. */
  describe(): ExecutorsRequest {
    return { key: this.key, from: this.#origin(), optional: this.#isDefault };
  }

  #origin(): ExecutorsRequest["from"] {
    if (this.#file !== undefined) return { file: this.#file };
    if (this.#found) return { find: [...this.#found.environments] };
    if (!this.#table) return hasTokenFunction(this.#single) ? { find_one: null } : { one: fieldsOf(this.#single) };
    // The program asks for each executor before it connects, and so for the token of now.
    const executors = Object.entries(this.#table);
    if (executors.some(([, executor]) => hasTokenFunction(executor))) return { find: executors.map(([name]) => name) };
    return { table: Object.fromEntries(executors.map(([name, executor]) => [name, fieldsOf(executor)])) };
  }

  /** Returns the executor of an environment for the program, or `null`. */
  async find(environmentId: string): Promise<FoundExecutor | null> {
    const executor = await this.#lookUp(environmentId);
    if (!executor) return null;
    // The program reports all other mistakes, and no text of an exception.
    const mistakes = unknownOptions("executor", executor, EXECUTOR_NAMES);
    if (mistakes.length > 0) throw new ConfigError(mistakes);
    const token = executor.token === undefined ? null : await readToken(executor.token);
    return { ...fieldsOf(executor), token };
  }

  async #lookUp(environmentId: string): Promise<Partial<Executor> | undefined> {
    if (this.#table) return Object.hasOwn(this.#table, environmentId) ? this.#table[environmentId] : undefined;
    if (!this.#found) return this.#single;
    const found = await this.#found.find(environmentId);
    return found === undefined || found === null ? undefined : toExecutor(found);
  }
}

/** Returns the executor of the variables that the command line reads, too. */
function executorOfEnvironment(): Partial<Executor> {
  const { CAPROOT_ENDPOINT, CAPROOT_CA, CAPROOT_CERT, CAPROOT_KEY, CAPROOT_TOKEN_FILE } = process.env;
  const found = { address: CAPROOT_ENDPOINT, ca: CAPROOT_CA, cert: CAPROOT_CERT, key: CAPROOT_KEY, tokenFile: CAPROOT_TOKEN_FILE };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value));
}

function hasTokenFunction({ token }: Partial<Executor>): boolean {
  return typeof token === "function";
}

/** Returns a duration as the program reads it. */
export function spanOf(seconds: number | undefined): string | undefined {
  return seconds === undefined ? undefined : `${Math.round(seconds * 1000)}ms`;
}

/** Returns a token of now. */
export async function readToken(token: Token): Promise<string> {
  const text = typeof token === "function" ? await token() : token;
  if (typeof text !== "string") throw new TypeError("the result of token is no string");
  return text;
}

function isFound(fleet: FleetTable | FoundFleet | undefined): fleet is FoundFleet {
  return typeof fleet === "object" && typeof fleet.find === "function";
}

/** Returns an executor as the program reads it. */
function fieldsOf(executor: Partial<Executor>): FoundExecutor {
  return {
    endpoint: executor.address ?? null,
    ca: absolute(executor.ca) ?? null,
    cert: absolute(executor.cert) ?? null,
    key: absolute(executor.key) ?? null,
    server_name: executor.serverName ?? null,
    spiffe_id: executor.spiffeId ?? null,
    token: typeof executor.token === "string" ? executor.token : null,
    token_file: absolute(executor.tokenFile) ?? null,
    timeout: spanOf(executor.timeout) ?? null,
  };
}

function toExecutor(executor: Executor | string): Executor {
  return typeof executor === "string" ? { address: executor } : executor;
}

function findMistakes(executor: Partial<Executor>): string[] {
  const mistakes = unknownOptions("executor", executor, EXECUTOR_NAMES);
  if ((executor.cert === undefined) !== (executor.key === undefined)) {
    mistakes.push("`cert` and `key` belong together: set both");
  }
  if (executor.token !== undefined && executor.tokenFile !== undefined) {
    mistakes.push("`token` and `tokenFile` are both set: set one");
  }
  return mistakes;
}

function absolute(path: string | undefined): string | undefined {
  return path === undefined ? undefined : resolve(path);
}
