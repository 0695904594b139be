/** `/metrics` read in the browser: supports as much of the text format as Leasehold's metrics use. */

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** One reading of all metrics. */
export interface Reading {
  /** Milliseconds, by `Date.now()`. */
  at: number;
  samples: Sample[];
}

export function parse(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split('\n')) {
    if (!line || line.startsWith('#')) continue;
    const match = /^(\w+)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!match) continue;
    const labels: Record<string, string> = {};
    for (const [, key, value] of (match[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[key ?? ''] = value ?? '';
    samples.push({ name: match[1] ?? '', labels, value: Number(match[3]) });
  }
  return samples;
}

/** The sum of all samples of a name, optionally of one class. */
export function total(samples: Sample[], name: string, cls = ''): number {
  let sum = 0;
  for (const sample of samples) if (sample.name === name && (!cls || sample.labels['class'] === cls)) sum += sample.value;
  return sum;
}

/** The classes that appear. */
export function classes(samples: Sample[]): string[] {
  return [...new Set(samples.map((sample) => sample.labels['class'] ?? '').filter(Boolean))].sort();
}

/** The rate of a counter between two readings, per second. A counter that decreased was reset. */
export function rate(from: Reading, to: Reading, name: string, cls = ''): number {
  const grown = total(to.samples, name, cls) - total(from.samples, name, cls);
  const seconds = (to.at - from.at) / 1000;
  return seconds > 0 ? Math.max(0, grown) / seconds : 0;
}

/** A histogram's quantile over the samples between two readings; null if there are none. */
export function quantile(from: Reading, to: Reading, name: string, q: number): number | null {
  const buckets = (samples: Sample[]) => {
    const by = new Map<number, number>();
    for (const sample of samples) {
      if (sample.name !== `${name}_bucket`) continue;
      const le = sample.labels['le'] === '+Inf' ? Infinity : Number(sample.labels['le']);
      by.set(le, (by.get(le) ?? 0) + sample.value);
    }
    return by;
  };
  const before = buckets(from.samples);
  const grown = [...buckets(to.samples)].map(([le, count]) => [le, Math.max(0, count - (before.get(le) ?? 0))] as const).sort((a, b) => a[0] - b[0]);
  const all = grown.at(-1)?.[1] ?? 0;
  if (all === 0) return null;
  let low = 0;
  let below = 0;
  for (const [le, count] of grown) {
    if (count >= q * all) {
      if (le === Infinity) return low;
      return count === below ? le : low + ((le - low) * (q * all - below)) / (count - below);
    }
    low = le;
    below = count;
  }
  return low;
}
