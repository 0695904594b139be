/** Times and numbers for people. */

/** `1h 2m`, `3m 20s`, `12.3s`, `800ms`. */
export function span(ms: number): string {
  if (ms < 0) return '0s';
  if (ms < 1000) return `${Math.round(ms)}ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.floor(s)}s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m}m ${Math.floor(s % 60)}s`;
  const h = Math.floor(m / 60);
  if (h < 48) return `${h}h ${m % 60}m`;
  return `${Math.floor(h / 24)}d ${h % 24}h`;
}

/** `9:58`, for countdowns. */
export function countdown(ms: number): string {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const two = (n: number) => String(n).padStart(2, '0');
  return s >= 3600 ? `${Math.floor(s / 3600)}:${two(Math.floor((s % 3600) / 60))}:${two(s % 60)}` : `${Math.floor(s / 60)}:${two(s % 60)}`;
}

/** A policy's duration (`20s (ttl/3)`, `1m 30s`, `500ms`) in milliseconds. */
export function millis(text: string): number | null {
  const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
  let all = 0;
  let found = false;
  for (const [, number, unit] of text.replace(/\(.*/, '').matchAll(/([\d.]+)\s*(ms|s|m|h)/g)) {
    all += Number(number) * (units[unit ?? ''] ?? 0);
    found = true;
  }
  return found ? all : null;
}

/** The time of day, with the date if it is not today. */
export function clock(at: string | number): string {
  const date = new Date(at);
  const time = date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString()} ${time}`;
}

/** Few digits, never `NaN`. */
export function number(n: number): string {
  if (!Number.isFinite(n)) return '–';
  if (n === 0) return '0';
  if (Math.abs(n) < 0.01) return n.toExponential(0);
  if (Math.abs(n) < 10) return n.toFixed(2).replace(/\.?0+$/, '');
  return n.toLocaleString('en', { maximumFractionDigits: 1 });
}
