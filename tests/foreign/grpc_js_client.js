#!/usr/bin/env node
// Client with grpc-js on Node, without channel options. Checks health, all pages of a list, one main
// resource, an error with its details, and a change.
//
//   grpc_js_client.js PROTO-DIR ADDRESS SELECTED.json SCRATCH
//
// ADDRESS is HOST:PORT or unix:/PATH. For SELECTED.json and SCRATCH see grpcio_client.py. Needs
// @grpc/grpc-js, @grpc/proto-loader, grpc-health-check and protobufjs in NODE_PATH.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { randomUUID } = require("node:crypto");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const health = require("grpc-health-check");
const protobuf = require("protobufjs");

const DEADLINE = 60_000;
const DETAILS = protobuf.parse(`
  syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; }
  message Violation { string field = 1; string description = 2; }
  message BadRequest { repeated Violation field_violations = 1; }
`, { keepCase: true }).root;

/** Makes a call. Returns a promise of the response. */
function call(client, method, request) {
  return new Promise((resolve, reject) => {
    const callback = (error, answer) => (error ? reject(error) : resolve(answer));
    client[method](request, { deadline: Date.now() + DEADLINE }, callback);
  });
}

function scratchRoot(scratch) {
  const location = { type: "environment", environmentId: "local", path: path.resolve(scratch) };
  return { selectedCapabilityRoots: [{ id: "scratch", location }] };
}

/** Saves a skill by rename, as editors do. Returns its new description. */
function writeSkill(scratch) {
  const description = `Changed ${randomUUID()}.`;
  const directory = path.join(scratch, "changing");
  fs.mkdirSync(directory, { recursive: true });
  const draft = path.join(directory, ".draft");
  fs.writeFileSync(draft, `---\nname: changing\ndescription: ${description}\n---\n`);
  fs.renameSync(draft, path.join(directory, "SKILL.md"));
  return description;
}

/** Opens a stream, writes a skill, and waits until the stream reports it. */
async function watch(client, scratch) {
  const stream = client.watchSkills(scratchRoot(scratch), { deadline: Date.now() + DEADLINE });
  let description;
  for await (const event of stream) {
    if (event.event === "synced" && description === undefined) description = writeSkill(scratch);
    const changed = event.event === "delta" ? event.delta.upserted : [];
    if (changed.some((skill) => skill.description === description)) {
      stream.on("error", () => {});
      stream.cancel();
      return;
    }
  }
  assert.fail("the stream ended before the change");
}

function checkError(error) {
  assert.equal(error.code, grpc.status.INVALID_ARGUMENT, String(error));
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  const found = {};
  for (const any of DETAILS.lookupType("Status").decode(bytes).details) {
    const name = any.type_url.split(".").at(-1);
    if (DETAILS.get(name)) found[name] = DETAILS.lookupType(name).decode(any.value);
  }
  assert.equal(found.ErrorInfo.domain, "caproot");
  assert.equal(found.ErrorInfo.reason, "INVALID_ARGUMENT");
  assert.deepEqual(found.BadRequest.field_violations.map((v) => v.field), ["package"]);
}

async function main(protos, address, selectedPath, scratch) {
  const selected = JSON.parse(fs.readFileSync(selectedPath, "utf8"));
  const options = { enums: String, longs: Number, oneofs: true, includeDirs: [protos] };
  const definition = loader.loadSync("caproot/v1/capability_service.proto", options);
  const { CapabilityService } = grpc.loadPackageDefinition(definition).caproot.v1;
  const credentials = grpc.credentials.createInsecure();

  const Health = grpc.makeClientConstructor(health.service, "Health");
  const checker = new Health(address, credentials);
  const { status } = await call(checker, "check", { service: "caproot.v1.CapabilityService" });
  assert.equal(status, "SERVING");
  checker.close();

  const client = new CapabilityService(address, credentials);
  const skills = [];
  let pages = 0;
  for (let pageToken = ""; pages === 0 || pageToken; pages += 1) {
    const page = await call(client, "listSkills", { ...selected, pageSize: 2, pageToken });
    skills.push(...page.skills);
    pageToken = page.nextPageToken ?? "";
  }
  assert.ok(pages > 1, `${skills.length} skills in one page`);

  const skill = skills.at(-1);
  const root = selected.selectedCapabilityRoots.find(({ id }) => id === skill.authority.id);
  const readRequest = { root, package: skill.package, maxBytes: 1 << 20 };
  const page = await call(client, "readResource", readRequest);
  const relative = skill.mainResource.slice("skill://".length).split("/").slice(1);
  const file = path.join(root.location.path, ...relative.map(decodeURIComponent));
  assert.equal(page.contents, fs.readFileSync(file, "utf8"));

  const bad = { root: { id: "x" }, package: "skill://x/../y" };
  await assert.rejects(call(client, "readResource", bad), (error) => {
    checkError(error);
    return true;
  });
  await watch(client, scratch);
  client.close();
  const transport = address.startsWith("unix:") ? "a Unix socket" : "TCP";
  console.log(`grpc-js over ${transport}: ${skills.length} skills in pages of 2, a main resource equal to ` +
    "the file, an error with its details, and a change");
}

if (process.argv.length !== 6) {
  console.error("grpc_js_client.js PROTO-DIR ADDRESS SELECTED.json SCRATCH");
  process.exit(2);
}
main(...process.argv.slice(2)).catch((error) => {
  console.error("grpc_js_client:", error);
  process.exit(1);
});
