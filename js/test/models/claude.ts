/**
 * Program in the place of the command line of the Claude Agent SDK: reads a skill by the server of the session, and
 * then repeats the first heading. It speaks the lines of the SDK on stdin and stdout.
 */

import { createInterface } from "node:readline";

interface Line {
  type: string;
  request_id?: string;
  request?: { subtype: string };
  response?: { request_id: string; response?: { mcp_response?: unknown } };
}

const answers = new Map<string, (answer: unknown) => void>();

function send(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** Sends a message to the server of the session, and returns the answer. */
function callServer(id: number, method: string, params: object): Promise<unknown> {
  const message = { jsonrpc: "2.0", id, method, params };
  send({ type: "control_request", request_id: String(id), request: { subtype: "mcp_message", server_name: "caproot", message } });
  return new Promise((resolve) => answers.set(String(id), resolve));
}

async function answerPrompt(prompt: string): Promise<void> {
  const client = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "model", version: "1" } };
  await callServer(1, "initialize", client);
  const listed = JSON.stringify(await callServer(2, "tools/list", {}));
  const read = { name: "skills_read", arguments: { package: "skill://demo/triage-logs" } };
  const page = JSON.stringify(await callServer(3, "tools/call", read));
  const isWell = prompt.includes("triage-logs") && listed.includes('"skills_list"');
  const result = (isWell && /# (Triage a log)/.exec(page)?.[1]) || "no heading";
  send({
    type: "result", subtype: "success", is_error: false, result, session_id: "s", uuid: "u", duration_ms: 1,
    duration_api_ms: 1, num_turns: 1, total_cost_usd: 0, usage: {}, permission_denials: [],
  });
}

for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text) as Line;
  if (line.type === "control_request") {
    send({ type: "control_response", response: { subtype: "success", request_id: line.request_id, response: {} } });
  } else if (line.type === "control_response" && line.response) {
    answers.get(line.response.request_id)?.(line.response.response);
  } else if (line.type === "user") {
    void answerPrompt(text);
  }
}
