/**
 * The daemon's event stream, followed for as long as the page is open.
 *
 * `EventSource` cannot send a token, so the stream is read with `fetch`; it resumes after the last event in the same way.
 */
import { headers } from './api';
import { session } from './session.svelte';
import type { Told } from './api';

export type Standing = 'connecting' | 'live' | 'away';

/** Cuts a stream of text into events; `data` of one line each, as the daemon sends them. */
export function cutter(each: (kind: string, data: string, id: string) => void): (piece: string) => void {
  let rest = '';
  return (piece) => {
    rest += piece;
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const block = rest.slice(0, end);
      rest = rest.slice(end + 2);
      const field = (name: string) =>
        block
          .split('\n')
          .find((line) => line.startsWith(`${name}: `))
          ?.slice(name.length + 2) ?? '';
      if (field('data')) each(field('event'), field('data'), field('id'));
    }
  };
}

/** Follows until the signal fires. `gap` means that events were missed and everything must be reloaded. */
export async function follow(
  signal: AbortSignal,
  told: (event: Told) => void,
  standing: (now: Standing) => void,
  gap: () => void,
): Promise<void> {
  let last = '';
  let pause = 500;
  while (!signal.aborted) {
    try {
      const { token } = session;
      const resume: Record<string, string> = last ? { 'last-event-id': last } : {};
      const response = await fetch('/v1/events', { headers: { ...headers(), ...resume }, signal, credentials: 'omit', cache: 'no-store' });
      if (response.status === 401) session.refused(token);
      if (!response.ok || !response.body) throw new Error(String(response.status));
      standing('live');
      // Events from before the stream was opened are not on it.
      if (!last) gap();
      pause = 500;
      const cut = cutter((kind, data, id) => {
        if (id) last = id;
        if (kind === 'gap') gap();
        else told(JSON.parse(data) as Told);
      });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        cut(value);
      }
    } catch {
      // Reported below; the loop reconnects.
    }
    if (signal.aborted) return;
    standing('away');
    await new Promise((resume) => setTimeout(resume, pause));
    pause = Math.min(pause * 2, 8000);
  }
}
