/**
 * How long a full lease is, for the bars: the store only says what is left.
 *
 * A renewal shows it (what is left jumps up); before the first one, a lease has lived `age` and has `remaining` left, so it is not longer
 * than the two together, nor than its class says.
 *
 * Nor does the store say when the lease ends by the browser's clock: a reading that took long leaves that open by as much as it took, on
 * the way there or back. As long as all readings can mean the same end, the first one's is kept, so that a bar grows when a lease was renewed and
 * never because an answer was slow.
 */
import type { Lock } from './api';

interface Fill {
  fence: string;
  full: number;
  left: number;
  /** When it ends, by `performance.now()`. */
  end: number;
  /** The latest that it can be, by all readings since it was last renewed. */
  latest: number;
}

export class Fills {
  #by = new Map<string, Fill>();
  /** TTLs of the classes in milliseconds. */
  classes = new Map<string, number>();

  /** What a reading says that was asked for at `sent` and answered at `received`. */
  seen(locks: Lock[], sent: number, received: number): Lock[] {
    const next = new Map<string, Fill>();
    for (const lock of locks) {
      const left = lock.remaining_ms ?? 0;
      const fence = lock.fence ?? '';
      const before = this.#by.get(lock.name);
      let full = Math.max(left, 1);
      // Rather too early than too late; and the store counts whole milliseconds.
      let end = sent + left;
      let latest = received + left;
      if (before && before.fence === fence) {
        // More than there was: it was renewed just now, and this is about all of it.
        full = left > before.left + 50 ? Math.max(left, this.#longest(lock, left)) : Math.max(before.full, left);
        if (end <= before.latest + 1 && before.end <= latest + 1) {
          end = before.end;
          latest = Math.min(latest, before.latest);
        }
      } else {
        full = this.#longest(lock, left);
      }
      next.set(lock.name, { fence, full, left, end, latest });
    }
    this.#by = next;
    return locks;
  }

  #longest(lock: Lock, left: number): number {
    const lived = left + (lock.age_ms ?? 0);
    const ttl = this.classes.get(lock.class ?? '') ?? lived;
    return Math.max(left, Math.min(lived, ttl), 1);
  }

  /** When it ends, by `performance.now()`. */
  end(lock: Lock): number {
    return this.#by.get(lock.name)?.end ?? 0;
  }

  full(lock: Lock): number {
    return this.#by.get(lock.name)?.full ?? lock.remaining_ms ?? 0;
  }
}
