/** The current view: the part of the address after `#`. */
export const VIEWS = [
  ['locks', 'Locks'],
  ['timeline', 'Timeline'],
  ['classes', 'Classes'],
  ['debt', 'Lock debt'],
  ['plane', 'Control plane'],
  ['drills', 'Drills'],
] as const;

export type View = (typeof VIEWS)[number][0];

class Route {
  #parts = $state.raw(read());

  constructor() {
    addEventListener('hashchange', () => (this.#parts = read()));
  }

  get view(): View {
    const first = this.#parts[0];
    return VIEWS.find(([id]) => id === first)?.[0] ?? 'locks';
  }

  /** The part after the view's name. */
  get rest(): string[] {
    return this.#parts.slice(1);
  }
}

function read(): string[] {
  return location.hash
    .replace(/^#\/?/, '')
    .split('/')
    .filter(Boolean)
    .map((piece) => decodeURIComponent(piece));
}

export const route = new Route();
