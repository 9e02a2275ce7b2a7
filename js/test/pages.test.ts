/** The programs of the page, with the strict compiler, with the output that the page shows, and with mock models. */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { json } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { serveDemo } from "./support.ts";

const top = join(import.meta.dirname, "..");
const models = join(import.meta.dirname, "models");
const page = readFileSync(join(top, "../docs/orchestrate/typescript.md"), "utf8");
const programs = [...page.matchAll(/```typescript\n(\/\/ ([\w-]+\.ts)\n.*?)```/gs)].map(([, text = "", name = ""]) => ({ name, text }));
const codexPage = readFileSync(join(top, "../docs/orchestrate/codex.md"), "utf8");
/** Programs with a model. */
const frameworks = ["ai-sdk.ts", "openai-agents.ts", "claude.ts"];

/** Compiles programs with the strict compiler. */
function check(files: string[]): void {
  const options = ["--strict", "--noEmit", "--skipLibCheck", "--allowImportingTsExtensions", "--target", "es2023"];
  const modules = ["--module", "nodenext", "--types", "node"];
  const compiler = join(top, "node_modules/typescript/bin/tsc");
  const checked = spawnSync(process.execPath, [compiler, ...options, ...modules, ...files], { cwd: top, encoding: "utf8" });
  assert.equal(checked.stdout, "");
}

/** Writes the programs, which find the package as this test does, and compiles them. */
function compile(directory: string): void {
  for (const { name, text } of programs) {
    // Each program imports `model` of its framework.
    const own = text.replace('"./model.ts"', `"./model-${name}"`);
    if (own !== text) copyFileSync(join(models, name), join(directory, `model-${name}`));
    writeFileSync(join(directory, name), own);
  }
  check(programs.map(({ name }) => join(directory, name)));
}

/** Serves an MCP server with one tool, and its authorization server, which lets each user in. Returns the origin. */
async function serveLogin(t: TestContext): Promise<string> {
  const discovery = { supportedVersions: ["2026-07-28"], capabilities: { tools: {} }, _meta: { "io.modelcontextprotocol/serverInfo": { name: "s", version: "1" } } };
  const tools = { tools: [{ name: "echo", description: "Echoes.", inputSchema: { type: "object" } }] };
  let origin = "";
  const server = createServer(async (request, response) => {
    const send = (body: object, status = 200) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    const { pathname, searchParams } = new URL(request.url ?? "", origin);
    switch (pathname) {
      case "/.well-known/oauth-protected-resource/mcp":
        send({ resource: `${origin}/mcp`, authorization_servers: [origin], scopes_supported: ["read"] });
        break;
      case "/.well-known/oauth-authorization-server":
        send({
          issuer: origin,
          authorization_endpoint: `${origin}/authorize`,
          token_endpoint: `${origin}/token`,
          registration_endpoint: `${origin}/register`,
          response_types_supported: ["code"],
          code_challenge_methods_supported: ["S256"],
          token_endpoint_auth_methods_supported: ["none"],
        });
        break;
      case "/register":
        send({ ...((await json(request)) as object), client_id: "c1" }, 201);
        break;
      case "/authorize": {
        assert.equal(searchParams.get("scope"), "read");
        response.writeHead(302, { location: `${searchParams.get("redirect_uri")}?code=x&state=${searchParams.get("state") ?? ""}` }).end();
        break;
      }
      case "/token":
        send({ access_token: "t1", token_type: "Bearer" });
        break;
      default: {
        if (request.headers.authorization !== "Bearer t1") {
          const metadata = `${origin}/.well-known/oauth-protected-resource/mcp`;
          response.writeHead(401, { "www-authenticate": `Bearer resource_metadata="${metadata}", scope="read"` }).end();
          return;
        }
        const { id, method } = (await json(request)) as { id?: number; method: string };
        const result = { resultType: "complete", ttlMs: 0, cacheScope: "private", ...(method === "tools/list" ? tools : discovery) };
        send({ jsonrpc: "2.0", id, result });
      }
    }
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  t.after(() => server.close());
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return origin;
}

test("the program of the login page logs in", async (t) => {
  const origin = await serveLogin(t);
  const directory = mkdtempSync(join(top, "test/pages-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const loginPage = readFileSync(join(top, "../docs/orchestrate/authorization.md"), "utf8");
  const [, text = ""] = /```typescript\n(\/\/ log-in\.ts\n.*?)```/s.exec(loginPage) ?? [];
  const sources = `sources: [new LocalSkills({ mine: ${JSON.stringify(join(directory, "mine"))} })], `;
  const local = text
    .replace("https://mcp.tracker.example", origin)
    .replace("port = 8765", "port = 8766")
    .replace("pluginServers: {}", `${sources}pluginServers: { privateOrigins: ["${origin}"] }`)
    .replace("connect }", "connect, LocalSkills }");
  const program = join(directory, "log-in.ts");
  writeFileSync(program, local);
  check([program]);

  mkdirSync(join(directory, "mine/kit/.codex-plugin"), { recursive: true });
  const manifest = { name: "kit", mcpServers: { web: { url: `${origin}/mcp` } } };
  writeFileSync(join(directory, "mine/kit/.codex-plugin/plugin.json"), JSON.stringify(manifest));
  const browser = join(directory, "xdg-open");
  writeFileSync(browser, `#!${process.execPath}\nfetch(process.argv[2]);\n`);
  chmodSync(browser, 0o755);
  const env = { ...process.env, PATH: `${directory}:${process.env.PATH}` };
  const child = spawn(process.execPath, [program], { env, stdio: ["ignore", "pipe", "inherit"], timeout: 60_000 });
  t.after(() => child.kill());
  let shown = "";
  for await (const line of createInterface(child.stdout)) {
    shown = line;
    if (line.includes("mcp__kit__web_echo")) break;
  }
  assert.match(shown, /mcp__kit__web_echo/);
});

test("the program of the Codex page drives Codex", async (t) => {
  const { address } = await serveDemo(t);
  const directory = mkdtempSync(join(top, "test/pages-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const [, text = ""] = /```typescript\n\/\/ orchestrate\.ts\n(.*?)```/s.exec(codexPage) ?? [];
  assert.ok(text.split("\n").filter(Boolean).length <= 20);
  const program = join(directory, "orchestrate.ts");
  writeFileSync(program, text);
  check([program]);

  symlinkSync(join(top, "../tests/foreign/codex/app_server.py"), join(directory, "codex"));
  const env = { ...process.env, CAPROOT_ENDPOINT: address, PATH: `${directory}:${process.env.PATH}` };
  const ran = spawnSync(process.execPath, [program, "Triage the log."], { env, encoding: "utf8", timeout: 60_000 });
  assert.equal(ran.stdout, "Triage a log\n", ran.stderr);
});

test("the programs of the page are strict, and print the output of the page", async (t) => {
  const { address } = await serveDemo(t);
  const directory = mkdtempSync(join(top, "test/pages-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  assert.deepEqual(programs.map(({ name }) => name), ["agent.ts", "tools.ts", "pending.ts", ...frameworks]);
  compile(directory);

  const env = { ...process.env, CAPROOT_ENDPOINT: address, OPENAI_API_KEY: "none" };
  for (const { name, text } of programs) {
    let shown = new RegExp(`\\$ node ${name}\\n(.*?)\`\`\``, "s").exec(page)?.[1];
    if (frameworks.includes(name)) shown = "Triage a log\n";
    if (name === "claude.ts") {
      const sdk = `"${join(models, "claude-sdk.ts")}"`;
      writeFileSync(join(directory, name), text.replace('"@anthropic-ai/claude-agent-sdk"', sdk));
    }
    const ran = spawnSync(process.execPath, [join(directory, name)], { env, encoding: "utf8", timeout: 60_000 });
    assert.equal(ran.stdout, shown, `${name}: ${ran.stderr}`);
  }
});
