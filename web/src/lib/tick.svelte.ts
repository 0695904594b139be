/** The clock for countdowns: frequent enough for tenths of seconds, rare enough to be cheap. */
class Tick {
  /** `performance.now()`. */
  now = $state(performance.now());
  /** `Date.now()`. */
  wall = $state(Date.now());

  constructor() {
    setInterval(() => {
      if (document.hidden) return;
      this.now = performance.now();
      this.wall = Date.now();
    }, 250);
  }
}

export const tick = new Tick();
