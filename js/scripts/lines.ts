/**
 * Writes the schemas of the lines of `caproot call` to `schema`, and their types to `src/lines.ts`.
 *
 *     node scripts/lines.ts CAPROOT [--check]
 *
 * With `--check`, compares the files instead.
 */

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { compile, type JSONSchema } from "json-schema-to-typescript";

type Schema = Record<string, unknown> & { $defs: Record<string, unknown> };

const [caproot = "caproot", mode] = process.argv.slice(2);
const top = join(import.meta.dirname, "..");

const printed = execFileSync(caproot, ["call", "--schema"], { encoding: "utf8" });
const schemas = JSON.parse(printed) as Record<"request" | "answer" | "event", Schema>;

const files = new Map<string, string>();
for (const [name, schema] of Object.entries(schemas)) {
  files.set(`schema/${name}.json`, `${JSON.stringify(schema, null, 2)}\n`);
}
files.set("src/lines.ts", await makeTypes());

let stale = 0;
for (const [name, text] of files) {
  const path = join(top, name);
  if (mode !== "--check") {
    writeFileSync(path, text);
  } else if (readFileSync(path, "utf8") !== text) {
    console.error(`${name} is stale: run \`npm run lines\``);
    stale += 1;
  }
}
process.exitCode = stale > 0 ? 1 : 0;

/** Returns the types of all lines. */
async function makeTypes(): Promise<string> {
  const { request, answer, event } = schemas;
  const { $defs: _, ...answerLine } = answer;
  const definitions = {
    ...request.$defs,
    ...event.$defs,
    ...answer.$defs,
    CallRequest: { description: "Request by its `method`.", oneOf: request.oneOf },
    CallEvent: { description: event.description, oneOf: event.oneOf },
    AnswerLine: answerLine,
  };
  const root = {
    title: "CallLines",
    description: "Lines of `caproot call`.",
    type: "object",
    properties: {
      request: { $ref: "#/$defs/CallRequest" },
      answer: { $ref: "#/$defs/AnswerLine" },
      event: { $ref: "#/$defs/CallEvent" },
    },
    required: ["request", "answer", "event"],
    $defs: definitions,
  };
  const types = await compile(forTypes(root) as JSONSchema, "CallLines", {
    additionalProperties: false,
    bannerComment: "// Generated from the schemas by `npm run lines`. Do not edit.",
    style: { printWidth: 120 },
    unreachableDefinitions: true,
  });
  return types.replaceAll(/(\n \*)?\n \* This interface was referenced by .*\n \* via the `definition` .*/g, "").replaceAll("/**\n */\n", "");
}

/** Returns a schema for the compiler: without keys that say nothing to a type. */
function forTypes(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(forTypes);
  if (typeof value !== "object" || value === null) return value;
  // A description next to a reference would be a type of its own.
  if ("$ref" in value) return { $ref: value.$ref };

  const dropped = ["format", "minimum", "minItems", "maxItems", "unevaluatedProperties", "default"];
  const kept = Object.entries(value).filter(([key]) => !dropped.includes(key));
  return Object.fromEntries(
    kept.map(([key, inner]) => [key, key === "properties" ? fieldsForTypes(inner as object) : forTypes(inner)]),
  );
}

/** A field with a description alone is any JSON value. */
function fieldsForTypes(fields: object): object {
  const typed = Object.entries(fields).map(([name, schema]: [string, unknown]) => {
    const isAny = schema === true || Object.keys(schema as object).every((key) => ["description", "default"].includes(key));
    const { description } = Object(schema) as { description?: string };
    return [name, isAny ? { description, tsType: "unknown" } : forTypes(schema)];
  });
  return Object.fromEntries(typed) as object;
}
