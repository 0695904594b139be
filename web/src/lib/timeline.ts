/** Lays out holds by name and time, and marks overlaps and takeovers. */
import type { Held } from './api';

/** How a hold ended; decides its colour. */
export type Fate = 'held' | 'released' | 'debt' | 'lost' | 'broken' | 'local' | 'stopped';

export interface Bar {
  row: Held;
  fate: Fate;
  /** Milliseconds of the wall clock. */
  from: number;
  to: number;
  /** The row among concurrent holds of the name, from 0. */
  level: number;
  /** Delay after the unclean end of the previous hold, if there was one. */
  takeover: number | null;
}

export interface Lane {
  name: string;
  bars: Bar[];
  levels: number;
  /** Periods with two holders. */
  overlaps: { from: number; to: number }[];
}

/**
 * The daemon notices the expiry of a client-kept lease a little late. A hold that begins in that time does not
 * overlap with it.
 */
const NOTICED = 1500;

/** Clean ends. */
const CLEAN = new Set(['released', 'kept', 'already_lost']);

export function fate(row: Held): Fate {
  if (row.ended === 'debt') return 'debt';
  if (row.ended === 'broken') return 'broken';
  if (row.ended === 'shutdown' || row.ended === 'daemon_stopped') return 'stopped';
  if (!row.fence) return 'local';
  if (!row.ended) return 'held';
  return CLEAN.has(row.ended) ? 'released' : 'lost';
}

/** The displayed text of an end. */
export function ending(row: Held): string {
  const words: Record<string, string> = {
    released: 'released',
    kept: 'left to its TTL on purpose',
    debt: 'work done, release not confirmed: lock debt',
    deadline: 'abandoned: the lease ran out',
    max_failures: 'abandoned: renewals kept failing',
    not_owned: 'abandoned: the lease was somebody else’s',
    max_hold: 'stopped: held for the longest allowed time',
    broken: 'broken by an operator',
    client_gone: 'its client was not heard of any more',
    shutdown: 'the daemon stopped',
    daemon_stopped: 'the daemon stopped',
    already_lost: 'was lost before its release',
    unproven: 'ended without proof of its lease',
  };
  return row.ended ? (words[row.ended] ?? row.ended) : row.fence ? 'held now' : 'held now, local only: the store could not be asked';
}

/** Lanes, sorted by their newest start. */
export function lanes(rows: Held[], now: number): Lane[] {
  const by = new Map<string, Bar[]>();
  for (const row of [...rows].sort((a, b) => Date.parse(a.from) - Date.parse(b.from))) {
    const from = Date.parse(row.from);
    const to = row.to ? Date.parse(row.to) : row.ended ? from : now;
    const bars = by.get(row.name) ?? [];
    bars.push({ row, fate: fate(row), from, to: Math.max(to, from), level: 0, takeover: null });
    by.set(row.name, bars);
  }
  const all: Lane[] = [];
  for (const [name, bars] of by) {
    const overlaps: Lane['overlaps'] = [];
    const ends: number[] = [];
    let before: Bar | null = null;
    for (const bar of bars) {
      if (before?.row.ended === 'deadline' && before.to > bar.from && before.to - bar.from <= NOTICED) {
        ends[before.level] = before.to = Math.max(before.from, bar.from);
      }
      let level = ends.findIndex((end) => end <= bar.from);
      if (level < 0) level = ends.push(0) - 1;
      for (const end of ends) if (end > bar.from) overlaps.push({ from: bar.from, to: Math.min(end, bar.to) });
      ends[level] = bar.to;
      bar.level = level;
      const unclean = before && ['lost', 'debt', 'broken', 'stopped'].includes(before.fate);
      if (before && unclean && before.row.holder !== bar.row.holder) bar.takeover = Math.max(0, bar.from - before.to);
      before = bar;
    }
    all.push({ name, bars, levels: ends.length, overlaps: overlaps.filter(({ from, to }) => to > from) });
  }
  return all.sort((a, b) => (b.bars.at(-1)?.from ?? 0) - (a.bars.at(-1)?.from ?? 0));
}

/** Round times for the axis. */
export function ticks(from: number, to: number, most: number): number[] {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].map((s) => s * 1000);
  const step = steps.find((s) => (to - from) / s <= most) ?? 86_400_000;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}
