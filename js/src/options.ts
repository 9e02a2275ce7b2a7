/** Names of options. A program without types may misspell a name, and an option that is ignored may give a model
 * more skills than its program wants. */

import { ConfigError } from "./errors.ts";

/** Greatest number of edits between a name and the name that was meant. */
const MAX_EDITS = 2;

/** Object with the names of the options of a type. The compiler checks that none is missing. */
export type OptionNames<T> = Record<keyof Required<T>, true | string>;

/** Returns a sentence for each option that does not exist. `where` is the argument or option with the options. */
export function unknownOptions(where: string, options: object | undefined | null, names: Record<string, unknown>): string[] {
  if (options === undefined || options === null) return [];
  const known = Object.keys(names);
  return Object.keys(options)
    .filter((name) => !Object.hasOwn(names, name))
    .map((name) => {
      const near = nearestName(name, known);
      const next = near === undefined ? `expected one of ${known.join(", ")}` : `did you mean \`${near}\`?`;
      return `${where}: unknown option \`${name}\`; ${next}`;
    });
}

/** Throws `ConfigError` with all options that do not exist. */
export function checkOptions(where: string, options: object | undefined | null, names: Record<string, unknown>): void {
  const mistakes = unknownOptions(where, options, names);
  if (mistakes.length > 0) throw new ConfigError(mistakes);
}

/** Returns the name with the fewest edits, without case and `_`: `name_only` means `nameOnly`. */
function nearestName(name: string, known: readonly string[]): string | undefined {
  const fold = (text: string) => text.slice(0, 64).replaceAll("_", "").toLowerCase();
  const edits = known.map((other) => countEdits(fold(name), fold(other)));
  const least = Math.min(...edits);
  return least <= MAX_EDITS ? known[edits.indexOf(least)] : undefined;
}

/** Returns the Levenshtein distance of two short texts. */
function countEdits(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
