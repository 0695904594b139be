/** The daemon's metrics since this page was opened. They show the last minutes of an incident without Prometheus. */
import { text } from './api';
import { parse, type Reading } from './metrics';

/** The interval between two readings, in milliseconds. */
export const EVERY = 2000;
/** The number of readings kept: half an hour. */
const KEPT = 900;

class Readings {
  all = $state.raw<Reading[]>([]);
  problem = $state('');
  #timer = 0;

  /** Starts polling; call the returned function to stop. Readings are kept for the next visit of the view. */
  start(): () => void {
    const read = async () => {
      try {
        const samples = parse(await text('/metrics'));
        this.all = [...this.all, { at: Date.now(), samples }].slice(-KEPT);
        this.problem = '';
      } catch (error) {
        this.problem = (error as Error).message;
      }
      this.#timer = setTimeout(read, EVERY);
    };
    void read();
    return () => clearTimeout(this.#timer);
  }
}

export const readings = new Readings();
