#!/usr/bin/env node
// Runs the program `caproot` with the arguments, descriptors and signals of this process.
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { findProgram } from "../dist/program.js";

let program;
try {
  program = findProgram();
} catch (error) {
  console.error(`caproot: ${error.message}`);
  process.exit(127);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`caproot: ${program} cannot be started: ${error.message}`);
  process.exit(126);
});
child.on("exit", (code, signal) => {
  process.exit(code ?? 128 + constants.signals[signal]);
});
