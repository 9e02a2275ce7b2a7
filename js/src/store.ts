/** Stores of saved sessions. */

import { StoreError } from "./errors.ts";

/** Seconds within which a store must answer. */
const TIME_LIMIT = 30;

/** Store of saved sessions by their ids, such as a table of a database. A method that throws did not store or
 * delete. Each call ends after 30 s. */
export interface Store {
  /** Stores a saved session, in place of the one before. */
  put(id: string, saved: string): void | Promise<void>;
  /** Returns the saved session, if there is one. */
  get(id: string): string | undefined | null | Promise<string | undefined | null>;
  /** Deletes the saved session, if there is one. */
  delete(id: string): void | Promise<void>;
}

/** Calls a store within its time limit. */
export async function callStore<T>(call: () => T | Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const expired = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${TIME_LIMIT} s`)), TIME_LIMIT * 1000);
  });
  try {
    return await Promise.race([call(), expired]);
  } catch (error) {
    throw new StoreError(`session store: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

/** Returns the saved session with an id. */
export async function readStored(store: Store, id: string): Promise<string> {
  const saved = await callStore(() => store.get(id));
  if (typeof saved === "string") return saved;
  throw new StoreError(`the store has no session with the id ${JSON.stringify(id)}`);
}
