/** Iterators over the changes of a session. */

/** Maximum number of changes that wait for their reader. */
const MAX_WAITING = 1024;

interface Reader<T> {
  resolve(result: IteratorResult<T>): void;
  reject(error: Error): void;
}

/** Changes from now on, until the session is closed. */
export class Changes<T> implements AsyncIterableIterator<T> {
  /** Changes by their key: a newer change of one source replaces the older one. */
  readonly #waiting = new Map<unknown, T>();
  readonly #readers: Reader<T>[] = [];
  readonly #onEnd: (changes: Changes<T>) => void;
  #failure: Error | undefined;
  #hasEnded = false;

  constructor(onEnd: (changes: Changes<T>) => void) {
    this.#onEnd = onEnd;
  }

  /** Whether a further change would end the iteration. */
  get isFull(): boolean {
    return this.#waiting.size >= MAX_WAITING;
  }

  /** Adds a change. Without a key, each change is kept. */
  push(change: T, key: unknown = Symbol()): void {
    if (this.#hasEnded) return;
    const reader = this.#readers.shift();
    if (reader) reader.resolve({ done: false, value: change });
    else if (this.#waiting.size < MAX_WAITING) this.#waiting.set(key, change);
    else this.fail(new Error(`${MAX_WAITING} changes wait for their reader`));
  }

  /** Ends the iteration. Changes that wait are still read. */
  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    for (const reader of this.#readers.splice(0)) reader.resolve({ done: true, value: undefined });
    this.#onEnd(this);
  }

  /** Ends the iteration with an error. */
  fail(error: Error): void {
    if (this.#hasEnded) return;
    const readers = this.#readers.splice(0);
    if (readers.length === 0) this.#failure = error;
    for (const reader of readers) reader.reject(error);
    this.end();
  }

  next(): Promise<IteratorResult<T>> {
    const [first] = this.#waiting;
    if (first) {
      this.#waiting.delete(first[0]);
      return Promise.resolve({ done: false, value: first[1] });
    }
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure) return Promise.reject(failure);
    if (this.#hasEnded) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve, reject) => this.#readers.push({ resolve, reject }));
  }

  return(): Promise<IteratorResult<T>> {
    this.#waiting.clear();
    this.end();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
