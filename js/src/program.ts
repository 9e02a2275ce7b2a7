/** The program `caproot`: that of the package for this platform, or the first on PATH. */

import { accessSync, constants } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { ProgramError } from "./errors.ts";

const require = createRequire(import.meta.url);

/** Version of this package, and so of its program. */
export const version: string = (require("../package.json") as { version: string }).version;

/** Returns the path of the program. */
export function findProgram(): string {
  const name = `caproot-${process.platform}-${process.arch}`;
  const file = process.platform === "win32" ? "caproot.exe" : "caproot";
  try {
    return require.resolve(`${name}/bin/${file}`);
  } catch {
    // The package for this platform is not installed.
  }
  for (const directory of (process.env.PATH ?? "").split(delimiter)) {
    const path = join(directory || ".", file);
    // `npx` puts the start script of this package on PATH.
    if (isExecutable(path) && !directory.includes("node_modules")) return path;
  }
  throw new ProgramError(
    `the program caproot is missing: install the package ${name} next to caproot, or put the program on PATH`,
  );
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
