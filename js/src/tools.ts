/** Own tools: functions of the program that a model can call. */

import { SealedError, ToolError } from "./errors.ts";
import type { ProgramTool } from "./lines.ts";
import { checkOptions, type OptionNames } from "./options.ts";

/** JSON Schema as an object. */
export type JsonSchema = Record<string, unknown>;

/** Schema of a library with the interface Standard Schema, such as zod from version 4.2 on. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    readonly jsonSchema?: {
      readonly input: (options: { readonly target: "draft-2020-12" }) => Record<string, unknown>;
      readonly output: (options: { readonly target: "draft-2020-12" }) => Record<string, unknown>;
    };
  };
}

type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

type Awaitable<T> = T | Promise<T>;

/** Context of a call of an own tool. */
export interface ToolContext {
  /** Aborted if the time limit is over or the caller has gone. */
  signal: AbortSignal;
}

/** Definition of an own tool. */
export interface ToolOptions<Schema> {
  /** Name of the tool. */
  name: string;
  /** Namespace, which becomes a part of the name: `NAMESPACE_NAME`. */
  namespace?: string;
  /** Description for the model. */
  description: string;
  /** JSON Schema or zod schema of the arguments. */
  inputSchema: Schema;
  /** JSON Schema or zod schema of the result, for the instruction text. */
  outputSchema?: JsonSchema | StandardSchema;
  /** Description of the result, for the instruction text. */
  outputDescription?: string;
  /** Seconds of a call, at most a day; 60 by default. */
  timeLimit?: number;
  /** Whether third parties wrote the result, such as of a web search. */
  external?: boolean;
}

const TOOL_NAMES: OptionNames<ToolOptions<unknown>> = {
  name: true,
  namespace: true,
  description: true,
  inputSchema: true,
  outputSchema: true,
  outputDescription: true,
  timeLimit: true,
  external: true,
};

/** Arguments that a schema describes. */
export type ArgumentsOf<Schema> = Schema extends StandardSchema<infer _, infer Output> ? Output : Record<string, unknown>;

/** Function of an own tool. Its result is JSON. */
export type ToolFunction<Schema> = (args: ArgumentsOf<Schema>, context: ToolContext) => unknown;

interface RegisteredTool {
  definition: ProgramTool;
  call(args: unknown, context: ToolContext): Awaitable<unknown>;
}

/**
 * Registry of own tools. The first session that begins with the tools seals them.
 *
 * ```ts
 * const tools = new Tools();
 * tools.tool(
 *   { name: "count", description: "Counts words.", inputSchema: z.object({ text: z.string() }) },
 *   ({ text }) => text.split(/\s+/).length,
 * );
 * ```
 */
export class Tools {
  readonly #tools = new Map<string, RegisteredTool>();
  #isSealed = false;

  /** Registers a function, and returns it unchanged. */
  tool<const Schema extends JsonSchema | StandardSchema>(
    options: ToolOptions<Schema>,
    call: ToolFunction<Schema>,
  ): ToolFunction<Schema> {
    this.#checkUnsealed();
    checkOptions("the tool", options, TOOL_NAMES);
    const { name, namespace, inputSchema, outputSchema, timeLimit, external } = options;
    const definition: ProgramTool = {
      name,
      namespace: namespace ?? null,
      description: options.description,
      inputSchema: toJsonSchema(inputSchema, "input"),
      outputSchema: outputSchema === undefined ? null : toJsonSchema(outputSchema, "output"),
      outputDescription: options.outputDescription ?? null,
      timeLimit: timeLimit === undefined ? null : `${Math.round(timeLimit * 1000)}ms`,
      externalContext: external ?? false,
    };
    this.#tools.set(namespace ? `${namespace}.${name}` : name, {
      definition,
      call: async (args, context) => call((await readArguments(inputSchema, args)) as ArgumentsOf<Schema>, context),
    });
    return call;
  }

  /** Removes a tool by its name: `NAMESPACE.NAME`, or `NAME` without a namespace. */
  unregister(name: string): boolean {
    this.#checkUnsealed();
    return this.#tools.delete(name);
  }

  /** Names of the tools, `NAMESPACE.NAME` or `NAME`, in the order of registration. */
  get names(): string[] {
    return [...this.#tools.keys()];
  }

  /** Whether a session began with the tools. */
  get isSealed(): boolean {
    return this.#isSealed;
  }

  /** Returns a registry with the same tools that is not sealed. */
  copy(): Tools {
    const copy = new Tools();
    for (const [name, tool] of this.#tools) copy.#tools.set(name, tool);
    return copy;
  }

  /** Seals the tools, and returns their definitions.
   * @internal */
  static seal(tools: Tools): ProgramTool[] {
    tools.#isSealed = true;
    return [...tools.#tools.values()].map(({ definition }) => definition);
  }

  /** Calls a tool by the name that a model uses. Returns the fields of the answer.
   * @internal */
  static async run(tools: Tools, name: string, args: unknown, signal: AbortSignal): Promise<ToolOutcome> {
    const tool = [...tools.#tools.values()].find(({ definition }) => fullName(definition) === name);
    if (!tool) return { bug: `there is no tool ${name}` };
    try {
      // A value that is no JSON is a defect of the tool.
      return { result: toJson(await tool.call(args, { signal })) };
    } catch (error) {
      if (error instanceof ToolError) return { error: error.message || "the tool failed" };
      return { bug: error instanceof Error ? (error.stack ?? error.message) : String(error) };
    }
  }

  #checkUnsealed(): void {
    if (this.#isSealed) {
      throw new SealedError(
        "the tools are sealed, since a session began with them: register before, or begin another session with a copy",
      );
    }
  }
}

/** Answer of a tool. */
export type ToolOutcome = { result: unknown } | { error: string } | { bug: string };

/** Returns a value as JSON. Throws if there is no JSON for the value. */
export function toJson(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value) ?? "null") as unknown;
}

function fullName({ namespace, name }: ProgramTool): string {
  return namespace ? `${namespace}_${name}` : name;
}

function isStandard(schema: JsonSchema | StandardSchema): schema is StandardSchema {
  return typeof schema["~standard"] === "object";
}

function toJsonSchema(schema: JsonSchema | StandardSchema, direction: "input" | "output"): JsonSchema {
  if (!isStandard(schema)) return schema;
  const { vendor, jsonSchema } = schema["~standard"];
  if (!jsonSchema) throw new TypeError(`${vendor} makes no JSON Schema: use zod 4.2 or later, or pass a JSON Schema`);
  return jsonSchema[direction]({ target: "draft-2020-12" });
}

async function readArguments(schema: JsonSchema | StandardSchema, args: unknown): Promise<unknown> {
  if (!isStandard(schema)) return args;
  const checked = await schema["~standard"].validate(args);
  if (!checked.issues) return checked.value;
  throw new ToolError(checked.issues.map(({ path, message }) => `${(path ?? []).map(String).join(".")}: ${message}`).join("; "));
}
