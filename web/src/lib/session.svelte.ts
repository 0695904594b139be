/** The session: the API token, kept for this tab only, and its rights. */
import type { Me, Opened } from './api';

const KEY = 'leasehold-token';

function kept(): string {
  try {
    return sessionStorage.getItem(KEY) ?? '';
  } catch {
    return '';
  }
}

class Session {
  token = $state(kept());
  /** The daemon requires a token. */
  wanted = $state(false);
  /** The link that opened this page was used before, or has expired. */
  spent = $state(false);
  me = $state.raw<Me | null>(null);

  /** The daemon answered 401 to this token. Ignored if the user has entered another token since. */
  refused(token: string) {
    if (token !== this.token) return;
    this.wanted = true;
    this.me = null;
  }

  use(token: string) {
    this.token = token.trim();
    this.wanted = false;
    this.spent = false;
    try {
      if (this.token) sessionStorage.setItem(KEY, this.token);
      else sessionStorage.removeItem(KEY);
    } catch {
      // Without storage the token is kept in memory only.
    }
  }

  /**
   * Exchanges the one-time code of the link that opened this page for the token. The code leaves the address first, so that
   * neither the history nor a copied address has it.
   */
  async redeem(): Promise<void> {
    const code = /^#code=([0-9a-f]+)$/.exec(location.hash)?.[1];
    if (!code) return;
    history.replaceState(null, '', '#/locks');
    const response = await fetch('/v1/dashboard/session', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ code }),
      credentials: 'omit',
      cache: 'no-store',
    });
    if (response.ok) this.use(((await response.json()) as Opened).token);
    else this.spent = true;
  }

  /** True if the daemon is this user's own: commands of the user find its token by themselves. */
  get own(): boolean {
    return this.me?.id === 'local';
  }

  /** True if the token has `admin` on `*`, which policy changes require. */
  get admin(): boolean {
    return this.me?.grants.includes('admin:*') ?? false;
  }
}

export const session = new Session();
