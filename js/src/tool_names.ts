/** Names of tools in the text of a session, for frameworks that give other names to tools. */

import type { Session } from "./session.ts";

/** Line before the results of own tools in the text of a session. */
const RESULTS_HEADING = "\n## Results of tools\n";

/** Returns the text of a session with other names of its tools. Lines of skills stay as they are, as third parties wrote
 * them. */
export function renameTools(session: Session, rename: (name: string) => string): string {
  const names = new Set(session.tools.map(({ name }) => name));
  const replace = (whole: string, before: string, name: string) => (names.has(name) ? before + rename(name) : whole);

  const [skills = "", results] = session.text.split(RESULTS_HEADING, 2);
  const lines = skills.split("\n").map((line) => (line.startsWith("- ") ? line : line.replaceAll(/(`)([\w-]+)(?=`)/g, replace)));
  const named = lines.join("\n");
  return results === undefined ? named : named + RESULTS_HEADING + results.replaceAll(/^(- )([\w-]+)(?=:)/gm, replace);
}
