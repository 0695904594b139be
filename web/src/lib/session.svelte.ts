/** The session: the API token, kept for this tab only, and its rights. */
import type { Me } from './api';

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
    try {
      if (this.token) sessionStorage.setItem(KEY, this.token);
      else sessionStorage.removeItem(KEY);
    } catch {
      // Without storage the token is kept in memory only.
    }
  }

  /** True if the token has `admin` on `*`, which policy changes require. */
  get admin(): boolean {
    return this.me?.grants.includes('admin:*') ?? false;
  }
}

export const session = new Session();
