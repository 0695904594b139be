/** What the grants of `/v1/me` allow, as the daemon decides it. The daemon checks again: this only disables buttons. */
import type { Me } from './api';

/** True if a grant gives this right on this name. `admin` gives every right; a scope covers whole segments. */
export function may(me: Me | null, right: string, name: string): boolean {
  const segments = /^[^:]+:/.test(name) ? name.split(':') : ['default', name];
  return (me?.grants ?? []).some((grant) => {
    const [has, ...scope] = grant.split(':');
    if (has !== right && has !== 'admin') return false;
    return scope.join(':') === '*' || scope.every((segment, at) => segment === segments[at]);
  });
}
