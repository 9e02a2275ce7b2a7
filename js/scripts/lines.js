/**
 * Writes the schemas of the lines of `caproot call` to `schema`, and their types to `src/lines.ts`, with the options of
 * sessions that are fields of the request `start` as they are.
 *
 *     node scripts/lines.js CAPROOT
 */

import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { compile } from "json-schema-to-typescript";

const [caproot = "caproot"] = process.argv.slice(2);
const top = join(import.meta.dirname, "..");
const schemas = JSON.parse(execFileSync(caproot, ["call", "--schema"], { encoding: "utf8" }));

mkdirSync(join(top, "schema"), { recursive: true });
for (const [name, schema] of Object.entries(schemas)) {
  writeFileSync(join(top, `schema/${name}.json`), `${JSON.stringify(schema, null, 2)}\n`);
}
writeFileSync(join(top, "src/lines.ts"), await makeTypes());

/** Returns the types of all lines. */
async function makeTypes() {
  const { request, answer, event } = schemas;
  const { $defs: _, ...answerLine } = answer;
  const options = startOptions(request);
  const definitions = {
    ...request.$defs,
    ...event.$defs,
    ...answer.$defs,
    StartOptions: {
      description: "Options of a session that the program reads as they are.",
      type: "object",
      properties: Object.fromEntries(options.map(({ name, schema }) => [name, schema])),
    },
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
  const types = await compile(forTypes(root), "CallLines", {
    additionalProperties: false,
    bannerComment: "// Made from the schemas by `npm run lines`.",
    style: { printWidth: 120 },
    unreachableDefinitions: true,
  });
  const fields = Object.fromEntries(options.map(({ name, field }) => [name, field]));
  const names = `\n/** Fields of \`start\` by their options. */\nexport const START_FIELDS = ${JSON.stringify(fields)} as const;\n`;
  return types.replaceAll(/(\n \*)?\n \* This interface was referenced by .*\n \* via the `definition` .*/g, "").replaceAll("/**\n */\n", "") + names;
}

/** Returns the fields of `start` that are a boolean or a number, with their options. */
function startOptions(request) {
  const { properties } = request.oneOf.find(({ properties }) => properties.method.const === "start");
  return Object.entries(properties)
    .filter(([, { type }]) => ["boolean", "integer"].includes(type?.[0]))
    .map(([field, { description, type }]) => ({
      name: field.replaceAll(/_(.)/g, (_, letter) => letter.toUpperCase()),
      field,
      schema: { description, type: type[0] },
    }));
}

/** Returns a schema for the compiler: without keys that say nothing to a type. */
function forTypes(value) {
  if (Array.isArray(value)) return value.map(forTypes);
  if (typeof value !== "object" || value === null) return value;
  // A description next to a reference would be a type of its own.
  if ("$ref" in value) return { $ref: value.$ref };

  const dropped = ["format", "minimum", "minItems", "maxItems", "unevaluatedProperties", "default"];
  const kept = Object.entries(value).filter(([key]) => !dropped.includes(key));
  return Object.fromEntries(
    kept.map(([key, inner]) => [key, key === "properties" ? fieldsForTypes(inner) : forTypes(inner)]),
  );
}

/** A field with a description alone is any JSON value. */
function fieldsForTypes(fields) {
  const typed = Object.entries(fields).map(([name, schema]) => {
    const isAny = schema === true || Object.keys(schema).every((key) => ["description", "default"].includes(key));
    const { description } = Object(schema);
    return [name, isAny ? { description, tsType: "unknown" } : forTypes(schema)];
  });
  return Object.fromEntries(typed);
}
