/** Who looks: the API token, kept for this tab only, and what it may do. */
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
  /** The daemon wants to know who it is. */
  wanted = $state(false);
  me = $state.raw<Me | null>(null);

  /** The answer to somebody with this token was "who are you?". An answer that comes after they have given another one says nothing. */
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
      // Then it is kept in memory only.
    }
  }

  /** May do this with everything, as changes of policy need. */
  get admin(): boolean {
    return this.me?.grants.includes('admin:*') ?? false;
  }
}

export const session = new Session();
