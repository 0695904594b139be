/** The current locks, updated by the daemon's events, with a slow poll in case an event is missed. */
import { ask, type Lock, type LockList, type Told } from './api';
import { follow, type Standing } from './stream';
import { Fills } from './fills';

/** The number of events kept for the views. */
const KEPT = 400;
/** The minimum interval between two reloads, in milliseconds. */
const APART = 250;
/** The poll interval without events, in milliseconds. */
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
  /** Grows with every event; views that show more than locks reload when it changes. */
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

  /** Schedules a reload of the locks; several events cause one request. */
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
