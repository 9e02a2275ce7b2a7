/** Executors and fleets. */

import {
  closeSync,
  fstatSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { ConfigError } from "./errors.ts";
import type { FoundExecutor } from "./lines.ts";
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
  /** Token of each call. A function is called when the program starts, and after an executor was lost. */
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

/** Files for a program, such as tokens. On Linux they are descriptors without a name, which end with this process,
 * however it ends. On other systems they are in a private directory, which is removed with the program. */
export class PrivateFiles {
  #directory: string | undefined;
  /** Descriptors by the names of the files. */
  readonly #open = new Map<string, number>();
  readonly #remove = () => this.remove();

  /** Descriptors that the program inherits from 3 on. */
  get descriptors(): number[] {
    return [...this.#open.values()];
  }

  /** Returns the path by which the program reads a file. */
  pathOf(name: string): string {
    if (process.platform !== "linux") return join(this.#makeDirectory(), name);
    if (!this.#open.has(name)) {
      const directory = mkdtempSync(join(tmpdir(), "caproot-"));
      this.#open.set(name, openSync(join(directory, name), "wx+", 0o600));
      rmSync(directory, { recursive: true });
    }
    return `/dev/fd/${3 + [...this.#open.keys()].indexOf(name)}`;
  }

  /** Writes a file of mode 0600 and returns its path. The program may read it at any time, so that it is
   * replaced as a whole. */
  write(name: string, text: string): string {
    const path = this.pathOf(name);
    const descriptor = this.#open.get(name);
    if (descriptor === undefined) {
      writeFileSync(`${path}.new`, text, { mode: 0o600 });
      renameSync(`${path}.new`, path);
    } else {
      // One write: spaces at the end are no part of a token, and none of JSON.
      const padded = text.padEnd(fstatSync(descriptor).size);
      writeSync(descriptor, padded, 0);
      ftruncateSync(descriptor, Buffer.byteLength(text));
    }
    return path;
  }

  remove(): void {
    for (const descriptor of this.#open.values()) closeSync(descriptor);
    this.#open.clear();
    if (this.#directory !== undefined) rmSync(this.#directory, { recursive: true, force: true });
    this.#directory = undefined;
    process.off("exit", this.#remove);
  }

  #makeDirectory(): string {
    if (this.#directory === undefined) {
      this.#directory = mkdtempSync(join(tmpdir(), "caproot-"));
      process.once("exit", this.#remove);
    }
    return this.#directory;
  }
}

/** Executors of a program. */
export class Connection {
  readonly #executors: Executor[];
  readonly #isNamed: boolean;
  readonly #fleet: FleetTable | undefined;
  readonly #found: FoundFleet | undefined;

  constructor(address: string | undefined, fleet: FleetTable | FoundFleet | undefined, credentials: Credentials) {
    const given = Object.entries(credentials).filter(([, value]) => value !== undefined);
    this.#found = isFound(fleet) ? fleet : undefined;
    this.#fleet = isFound(fleet) ? undefined : fleet;
    this.#isNamed = address !== undefined || given.length > 0 || fleet !== undefined;
    if (fleet !== undefined) {
      const names = [...(address === undefined ? [] : ["address"]), ...given.map(([name]) => name)];
      if (names.length > 0) throw new ConfigError(names.map((name) => `\`fleet\` and \`${name}\` are both set: set one`));
      this.#executors = typeof fleet === "string" || isFound(fleet) ? [] : Object.values(fleet).map(toExecutor);
    } else {
      this.#executors = this.#isNamed ? [{ address: address ?? "", ...credentials }] : [];
    }
    const mistakes = this.#executors.flatMap(findMistakes);
    if (mistakes.length > 0) throw new ConfigError(mistakes);
  }

  /** Returns the environment of the program: named executors do not get the variables of others. */
  environment(): NodeJS.ProcessEnv {
    const environment = { ...process.env };
    if (this.#isNamed) {
      for (const name of ["ENDPOINT", "CA", "CERT", "KEY", "TOKEN_FILE"]) delete environment[`CAPROOT_${name}`];
    }
    return environment;
  }

  /** Writes the tokens of now. */
  async writeTokens(files: PrivateFiles): Promise<void> {
    for (const [index, { token }] of this.#executors.entries()) {
      if (token === undefined) continue;
      files.write(`token-${index}`, await readToken(token));
    }
  }

  /** Whether a token is a function. */
  get hasTokenFunction(): boolean {
    return this.#executors.some(({ token }) => typeof token === "function");
  }

  /** Returns the flags of the program. The tokens are in their files. */
  async flags(files: PrivateFiles): Promise<string[]> {
    await this.writeTokens(files);
    if (this.#found) {
      return ["--find-executors", ...this.#found.environments.map((id) => `--find-environment=${id}`)];
    }
    if (typeof this.#fleet === "string") return ["--fleet", resolve(this.#fleet)];
    if (this.#fleet !== undefined) return ["--fleet", files.write("fleet.json", this.#fleetFile(files))];

    const [executor] = this.#executors;
    if (!executor) return [];
    const settings: [string, string | undefined][] = [
      ["--endpoint", executor.address || undefined],
      ["--ca", executor.ca],
      ["--cert", executor.cert],
      ["--key", executor.key],
      ["--server-name", executor.serverName],
      ["--spiffe-id", executor.spiffeId],
      ["--token-file", tokenPath(files, executor, 0)],
      ["--timeout", spanOf(executor.timeout)],
    ];
    return settings.flatMap(([flag, value]) => (value === undefined ? [] : [`${flag}=${value}`]));
  }

  /** Returns the executor of an environment for the program, or `null`. */
  async find(environmentId: string): Promise<FoundExecutor | null> {
    const found = await this.#found?.find(environmentId);
    if (found === undefined || found === null) return null;
    const executor = toExecutor(found);
    // The program reports all other mistakes, and no text of an exception.
    const mistakes = unknownOptions("executor", executor, EXECUTOR_NAMES);
    if (mistakes.length > 0) throw new ConfigError(mistakes);
    const token = executor.token === undefined ? null : await readToken(executor.token);
    return fieldsOf(executor, { token, token_file: absolute(executor.tokenFile) ?? null });
  }

  #fleetFile(files: PrivateFiles): string {
    const names = Object.keys(this.#fleet as Record<string, unknown>);
    const executors = this.#executors.map((executor, index) =>
      fieldsOf(executor, { token_file: absolute(tokenPath(files, executor, index)) ?? null }),
    );
    const table = { executors: Object.fromEntries(names.map((name, index) => [name, executors[index]])) };
    // A fleet file has no key without a value.
    return JSON.stringify(table, (_, value: unknown) => value ?? undefined);
  }
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

/** Returns an executor as the program reads it, with a token or the file of a token. */
function fieldsOf(executor: Executor, token: Pick<FoundExecutor, "token" | "token_file">): FoundExecutor {
  return {
    endpoint: executor.address,
    ca: absolute(executor.ca) ?? null,
    cert: absolute(executor.cert) ?? null,
    key: absolute(executor.key) ?? null,
    server_name: executor.serverName ?? null,
    spiffe_id: executor.spiffeId ?? null,
    timeout: spanOf(executor.timeout) ?? null,
    ...token,
  };
}

function toExecutor(executor: Executor | string): Executor {
  return typeof executor === "string" ? { address: executor } : executor;
}

function findMistakes(executor: Executor): string[] {
  const mistakes = unknownOptions("executor", executor, EXECUTOR_NAMES);
  if ((executor.cert === undefined) !== (executor.key === undefined)) {
    mistakes.push("`cert` and `key` belong together: set both");
  }
  if (executor.token !== undefined && executor.tokenFile !== undefined) {
    mistakes.push("`token` and `tokenFile` are both set: set one");
  }
  return mistakes;
}

function tokenPath(files: PrivateFiles, executor: Executor, index: number): string | undefined {
  return executor.token === undefined ? executor.tokenFile : files.pathOf(`token-${index}`);
}

function absolute(path: string | undefined): string | undefined {
  return path === undefined ? undefined : resolve(path);
}
