/**
 * Skills of executors for the model of a program.
 *
 * ```ts
 * await using skills = await connect();
 * const reply = await model({ tools: skills.tools, text: skills.text });
 * const result = await skills.call(reply.name, reply.arguments);
 * ```
 */

export {
  Dispatcher,
  type DispatcherOptions,
  type Manager,
  type Thread,
} from "./dispatch.ts";
export {
  CaprootError,
  ConfigError,
  DispatchError,
  ProgramError,
  Refused,
  SealedError,
  StoreError,
  ToolError,
} from "./errors.ts";
export type { Codex, CodexAnswer, CodexCall, CodexFunction, CodexTool } from "./codex.ts";
export type { Credentials, Executor, FindExecutor, FleetTable, Token } from "./fleet.ts";
export type {
  AmbiguousName,
  CallLines,
  ChangedPlugin,
  ChangeState,
  ComponentChange,
  DispatchAnswer as DispatchRecord,
  DrainCounts as Drained,
  ExecutorState,
  ExecutorStatus,
  InjectedSkills,
  InstructionUpdate,
  ListedSkill as Skill,
  ProgramCall as PendingCall,
  ProgramCallPage as PendingPage,
  MentionCandidate,
  NoticeChanges,
  OmittedMention,
  ReinjectedFragment,
  ReinjectedSkills,
  SavedChanges,
  SessionPlugin as Plugin,
  SkillAuthority as Authority,
  SkillFragment,
  SourceState,
  SubmittedAnswer,
  TurnAnswer as FinishedTurn,
  UnneededAnswer,
  UpdateKind,
  UsedSkill,
  UsedState,
} from "./lines.ts";
export type { AuthorizationFunction, AuthorizationRequest, PluginServers, ServerValueRequest } from "./plugin_servers.ts";
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
  type ResultImage,
  type Roots,
  restore,
  type Session,
  type SessionOptions,
  type ToolDefinition,
  ToolResult,
  type UsageEvent,
} from "./session.ts";
export { type LocalPreset, LocalSkills, McpServer, type McpServerOptions, Site, type SiteOptions, type Source } from "./sources.ts";
export type { Store } from "./store.ts";
export { type JsonSchema, type StandardSchema, type ToolContext, type ToolFunction, type ToolOptions, Tools } from "./tools.ts";
