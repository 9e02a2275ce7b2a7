/** Errors of the package. A call of a tool throws none of them: its result has the error. */

/** An operation failed. All other errors of the package are below this class, except `ToolError`. */
export class CaprootError extends Error {
  override name = "CaprootError";
}

/** A selection, fleet, tool, source or saved session has mistakes. */
export class ConfigError extends CaprootError {
  override name = "ConfigError";
  /** All mistakes, one sentence each. */
  readonly mistakes: readonly string[];

  constructor(mistakes: readonly string[]) {
    super(mistakes.join("; "));
    this.mistakes = mistakes;
  }
}

/** The session, an executor or a source refused an operation. */
export class Refused extends CaprootError {
  override name = "Refused";
  /** Code, such as `EXECUTOR_UNAVAILABLE`, `RESOURCE_NOT_FOUND` or `SESSION_CLOSED`. */
  readonly code: string;
  /** Next step as a sentence. */
  readonly next: string;

  constructor(code: string, message: string, next = "") {
    super(`${code}: ${message}${next && `. ${next}`}`);
    this.code = code;
    this.next = next;
  }
}

/** The program `caproot` is missing, has another version, died or does not answer. The next call of a
 * session starts the program again. */
export class ProgramError extends CaprootError {
  override name = "ProgramError";
}

/** A session began with the tools, so they do not change any more. */
export class SealedError extends CaprootError {
  override name = "SealedError";
}

/** The store of a session failed or has no such session, or the session has no store. */
export class StoreError extends CaprootError {
  override name = "StoreError";
}

/** A platform did not take answers or a turn, or a turn did not end in time. */
export class DispatchError extends CaprootError {
  override name = "DispatchError";
}

/** An own tool throws this error with words that the model may read. Every other exception of a tool is
 * a defect: the model only learns that the tool failed. */
export class ToolError extends Error {
  override name = "ToolError";
}
