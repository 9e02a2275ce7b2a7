// Generated from the schemas by `npm run lines`. Do not edit.

/**
 * Request by its `method`.
 */
export type CallRequest =
  | {
      method: "hello";
    }
  | {
      /**
       * Rules of skills that are offered although they are switched off by default.
       */
      enable?: string[] | null;
      /**
       * Rules that exclude skills. They take precedence.
       */
      exclude?: string[] | null;
      /**
       * How long the skills of a lost executor stay listed, such as `10s`.
       */
      grace_period?: string | null;
      /**
       * Rules that include skills.
       */
      include?: string[] | null;
      /**
       * Rules of skills that are hidden from models.
       */
      manual?: string[] | null;
      method: "start";
      /**
       * Rules of skills that the text lists without a description.
       */
      name_only?: string[] | null;
      /**
       * Rules of skills that the text never cuts while another skill is in the text.
       */
      pin?: string[] | null;
      /**
       * MCP servers of plugins whose tools the session has: handles such as
       * `skill://a/p#tracker`, or `PLUGIN/SERVER` or `PLUGIN` if only one server fits; or `all` alone.
       */
      plugin_servers?: string[] | null;
      /**
       * Whether the session has the plugins of executors.
       */
      plugins?: boolean | null;
      /**
       * Only skills for this product, or for every product.
       */
      product?: string | null;
      /**
       * Whether the session leaves out skills that miss something on the executor.
       */
      ready_only?: boolean | null;
      /**
       * Limit of the result of a tool in bytes, 8,192 to 65,536.
       */
      result_bytes?: number | null;
      /**
       * Selected roots as a platform made them: an array, or an object with
       * `selectedCapabilityRoots`. The default is the published roots.
       */
      roots?: unknown;
      /**
       * Result of `save`, instead of `roots`, `session_id`, `product` and the rules.
       */
      saved?: unknown;
      /**
       * Whether the text says how to run scripts by `caproot exec`.
       */
      scripts?: boolean | null;
      /**
       * Id of the new session. The default is random.
       */
      session_id?: string | null;
      /**
       * Executors, other sources and lock of the session, instead of those of the command line. With
       * `--no-session`, each session has some.
       */
      sources?: SourcesRequest | null;
      /**
       * How long to wait for executors that do not answer, such as `5s`.
       */
      start_timeout?: string | null;
      /**
       * Tools of the program in this session, instead of those of `--tools`.
       */
      tools?: ProgramTool[] | null;
    }
  | {
      method: "list";
    }
  | {
      /**
       * Authority of the skill, as `list` returned it. Needed only if several sources have the handle.
       */
      authority?: SkillAuthority | null;
      method: "read";
      /**
       * Path of the file relative to the skill, as its SKILL.md links it. The SKILL.md by default.
       */
      path?: string;
      /**
       * Name or handle of a listed skill.
       */
      skill: string;
    }
  | {
      /**
       * Maximum size of the text in bytes. The default is 8,000.
       */
      budget?: number;
      method: "watch";
    }
  | {
      method: "watch_usage";
    }
  | {
      method: "cancel";
      /**
       * Id of the request.
       */
      request: unknown;
    }
  | {
      method: "tools";
    }
  | {
      /**
       * Arguments as the model wrote them. The default is `null`.
       */
      arguments?: unknown;
      method: "call";
      /**
       * Name of the tool, such as `skills_list`.
       */
      tool: string;
    }
  | {
      /**
       * Maximum size of the text in bytes. The default is 8,000.
       */
      budget?: number;
      /**
       * Id of the text that the model has. By default the model has none.
       */
      known?: string | null;
      method: "instructions";
    }
  | {
      method: "used_skills";
    }
  | {
      /**
       * Maximum size of the fragments and the note together in bytes. The default and the maximum
       * are 32,000.
       */
      budget?: number;
      method: "reinject";
    }
  | {
      /**
       * Text for the placeholders of the mentioned skills, such as `$ARGUMENTS`. At most 4,096 bytes.
       */
      arguments?: string;
      /**
       * Names of skills that the caller has. A skill of the session takes precedence.
       */
      caller_skills?: string[];
      /**
       * Names that mean a connector, and not a skill, if they stand alone in the text.
       */
      connectors?: string[];
      /**
       * Skills that the user mentioned next to the text, such as by a pick from a list.
       */
      mentions?: SkillMention[];
      method: "inject";
      /**
       * Text of the prompt.
       */
      text: string;
    }
  | {
      method: "state";
    }
  | {
      method: "source_states";
    }
  | {
      method: "plugins";
    }
  | {
      method: "plugin_servers";
    }
  | {
      /**
       * Description of a bug, for the log.
       */
      bug?: string | null;
      /**
       * Number of the call in its event.
       */
      call: number;
      /**
       * Reason of a failure, for the model.
       */
      error?: string | null;
      method: "tool_result";
      /**
       * Result for the model: any JSON value, also `null`.
       */
      result?: unknown;
    }
  | {
      method: "save";
    }
  | {
      method: "restore";
      /**
       * Result of `save`.
       */
      saved: unknown;
    }
  | {
      method: "changes";
    }
  | {
      /**
       * Further rules of skills that are offered although they are switched off by default.
       */
      enable?: string[];
      /**
       * Rules that exclude skills.
       */
      exclude?: string[];
      /**
       * Rules that include skills of the session. The default is all skills.
       */
      include?: string[];
      /**
       * Further rules of skills that are hidden from models.
       */
      manual?: string[];
      method: "fork";
      /**
       * Further rules of skills that the text lists without a description.
       */
      name_only?: string[];
      /**
       * Further rules of skills that the text never cuts while another skill is in the text.
       */
      pin?: string[];
      /**
       * Only skills of the session for this product, or for every product.
       */
      product?: string | null;
      /**
       * Ids of the roots of the new session. The default is all roots of the session.
       */
      roots?: string[] | null;
    }
  | {
      method: "close";
    }
  | {
      /**
       * Time limit of a tool. The default is `2m`.
       */
      answer_timeout?: string | null;
      /**
       * Time limit of each call of the platform. The default is `10s`.
       */
      manager_timeout?: string | null;
      /**
       * Calls at once. The default is 16.
       */
      max_in_flight?: number | null;
      /**
       * Answers that the platform did not take yet. The default is 1,000.
       */
      max_unsent?: number | null;
      method: "dispatcher";
      /**
       * Id of the thread, as the platform has it. Calls of other threads are ignored.
       */
      thread: string;
      /**
       * Time limit of a turn. The default is `10m`.
       */
      turn_timeout?: string | null;
    }
  | {
      call: ProgramCall;
      /**
       * Number of the dispatcher.
       */
      dispatcher: number;
      method: "dispatch";
    }
  | {
      /**
       * Number of the dispatcher.
       */
      dispatcher: number;
      method: "run_turn";
      /**
       * Turn for the thread, any JSON. Without a turn, a turn is awaited that was sent before.
       */
      turn?: unknown;
      /**
       * Names of the statuses that end the turn.
       */
      until: string[];
    }
  | {
      /**
       * Number of the dispatcher.
       */
      dispatcher: number;
      method: "close_dispatcher";
    }
  | {
      /**
       * Number of a dispatcher. The default is the manager of `--manager`.
       */
      dispatcher?: number | null;
      method: "drain";
    }
  | {
      method: "listen";
    }
  | {
      /**
       * Names of skills that the caller has. A skill of the session takes precedence.
       */
      caller_skills?: string[];
      /**
       * Names that mean a connector, and not a skill, if they stand alone in the text.
       */
      connectors?: string[];
      /**
       * Whether the prompt gets the fragments of the mentioned skills. The default is `true`.
       */
      inject?: boolean;
      /**
       * Skills that the user mentioned next to the text.
       */
      mentions?: SkillMention[];
      method: "send";
      /**
       * Text of the prompt.
       */
      text: string;
      /**
       * Statuses of the manager's thread. Calls are answered until the thread has one of them. Empty:
       * the prompt is only sent.
       */
      until?: string[];
    };
/**
 * Origin of the addresses of executors.
 */
export type ExecutorOrigin =
  | {
      one: FoundExecutor;
    }
  | {
      table: {
        [k: string]: FoundExecutor;
      };
    }
  | {
      file: string;
    }
  | {
      find: string[];
    }
  | {
      find_one: null;
    };
/**
 * Event by its name in `event`.
 */
export type CallEvent =
  | {
      event: "changed";
      /**
       * State of the source, if the source is an executor.
       */
      executor?: ExecutorState | null;
      /**
       * Id of the session.
       */
      session: string;
      /**
       * Name of any other source.
       */
      source?: SourceName | null;
      /**
       * After `watch`: the new text that describes the skills to a model, if the text changed.
       */
      text?: string | null;
    }
  | {
      /**
       * New plugins.
       */
      added: SessionPlugin[];
      /**
       * Plugins that differ from before.
       */
      changed: ChangedPlugin[];
      event: "plugins";
      /**
       * Plugins that are gone, or whose source is unavailable.
       */
      removed: SessionPlugin[];
      /**
       * Id of the session.
       */
      session: string;
    }
  | {
      authority: SkillAuthority;
      /**
       * Bytes that the model or the program got from a read or an injection.
       */
      bytes?: number | null;
      /**
       * Digest of the SKILL.md; empty if the source has none.
       */
      digest: string;
      event: "usage";
      kind: UsageKind;
      /**
       * Number of events before this one that are lost, because their reader was too slow.
       */
      lost?: number;
      /**
       * Name of the skill.
       */
      name: string;
      /**
       * `OK`, the code of the error with which a read or an injection failed, or `DROPPED` if its caller
       * stopped waiting.
       */
      outcome: string;
      /**
       * Handle of the skill.
       */
      package: string;
      /**
       * Duration of a read or an injection, in seconds.
       */
      seconds?: number | null;
      /**
       * Id of the session.
       */
      session: string;
      /**
       * Time in UTC, such as `2026-11-25T10:30:00.000Z`.
       */
      time: string;
    }
  | {
      /**
       * Arguments that fit the schema of the tool.
       */
      arguments: unknown;
      /**
       * Number of the call.
       */
      call: number;
      event: "tool";
      /**
       * Id of the request `call` in which the tool is called; `null` for a call of a manager.
       */
      request: unknown;
      /**
       * Id of the session that started with the tool. A fork has the tools of its session.
       */
      session: string;
      /**
       * Name of the tool, with its namespace.
       */
      tool: string;
    }
  | {
      /**
       * Number of the call.
       */
      call: number;
      /**
       * Environment of the executor.
       */
      environmentId: string;
      event: "findExecutor";
      /**
       * Key of the executors in the request `start`.
       */
      key: string;
    }
  | {
      /**
       * Number of the call.
       */
      call: number;
      event: "mcpToken";
      /**
       * Key of the sources in the request `start`.
       */
      key: string;
      /**
       * Name of the server.
       */
      server: string;
    }
  | {
      /**
       * Number of the call.
       */
      call: number;
      event: "serverValue";
      /**
       * Key of the sources in the request `start`.
       */
      key: string;
      /**
       * Variable that the declaration names, or the name of the header.
       */
      name: string;
      /**
       * Origin that gets the value, such as `https://mcp.tracker.example`.
       */
      origin: string;
      /**
       * Handle of the plugin.
       */
      package: string;
      /**
       * Name of the plugin.
       */
      plugin: string;
      /**
       * Name of the server.
       */
      server: string;
      /**
       * Id of the plugin's source; the environment of an executor.
       */
      sourceId: string;
      /**
       * Kind of the plugin's source: `executor` or `local`.
       */
      sourceKind: string;
    }
  | {
      /**
       * Number of the call.
       */
      call: number;
      /**
       * Number of the dispatcher.
       */
      dispatcher: number;
      event: "listPending";
      /**
       * Number of calls that the page should have.
       */
      limit: number;
      /**
       * Token of the page; `null` for the first page.
       */
      token: string | null;
    }
  | {
      /**
       * Number of the call.
       */
      call: number;
      /**
       * Number of the dispatcher.
       */
      dispatcher: number;
      event: "submitResult";
      /**
       * Whether third parties wrote the answer.
       */
      externalContext: boolean;
      /**
       * Images and sounds that the answer names; only those of the tools of plugins' MCP servers.
       */
      images?: AnswerImage[];
      /**
       * Id that the platform has for the pending call.
       */
      requestId: string;
      /**
       * Text of JSON for the model, in at most 8,192 bytes.
       */
      result: string;
      /**
       * Whether the answer is a success.
       */
      success: boolean;
    }
  | {
      /**
       * Number of the call.
       */
      call: number;
      /**
       * Number of the dispatcher.
       */
      dispatcher: number;
      event: "sendTurn";
      /**
       * Turn of the request `run_turn`.
       */
      turn: unknown;
    }
  | {
      /**
       * Number of the call.
       */
      call: number;
      /**
       * Number of the dispatcher.
       */
      dispatcher: number;
      event: "threadStatus";
    }
  | {
      /**
       * Number of the call.
       */
      call: number;
      event: "toolCancelled";
    }
  | {
      /**
       * Number of submissions.
       */
      attempts: number;
      event: "dispatched";
      /**
       * `accepted`, `notFound`, `alreadyAnswered` or `failed`.
       */
      outcome: string;
      /**
       * Reason of the outcome `failed`.
       */
      reason: string | null;
      /**
       * Id that the manager has for the call.
       */
      requestId: string;
      /**
       * Whether the answer is a success.
       */
      success: boolean;
      /**
       * Name of the tool.
       */
      tool: string;
    };
/**
 * State of the connection of a session to an executor.
 */
export type ExecutorStatus = "connecting" | "failed" | "live" | "stale";
/**
 * Kind of a component's change.
 */
export type ComponentChangeKind = "added" | "changed" | "removed";
/**
 * Kind of a use.
 */
export type UsageKind = "listed" | "read" | "injected" | "searched";
/**
 * Reason for which the platform needs no answer: a result of the event `submitResult`.
 */
export type UnneededAnswer = "notFound" | "alreadyAnswered";
/**
 * Whether the changes since a save are known.
 */
export type ChangeState =
  | {
      state: "waiting";
    }
  | {
      removed: string[];
      state: "known";
      upserted: string[];
    }
  | {
      reason: string;
      roots: string[];
      state: "unknown";
    };
/**
 * Form of an [`InstructionUpdate`].
 */
export type UpdateKind = "whole" | "notice" | "unchanged";
/**
 * State of a file compared with the digest that the model has.
 */
export type UsedState = "unchanged" | "changed" | "gone" | "unknown";

/**
 * Lines of `caproot call`.
 */
export interface CallLines {
  request: CallRequest;
  answer: AnswerLine;
  event: CallEvent;
}
/**
 * Executors, other sources and lock of one session.
 */
export interface SourcesRequest {
  /**
   * Names of the MCP servers whose token the event `mcpToken` asks for.
   */
  ask_tokens?: string[];
  /**
   * Whether the event `serverValue` asks for the values that declarations of plugins' MCP servers withhold.
   */
  ask_values?: boolean;
  /**
   * Executors. By default the session has no executors.
   */
  executors?: ExecutorsRequest | null;
  /**
   * Key of the session in the events `mcpToken` and `serverValue`.
   */
  key?: string;
  /**
   * Directories of this machine.
   */
  local?: LocalRequest[];
  /**
   * Lock that must approve the skills.
   */
  lock?: string | null;
  /**
   * MCP servers with skills.
   */
  mcp_servers?: ServerRequest[];
  /**
   * Origins of plugins' MCP servers whose addresses need not be globally routable.
   */
  private_origins?: string[];
  /**
   * Keys that may sign the lock.
   */
  signers?: string | null;
  /**
   * Sites with an index of skills.
   */
  sites?: SiteRequest[];
}
/**
 * Executors of a session. The open sessions with the same key share the connections.
 */
export interface ExecutorsRequest {
  from: ExecutorOrigin;
  /**
   * Key of the executors, also in the event `findExecutor`.
   */
  key: string;
  /**
   * Whether a session with other sources starts without an executor if no default socket answers. The default is
   * `false`.
   */
  optional?: boolean;
}
/**
 * Executor that the program found.
 */
export interface FoundExecutor {
  /**
   * Authorities (PEM) that the daemon's certificate must come from.
   */
  ca?: string | null;
  /**
   * Client certificate (PEM).
   */
  cert?: string | null;
  /**
   * Address of the daemon: `unix:PATH`, `tcp:HOST:PORT` or `tls:HOST:PORT`. The default is the first
   * default socket that answers.
   */
  endpoint?: string | null;
  /**
   * Key of the certificate (PEM).
   */
  key?: string | null;
  /**
   * Name that the daemon's certificate must have. The default is the host.
   */
  server_name?: string | null;
  /**
   * SPIFFE ID that the daemon's certificate must have.
   */
  spiffe_id?: string | null;
  /**
   * Timeout of each call, such as `10s`. The default is `30s`.
   */
  timeout?: string | null;
  /**
   * Token of each call.
   */
  token?: string | null;
  /**
   * File with the token.
   */
  token_file?: string | null;
}
/**
 * Directories of this machine as one source.
 */
export interface LocalRequest {
  /**
   * Directories by the ids of their authorities.
   */
  directories?: {
    [k: string]: string;
  };
  /**
   * Id of the source.
   */
  id: string;
  /**
   * Tools whose directories are used, too: `agents`, `claude` or `codex`.
   */
  presets?: string[];
}
/**
 * MCP server with skills.
 */
export interface ServerRequest {
  /**
   * Name of the server.
   */
  name: string;
  /**
   * Server as in the object `mcpServers` of MCP hosts.
   */
  server: unknown;
}
/**
 * Site with an index of skills.
 */
export interface SiteRequest {
  /**
   * Whether addresses that are not globally routable are allowed. The default is `false`.
   */
  allow_private?: boolean;
  /**
   * Host of the site.
   */
  host: string;
}
/**
 * Definition of a tool of the program.
 */
export interface ProgramTool {
  /**
   * Description for the model.
   */
  description: string;
  /**
   * Whether third parties write the results, such as of a web search.
   */
  externalContext?: boolean;
  /**
   * JSON Schema of the arguments.
   */
  inputSchema: unknown;
  /**
   * Name of the tool.
   */
  name: string;
  /**
   * Namespace, which becomes a part of the name: `NAMESPACE_NAME`.
   */
  namespace?: string | null;
  /**
   * Description of the result, for the instruction text.
   */
  outputDescription?: string | null;
  /**
   * JSON Schema of the result, for the instruction text.
   */
  outputSchema?: unknown;
  /**
   * Time limit of a call, such as `30s`. The default is `1m`.
   */
  timeLimit?: string | null;
}
/**
 * Authority of a skill.
 */
export interface SkillAuthority {
  /**
   * Id of the selected root, of the directory, of the server or of the site.
   */
  id: string;
  /**
   * `executor`, `local`, `mcp` or `site`.
   */
  kind: string;
}
/**
 * Mention of a skill.
 */
export interface SkillMention {
  /**
   * Package or main resource of the skill; may be empty next to a name.
   */
  handle?: string;
  /**
   * Name of the skill; may be empty next to a handle.
   */
  name?: string;
}
/**
 * Call that waits for its answer.
 */
export interface ProgramCall {
  /**
   * Arguments as the model wrote them. The default is `null`.
   */
  arguments?: unknown;
  /**
   * Id of at most 512 bytes, which the platform never gives another call.
   */
  requestId: string;
  /**
   * Id of the thread, as the platform has it.
   */
  sessionId: string;
  /**
   * Name of the tool.
   */
  tool: string;
}
/**
 * Answer of a request: one line of stdout with `result` or `error`.
 */
export interface AnswerLine {
  error?: RequestError;
  /**
   * For `call`: whether third parties wrote the result.
   */
  externalContext?: boolean;
  /**
   * The `id` of the request.
   */
  id: unknown;
  images?: AnswerImage[];
  /**
   * Result of the request, by its method.
   */
  result?: unknown;
  /**
   * For `call`: whether the tool succeeded.
   */
  success?: boolean;
}
/**
 * Error of a request.
 */
export interface RequestError {
  /**
   * `BAD_REQUEST`, `BAD_CONFIG`, `FAILED`, `CANCELLED` or `OVERLOADED`; for `start` also `NO_DAEMON`,
   * with `sources` `EXECUTOR_UNAVAILABLE` or `NOT_ALLOWED`, and for `list` and `read` the code of the
   * tool's error.
   */
  code: string;
  /**
   * Reason in a sentence.
   */
  message: string;
  /**
   * All mistakes of the options with the code `BAD_CONFIG`, one sentence each.
   */
  mistakes?: string[];
  /**
   * Next step in a sentence, if it is not in the message.
   */
  next?: string | null;
}
/**
 * Image or sound of a tool's result.
 */
export interface AnswerImage {
  /**
   * Content in base64.
   */
  data: string;
  /**
   * Type as the server names it, such as `image/png`.
   */
  mimeType: string;
}
/**
 * State of one executor of a session.
 */
export interface ExecutorState {
  /**
   * Environment of the executor.
   */
  environmentId: string;
  /**
   * Start of the daemon to which the revision belongs.
   */
  epoch: string;
  /**
   * Reason if the executor is not live.
   */
  reason?: string | null;
  /**
   * Revision of the mirrored catalog.
   */
  revision: number;
  /**
   * Number of mirrored skills that the session has.
   */
  skills: number;
  state: ExecutorStatus;
}
/**
 * Kind and id of a source, as in the authorities of its skills.
 */
export interface SourceName {
  id: string;
  /**
   * `local`, `mcp` or `site`.
   */
  kind: string;
}
/**
 * Plugin of a source.
 */
export interface SessionPlugin {
  /**
   * JSON of the message `Plugin` of the API.
   */
  plugin: {};
  /**
   * Id of the source; the environment of an executor.
   */
  sourceId: string;
  /**
   * `executor` or `local`.
   */
  sourceKind: string;
}
/**
 * Plugin that differs from before.
 */
export interface ChangedPlugin {
  /**
   * Changed components. Empty if only other fields changed, such as the version.
   */
  components: ComponentChange[];
  /**
   * JSON of the message `Plugin` of the API.
   */
  plugin: {};
  /**
   * Id of the source; the environment of an executor.
   */
  sourceId: string;
  /**
   * `executor` or `local`.
   */
  sourceKind: string;
}
/**
 * Change of one component of a plugin.
 */
export interface ComponentChange {
  change: ComponentChangeKind;
  /**
   * Kind of the component: `mcp_server`, `app`, `hook`, `lsp_server`, `agent`, `command` or
   * `output_style`.
   */
  kind: string;
  /**
   * Name of the component; the event of a hook.
   */
  name: string;
}
/**
 * Page of pending calls: the result of the event `listPending`.
 */
export interface ProgramCallPage {
  /**
   * Calls of the page.
   */
  calls: ProgramCall[];
  /**
   * Token of the next page. Missing at the end.
   */
  nextToken?: string | null;
}
/**
 * Answer of `tool_result`.
 */
export interface AcceptedResult {
  /**
   * Whether the call waited for the result.
   */
  accepted: boolean;
}
/**
 * Name that matches several skills.
 */
export interface AmbiguousName {
  /**
   * Matching skills, at most 16.
   */
  candidates: MentionCandidate[];
  /**
   * Name in the mention.
   */
  name: string;
}
/**
 * Skill that a name matches. `[$name](package)` mentions only this skill.
 */
export interface MentionCandidate {
  /**
   * Description of the skill, at most 256 bytes.
   */
  description: string;
  /**
   * Kind of the authority: `executor`, `local`, `mcp` or `site`.
   */
  kind: string;
  /**
   * Name of the skill, which may begin with the name of a plugin: `deploy-plugin:deploy`.
   */
  name: string;
  /**
   * Handle of the skill.
   */
  package: string;
  /**
   * Id of the authority: the selected root of the skill.
   */
  root: string;
}
/**
 * Requests that `cancel` ended.
 */
export interface CancelledRequests {
  /**
   * Number of requests in flight with the id.
   */
  cancelled: number;
}
/**
 * Outcome of a pushed call.
 */
export interface DispatchAnswer {
  /**
   * The outcome of the submission, `ignored` for a call of another thread, or `alreadyKnown` for a call
   * that is in flight or done.
   */
  outcome: string;
  /**
   * The submitted answer, if there is one.
   */
  record?: SubmittedAnswer | null;
}
/**
 * Answer of a pending call that was submitted.
 */
export interface SubmittedAnswer {
  /**
   * Number of submissions.
   */
  attempts: number;
  /**
   * `accepted`, `notFound`, `alreadyAnswered` or `failed`.
   */
  outcome: string;
  /**
   * Reason of the outcome `failed`.
   */
  reason: string | null;
  /**
   * Id that the manager has for the call.
   */
  requestId: string;
  /**
   * Whether the answer is a success.
   */
  success: boolean;
  /**
   * Name of the tool.
   */
  tool: string;
}
/**
 * Dispatcher that `dispatcher` made or `close_dispatcher` removed.
 */
export interface DispatcherNumber {
  /**
   * Number of the dispatcher.
   */
  dispatcher: number;
}
/**
 * Numbers of calls that a drain answered.
 */
export interface DrainCounts {
  /**
   * Answers that the manager took.
   */
  accepted: number;
  /**
   * Calls that had an answer already.
   */
  alreadyAnswered: number;
  /**
   * Whether the last poll found no new call, and every call could be read.
   */
  complete: boolean;
  /**
   * Answers that the manager did not take. The next drain submits them again.
   */
  failed: number;
  /**
   * The first 100 answers that the manager did not take.
   */
  failures: SubmittedAnswer[];
  /**
   * Answers of calls that the manager does not know any more.
   */
  notFound: number;
  /**
   * Calls of the last poll that could not be read.
   */
  unread: number;
}
/**
 * Whole text file.
 */
export interface FileText {
  /**
   * Text of at most 16 MiB.
   */
  text: string;
}
/**
 * Skills that a prompt mentions.
 */
export interface InjectedSkills {
  /**
   * Names that match several skills. `fragments` has none of these skills for such a name.
   */
  ambiguous: AmbiguousName[];
  /**
   * Fragments for the model, in the order of the mentions. External context, like every result:
   * they belong into a user message, never into the system prompt.
   */
  fragments: SkillFragment[];
  /**
   * Mentions that are not in `fragments`.
   */
  omitted: OmittedMention[];
  /**
   * Names of the caller's skills that a skill of the session replaces. The caller omits its own
   * skill.
   */
  replaced: string[];
}
/**
 * Text of one skill.
 */
export interface SkillFragment {
  /**
   * Name of the skill.
   */
  name: string;
  /**
   * Handle of the skill.
   */
  package: string;
  /**
   * Text from `<skill>` to `</skill>`, at most [`MAX_FRAGMENT_BYTES`] bytes.
   */
  text: string;
  /**
   * Whether the text is truncated. A truncated text ends with the call that continues it.
   */
  truncated: boolean;
}
/**
 * Mentioned skill that could not be injected.
 */
export interface OmittedMention {
  /**
   * Name or handle of the mention, at most 256 bytes.
   */
  mention: string;
  /**
   * Reason, as a sentence.
   */
  reason: string;
}
/**
 * Instruction text for a model that may have an older one.
 */
export interface InstructionUpdate {
  /**
   * Names in a notice.
   */
  changes?: NoticeChanges | null;
  /**
   * Number of skills that are hidden from models; never in the text.
   */
  hidden: number;
  /**
   * Id of the text that the model has after this update, for the next request. Only the same
   * session knows the id.
   */
  id: string;
  kind: UpdateKind;
  /**
   * Number of skills in the text. Equal skills of several environments count once.
   */
  listed: number;
  /**
   * Number of skills without room.
   */
  omitted: number;
  /**
   * Reason of a whole text although the request had an id, as a sentence.
   */
  reason?: string | null;
  /**
   * Number of listed skills with a truncated description.
   */
  shortened: number;
  /**
   * Text within the budget; empty if there are no skills or no room.
   */
  text: string;
  /**
   * Warnings for the program, such as unavailable executors; not in the text.
   */
  warnings: string[];
}
/**
 * Skills that a notice names, in its order.
 */
export interface NoticeChanges {
  /**
   * Names of skills that came.
   */
  added: string[];
  /**
   * Names of skills whose description or SKILL.md changed.
   */
  changed: string[];
  /**
   * Names of skills that went.
   */
  removed: string[];
  /**
   * Number of further changes, which the notice only counts.
   */
  unnamed: number;
}
/**
 * Skill that a model may use.
 */
export interface ListedSkill {
  authority: SkillAuthority;
  /**
   * Description by the author of the skill.
   */
  description: string;
  /**
   * Package of the skill in each environment, if several environments have it.
   */
  environments?: {
    [k: string]: string;
  };
  /**
   * Handle of its SKILL.md.
   */
  mainResource: string;
  /**
   * Requirements that the executor does not have, such as `program jq`.
   */
  missing?: string[];
  /**
   * Name, which may begin with the name of a plugin: `deploy-kit:deploy`.
   */
  name: string;
  /**
   * Handle of the skill.
   */
  package: string;
}
/**
 * End of a manager's stream of events.
 */
export interface ListenEnd {
  /**
   * Id of the last event of the stream.
   */
  lastEventId: string | null;
}
/**
 * State of an MCP server of a plugin.
 */
export interface McpServerStatus {
  /**
   * Digest of the definitions of the tools; empty without tools.
   */
  digest: string;
  /**
   * Reason if the server cannot be used; the end of a sentence.
   */
  error: string | null;
  /**
   * Handle of the server: that of the plugin, `#` and the name.
   */
  handle: string;
  /**
   * Origin of the server; empty if its URL is not used.
   */
  origin: string;
  /**
   * Handle of the plugin.
   */
  package: string;
  /**
   * Name of the plugin.
   */
  plugin: string;
  /**
   * Name of the server.
   */
  server: string;
  /**
   * Id of the plugin's source; the environment of an executor.
   */
  sourceId: string;
  /**
   * Kind of the plugin's source: `executor` or `local`.
   */
  sourceKind: string;
  /**
   * Full names of the tools.
   */
  tools: string[];
}
/**
 * Program and its limits.
 */
export interface ProgramState {
  /**
   * Number of requests that are processed at once. More requests wait, or get the error
   * `OVERLOADED` while calls of own tools wait.
   */
  maxInFlight: number;
  /**
   * Maximum size of a line of stdin in bytes.
   */
  maxLineBytes: number;
  /**
   * Id of the first session; `null` with `--no-session`.
   */
  session: string | null;
  /**
   * Version of caproot.
   */
  version: string;
}
/**
 * Prompt that the manager took.
 */
export interface PromptAnswer {
  /**
   * With `until`: the calls of the turn.
   */
  drained?: DrainCounts | null;
  injected: InjectedSkills;
  /**
   * With `until`: the status that ended the turn.
   */
  status?: string | null;
}
/**
 * Fragment of a file that the model read or was given before.
 */
export interface ReinjectedFragment {
  /**
   * Whether the file changed since the model read it. The fragment has the file of now.
   */
  changed: boolean;
  /**
   * Name of the skill.
   */
  name: string;
  /**
   * Handle of the skill.
   */
  package: string;
  /**
   * Handle of the file.
   */
  resource: string;
  /**
   * Text from `<skill>` to `</skill>`, at most [`MAX_FRAGMENT_BYTES`] bytes.
   */
  text: string;
  /**
   * Whether the text is truncated. A truncated text ends with the call that continues it.
   */
  truncated: boolean;
}
/**
 * Skills that the model read or was given, for a model that has forgotten them.
 */
export interface ReinjectedSkills {
  /**
   * Fragments for the model, the most recently used file first. External context, like every result.
   */
  fragments: ReinjectedFragment[];
  /**
   * Text for the model that names the files that changed since or are gone; empty if there are none.
   */
  note: string;
  /**
   * Files without a fragment, by handle.
   */
  omitted: OmittedMention[];
}
/**
 * Results by the method of their request.
 */
export interface ResultsByMethod {
  call: {
    [k: string]: unknown;
  };
  cancel: CancelledRequests;
  changes: SavedChanges[];
  close: SessionId;
  close_dispatcher: DispatcherNumber;
  dispatch: DispatchAnswer;
  dispatcher: DispatcherNumber;
  drain: DrainCounts;
  fork: SessionId;
  hello: ProgramState;
  inject: InjectedSkills;
  instructions: InstructionUpdate;
  list: ListedSkill[];
  listen: ListenEnd;
  plugin_servers: McpServerStatus[];
  plugins: SessionPlugin[];
  read: FileText;
  reinject: ReinjectedSkills;
  restore: StartedSession;
  run_turn: TurnAnswer;
  save: {
    [k: string]: unknown;
  };
  send: PromptAnswer;
  source_states: SourceState[];
  start: StartedSession;
  state: ExecutorState[];
  tool_result: AcceptedResult;
  tools: ToolPayload[];
  used_skills: UsedSkill[];
  watch: WatchedText;
  watch_usage: SessionId;
}
/**
 * Changes of one executor since the save of a session.
 */
export interface SavedChanges {
  /**
   * Whether the listed skills are newer than `changes`.
   */
  changedAgain: boolean;
  changes: ChangeState;
  environmentId: string;
}
/**
 * Session that `fork` made, `watch_usage` watches or `close` closed.
 */
export interface SessionId {
  /**
   * Id of the session.
   */
  session: string;
}
/**
 * New or restored session.
 */
export interface StartedSession {
  /**
   * Changes of each executor since the save; empty for a new session.
   */
  changes: SavedChanges[];
  /**
   * Id of the session.
   */
  session: string;
  /**
   * Executors and parts of the saved state without which the session starts, one sentence each.
   */
  warnings: string[];
}
/**
 * End of a turn.
 */
export interface TurnAnswer {
  drained: DrainCounts;
  /**
   * Status that ended the turn.
   */
  status: string;
}
/**
 * State of one source.
 */
export interface SourceState {
  /**
   * Id of the source, such as the environment of an executor.
   */
  id: string;
  /**
   * Kind of the source: `executor`, `local`, `mcp` or `site`.
   */
  kind: string;
  /**
   * Reason if the skills of the source are not listed now.
   */
  reason?: string | null;
  /**
   * Number of its skills that the session has.
   */
  skills: number;
}
/**
 * Tool as a model API expects it.
 */
export interface ToolPayload {
  /**
   * Description for the model.
   */
  description: string;
  /**
   * JSON Schema of the arguments.
   */
  inputSchema: {
    [k: string]: unknown;
  };
  /**
   * Name of the tool.
   */
  name: string;
}
/**
 * File of a skill that the model read or was given in a session.
 */
export interface UsedSkill {
  /**
   * Digest of the file that the model has: `sha256:` and the hex digest. Empty if the source has no
   * digests.
   */
  digest: string;
  /**
   * Kind of the authority: `executor`, `local`, `mcp` or `site`.
   */
  kind: string;
  /**
   * Name of the skill.
   */
  name: string;
  /**
   * Handle of the skill.
   */
  package: string;
  /**
   * Handle of the file.
   */
  resource: string;
  /**
   * Id of the authority: the selected root of the skill.
   */
  root: string;
  state: UsedState;
}
/**
 * Text of a watched session.
 */
export interface WatchedText {
  /**
   * Id of the session.
   */
  session: string;
  /**
   * Text that describes the skills to a model.
   */
  text: string;
}
