/** The control plane's documents, as far as they are shown. */

export interface Job {
  id: string;
  state: string;
  snapshot: string;
  created_ms: number;
  updated_ms: number;
  attempt: number;
  failures: number;
  losses: number;
  spec: { work: unknown; topic: string; class: string; payload?: unknown; requires_approval?: boolean; attempts: number };
  owner?: { who: string; fence?: string | null } | null;
  outcome?: { done?: unknown; failed?: string } | null;
  dead?: { reason: string; last_state: string; attempts: number } | null;
  decision?: { approved: boolean; by: string; reason: string } | null;
  parent?: { run: string; step: string } | null;
}

export interface Run {
  id: string;
  state: string;
  created_ms: number;
  updated_ms: number;
  workflow: { name: string; class: string; steps: { id: string; needs: string[]; work: Record<string, unknown> }[] };
  steps: Record<string, { status: string; attempt: number; job?: string | null; why?: string | null }>;
}

/** A short description of a job's work. */
export function work(job: Job): string {
  const work = job.spec.work;
  if (typeof work === 'string') return work === 'gate' ? String(job.spec.payload ?? 'a question') : `${work} (${job.spec.topic})`;
  const [kind, what] = Object.entries(work as Record<string, unknown>)[0] ?? ['', ''];
  return Array.isArray(what) ? what.join(' ') : kind;
}
