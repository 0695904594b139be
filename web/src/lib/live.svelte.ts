/** What the daemon holds right now, kept fresh by its events, with a slow poll in case one is missed. */
import { ask, type Lock, type LockList, type Told } from './api';
import { follow, type Standing } from './stream';
import { Fills } from './fills';

/** How many events are kept for the views. */
const KEPT = 400;
/** Not more often than this, however much happens. */
const APART = 250;
/** Even if nothing is heard. */
const POLL = 5000;

class Live {
  standing = $state<Standing>('connecting');
  locks = $state.raw<Lock[]>([]);
  truncated = $state(false);
  /** When `locks` was read, by `performance.now()`. */
  at = $state(0);
  loaded = $state(false);
  events = $state.raw<Told[]>([]);
  problem = $state('');
  /** Grows with every event: views that show more than locks read anew when it moves. */
  beat = $state(0);
  fills = new Fills();
  #due = false;
  #busy = false;

  start(): () => void {
    const stop = new AbortController();
    void follow(
      stop.signal,
      (event) => this.#told(event),
      (now) => (this.standing = now),
      () => this.soon(),
    );
    const poll = setInterval(() => this.soon(), POLL);
    return () => {
      stop.abort();
      clearInterval(poll);
    };
  }

  #told(event: Told) {
    this.events = [event, ...this.events].slice(0, KEPT);
    this.beat += 1;
    this.soon();
  }

  /** Reads the locks anew, soon: many events are one question. */
  soon() {
    this.#due = true;
    if (!this.#busy) void this.#read();
  }

  async #read() {
    this.#busy = true;
    while (this.#due) {
      this.#due = false;
      try {
        const sent = performance.now();
        const list = await ask<LockList>('GET', '/v1/locks?limit=2000');
        this.at = sent;
        this.locks = this.fills.seen(list.locks, sent, performance.now());
        this.truncated = list.truncated;
        this.loaded = true;
        this.problem = '';
      } catch (error) {
        this.problem = (error as Error).message;
      }
      await new Promise((resume) => setTimeout(resume, APART));
    }
    this.#busy = false;
  }
}

export const live = new Live();
