/** The daemon's metrics as they were since this page was opened: browsers have no Prometheus, and most of an incident is its last minutes. */
import { text } from './api';
import { parse, type Reading } from './metrics';

/** How often. */
export const EVERY = 2000;
/** Half an hour. */
const KEPT = 900;

class Readings {
  all = $state.raw<Reading[]>([]);
  problem = $state('');
  #timer = 0;

  /** Reads on until the answer is called. Readings stay: coming back to the view shows them. */
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
