/**
 * How long a full lease is, for the bars: the store only says what is left.
 *
 * A renewal shows it (what is left jumps up); before the first one, a lease has lived `age` and has `remaining` left, so it is not longer
 * than the two together, nor than its class says.
 */
import type { Lock } from './api';

interface Fill {
  fence: string;
  full: number;
  left: number;
}

export class Fills {
  #by = new Map<string, Fill>();
  /** TTLs of the classes in milliseconds. */
  classes = new Map<string, number>();

  seen(locks: Lock[]): Lock[] {
    const next = new Map<string, Fill>();
    for (const lock of locks) {
      const left = lock.remaining_ms ?? 0;
      const fence = lock.fence ?? '';
      const before = this.#by.get(lock.name);
      let full = Math.max(left, 1);
      if (before && before.fence === fence) {
        // More than there was: it was renewed just now, and this is about all of it.
        full = left > before.left + 50 ? Math.max(left, this.#longest(lock, left)) : Math.max(before.full, left);
      } else {
        full = this.#longest(lock, left);
      }
      next.set(lock.name, { fence, full, left });
    }
    this.#by = next;
    return locks;
  }

  #longest(lock: Lock, left: number): number {
    const lived = left + (lock.age_ms ?? 0);
    const ttl = this.classes.get(lock.class ?? '') ?? lived;
    return Math.max(left, Math.min(lived, ttl), 1);
  }

  /** The share that is left, from 0 to 1. */
  share(lock: Lock): number {
    const full = this.#by.get(lock.name)?.full ?? lock.remaining_ms ?? 1;
    return Math.min(1, Math.max(0, (lock.remaining_ms ?? 0) / Math.max(full, 1)));
  }

  full(lock: Lock): number {
    return this.#by.get(lock.name)?.full ?? lock.remaining_ms ?? 0;
  }
}
