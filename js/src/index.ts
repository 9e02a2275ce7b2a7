/**
 * Skills of executors for the model of a program.
 *
 * ```ts
 * await using skills = await connect();
 * const reply = await model({ tools: skills.tools, text: skills.text });
 * const result = await skills.call(reply.name, reply.arguments);
 * ```
 */

export { CaprootError, ConfigError, ProgramError, Refused, SealedError, ToolError } from "./errors.ts";
export type { Credentials, Executor, FleetTable, Token } from "./fleet.ts";
export type {
  AmbiguousName,
  CallLines,
  ChangedPlugin,
  ExecutorState,
  InjectedSkills,
  InstructionText,
  InvocationMetrics,
  ListedSkill as Skill,
  SavedChanges,
  SessionPlugin as Plugin,
  SkillAuthority as Authority,
  SkillFragment,
} from "./lines.ts";
export { version } from "./program.ts";
export {
  type Change,
  type Choice,
  type ConnectOptions,
  connect,
  Fleet,
  type ForkOptions,
  type InjectOptions,
  type PluginChanges,
  type Roots,
  restore,
  type Session,
  type SessionOptions,
  type ToolDefinition,
  ToolResult,
} from "./session.ts";
export { type LocalPreset, LocalSkills, McpServer, type McpServerOptions, Site, type SiteOptions, type Source } from "./sources.ts";
export { type JsonSchema, type StandardSchema, type ToolContext, type ToolFunction, type ToolOptions, Tools } from "./tools.ts";
