/** The time for countdowns, often enough for tenths of seconds to look alive and seldom enough to cost nothing. */
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
