/** Words for a POSIX shell: lock names are chosen by others, and people copy the commands that are shown. */

/** One word of a shell. A word of harmless characters stays as it is. The same rule as `leasehold_core::shell::quote`. */
export function quote(text: string): string {
  return /^[A-Za-z0-9\-_.,:/@+]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The last argument of a command: a text that begins with `-` must not become an option. */
export function quoteArgument(text: string): string {
  return `${text.startsWith('-') ? '-- ' : ''}${quote(text)}`;
}
