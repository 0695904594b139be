/**
 * The full length of each lease, for the bars: the store only returns the remaining time.
 *
 * A renewal shows the full length (the remaining time jumps up). Before the first renewal, the lease is at most `age` plus `remaining`
 * long, and at most its class's TTL.
 *
 * The store does not know the browser's clock either. A slow response leaves the end of the lease uncertain by its round trip. While all
 * readings are consistent with one end, the first estimate is kept. So a bar grows only after a renewal, never because a
 * response was slow.
 */
import type { Lock } from './api';

interface Fill {
  fence: string;
  full: number;
  left: number;
  /** When it ends, by `performance.now()`. */
  end: number;
  /** The latest possible end, by all readings since the last renewal. */
  latest: number;
}

export class Fills {
  #by = new Map<string, Fill>();
  /** TTLs of the classes in milliseconds. */
  classes = new Map<string, number>();

  /** Handles a reading that was requested at `sent` and received at `received`. */
  seen(locks: Lock[], sent: number, received: number): Lock[] {
    const next = new Map<string, Fill>();
    for (const lock of locks) {
      const left = lock.remaining_ms ?? 0;
      const fence = lock.fence ?? '';
      const before = this.#by.get(lock.name);
      let full = Math.max(left, 1);
      // The earliest possible end. The store counts whole milliseconds.
      let end = sent + left;
      let latest = received + left;
      if (before && before.fence === fence) {
        // The remaining time has grown: the lease was just renewed and is nearly full.
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
