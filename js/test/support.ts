/** Daemons, skills and broken programs for the tests. */

import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { serve } from "caproot/testing";

/** Skills of the repository. */
export const demoTree = join(import.meta.dirname, "../../tests/trees/demo");

/** Returns a temporary directory of a test. */
export function makeDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), "caproot-test-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Serves a copy of the demo skills until the test ends. */
export async function serveDemo(t: TestContext): Promise<{ address: string; root: string }> {
  const root = join(makeDirectory(t), "demo");
  cpSync(demoTree, root, { recursive: true });
  const daemon = await serve(root);
  t.after(() => daemon.close());
  return { address: daemon.address, root };
}

/** Adds or changes a skill. */
export function writeSkill(root: string, name: string, description: string): void {
  mkdirSync(join(root, name), { recursive: true });
  writeFileSync(join(root, name, "SKILL.md"), `---\nname: ${name}\ndescription: ${description}\n---\n`);
}

/** Puts a script in the place of the program `caproot` until the test ends. */
export function replaceProgram(t: TestContext, script: string | undefined): void {
  const path = process.env.PATH;
  t.after(() => {
    process.env.PATH = path;
  });
  const directory = makeDirectory(t);
  if (script !== undefined) {
    writeFileSync(join(directory, "caproot"), `#!/bin/sh\n${script}\n`);
    chmodSync(join(directory, "caproot"), 0o755);
  }
  process.env.PATH = script === undefined ? directory : `${directory}:/usr/bin:/bin`;
}

/** Children of this process by their command lines. */
export function childrenOf(pid = process.pid): { pid: number; command: string; state: string }[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, "utf8");
        const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
        if (Number(parent) !== pid) return [];
        const command = readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ");
        return [{ pid: Number(name), command, state: state ?? "" }];
      } catch {
        return [];
      }
    });
}

/** Resident memory of a process in bytes. */
export function memoryOf(pid: number): number {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  if (kib === undefined) throw new Error(`the process ${pid} has ended`);
  return Number(kib) * 1024;
}

/** Whether a thread of a process is in write(2) of stdout. */
export function isWriting(pid: number): boolean {
  const write = process.arch === "arm64" ? "64" : "1";
  return readdirSync(`/proc/${pid}/task`).some((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/syscall`, "utf8").startsWith(`${write} 0x1 `),
  );
}

/** The program of a session. */
export function callProcess(): number {
  const found = childrenOf().find(({ command, state }) => command.includes(" call ") && state !== "Z");
  if (!found) throw new Error("no program of a session runs");
  return found.pid;
}

/** Returns the messages of the warnings of this process until the test ends. */
export function watchWarnings(t: TestContext): string[] {
  const messages: string[] = [];
  const onWarning = ({ message }: Error) => messages.push(message);
  process.on("warning", onWarning);
  t.after(() => process.off("warning", onWarning));
  return messages;
}
