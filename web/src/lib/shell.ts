/** Words for a POSIX shell: lock names are chosen by others, and people copy the commands that are shown. */

/** One word of a shell. A word of harmless characters stays as it is. The same rule as `leasehold_core::shell::quote`. */
export function quote(text: string): string {
  return /^[A-Za-z0-9\-_.,:/@+]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The last argument of a command: a text that begins with `-` must not become an option. */
export function quoteArgument(text: string): string {
  return `${text.startsWith('-') ? '-- ' : ''}${quote(text)}`;
}

/** The name of the owner token's files: the address that the daemon listens on, and not the name that the browser was given. */
export function ownerFile(at: { protocol: string; hostname: string; port: string }): string {
  const host = at.hostname === 'localhost' ? '127.0.0.1' : at.hostname;
  return `${host}:${at.port || (at.protocol === 'https:' ? '443' : '80')}`;
}
