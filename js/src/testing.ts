/** Daemons for tests. */

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { ConfigError, ProgramError } from "./errors.ts";
import { findProgram } from "./program.ts";

/** Seconds until a daemon must listen. */
const START_TIMEOUT = 30;
/** Seconds that a daemon gets to end. */
const STOP_TIMEOUT = 5;

/** Daemon of a test. */
export interface Served {
  /** Address for `connect`. */
  readonly address: string;
  /** Ends the daemon. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Serves directories by the program `caproot` on a temporary socket: `await using daemon = await serve("skills")`.
 *
 * The name of each directory is the id of its root. Throws `ConfigError` if the daemon refuses a directory.
 */
export async function serve(...paths: string[]): Promise<Served> {
  const directory = mkdtempSync(join(tmpdir(), "caproot-"));
  const address = `unix:${directory}/caproot.sock`;
  // With an id, a path may contain `=`.
  const roots = paths.map((path) => `--root=${basename(resolve(path))}=${resolve(path)}`);
  const daemon = spawn(findProgram(), ["serve", "--listen", address, ...roots], { stdio: ["ignore", "pipe", "pipe"] });
  const exited = new Promise<void>((done) => daemon.once("close", () => done()));

  async function close(): Promise<void> {
    daemon.kill("SIGTERM");
    const timer = setTimeout(() => daemon.kill("SIGKILL"), STOP_TIMEOUT * 1000);
    await exited;
    clearTimeout(timer);
    rmSync(directory, { recursive: true, force: true });
  }

  try {
    await new Promise<void>((ready, fail) => {
      let said = "";
      const timer = setTimeout(() => fail(new ProgramError(`the daemon did not listen within ${START_TIMEOUT} s`)), START_TIMEOUT * 1000);
      daemon.stderr.setEncoding("utf8").on("data", (text: string) => {
        said = (said + text).slice(-4096);
      });
      daemon.stdout.setEncoding("utf8").on("data", (text: string) => {
        if (text.includes("listening ")) ready();
      });
      daemon.once("error", (error) => fail(new ProgramError(`the daemon cannot be started: ${error.message}`)));
      daemon.once("close", () => {
        clearTimeout(timer);
        fail(new ConfigError([`the daemon ended: ${said.trim().replaceAll(/\s*\n\s*/g, " ")}`]));
      });
      daemon.stdout.once("data", () => clearTimeout(timer));
    });
  } catch (error) {
    await close();
    throw error;
  }
  return { address, close, [Symbol.asyncDispose]: close };
}
