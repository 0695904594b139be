/** Requests to the daemon. Every refusal is a `Refused` with the daemon's own text. */
import { session } from './session.svelte';
import type { components } from './schema';

type Schemas = components['schemas'];
export type Lock = Schemas['LockView'];
export type LockList = Schemas['LockList'];
export type Held = Schemas['HistoryRow'];
export type ClassView = Schemas['ClassView'];
export type Value = Schemas['ValueView'];
export type Change = Schemas['ChangeView'];
export type Problem = Schemas['Problem'];
export type Me = Schemas['Me'];
export type Opened = Schemas['DashboardSession'];
export type Drills = Schemas['Drills'];
export type Told = Schemas['LockEvent'];

/** The daemon refused the request or did not respond. */
export class Refused extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, detail: string) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

/** The headers of every request. */
export function headers(): Record<string, string> {
  return session.token ? { authorization: `Bearer ${session.token}` } : {};
}

async function send(method: string, path: string, body?: unknown): Promise<Response> {
  const { token } = session;
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? headers() : { ...headers(), 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
      // Only the token identifies the user; cookies are not sent.
      credentials: 'omit',
      cache: 'no-store',
    });
  } catch {
    throw new Refused(0, 'away', 'the daemon does not answer');
  }
  if (response.ok) return response;
  const problem = (await response.json().catch(() => ({}))) as Partial<Problem>;
  if (response.status === 401) session.refused(token);
  throw new Refused(response.status, problem.code ?? 'unknown', problem.detail ?? response.statusText);
}

/** A JSON document. */
export async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  return (await (await send(method, path, body)).json()) as T;
}

/** Plain text. */
export async function text(path: string): Promise<string> {
  return (await send('GET', path)).text();
}

/** A name as a part of a path. */
export const part = encodeURIComponent;
