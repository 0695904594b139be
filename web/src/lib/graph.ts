/** The steps of a run as a graph in columns: each step stands to the right of the steps it needs. */
import type { Run } from './plane';

export interface Node {
  id: string;
  status: string;
  why: string;
  kind: string;
  column: number;
  row: number;
}

export interface Graph {
  nodes: Node[];
  edges: [Node, Node][];
  columns: number;
  rows: number;
}

export function graph(run: Run): Graph {
  const steps = run.workflow.steps;
  const column = new Map<string, number>();
  // The number of steps bounds the rounds, also for a cycle (which the daemon refuses).
  for (let round = 0; round < steps.length; round += 1) {
    for (const step of steps) column.set(step.id, Math.max(0, ...step.needs.map((need) => (column.get(need) ?? 0) + 1)));
  }
  const filled: number[] = [];
  const nodes = steps.map((step): Node => {
    const at = Math.min(column.get(step.id) ?? 0, steps.length);
    const row = filled[at] ?? 0;
    filled[at] = row + 1;
    const now = run.steps[step.id];
    return { id: step.id, status: now?.status ?? 'waiting', why: now?.why ?? '', kind: Object.keys(step.work)[0] ?? '', column: at, row };
  });
  const edges: [Node, Node][] = [];
  for (const step of steps) {
    const to = nodes.find((node) => node.id === step.id);
    for (const need of step.needs) {
      const from = nodes.find((node) => node.id === need);
      if (from && to) edges.push([from, to]);
    }
  }
  return { nodes, edges, columns: filled.length, rows: Math.max(1, ...filled.map((n) => n ?? 0)) };
}
