// A daemon on a Redis that has had a bad minute: something to see in every view. Tests and the documentation's pictures share it.
import { mkdir, writeFile } from 'node:fs/promises';
import { Stage, until } from './stage.mjs';

const CLASSES = `
[class.report]
ttl = "20s"
[class.report.acquire]
wait = "0s"
timeout = "300ms"
on_error = "fail-open"
[class.report.renew]
every = "4s"
timeout = "300ms"
on_failure = "continue"
[class.report.release]
attempts = 1
timeout = "300ms"
`;

const WORKFLOW = `
name = "deploy"
class = "workflow"
[[step]]
id = "build"
exec = ["true"]
[[step]]
id = "test-unit"
needs = ["build"]
exec = ["true"]
[[step]]
id = "test-load"
needs = ["build"]
exec = ["true"]
[[step]]
id = "go-live"
needs = ["test-unit", "test-load"]
approval = "Ship build 42 to production?"
[[step]]
id = "announce"
needs = ["go-live"]
exec = ["true"]
`;

export async function story() {
  const stage = await Stage.open();
  try {
    await writeFile(stage.path('classes.toml'), CLASSES);
    await writeFile(stage.path('deploy.toml'), WORKFLOW);
    // A drill's report, from a real drill, while everything else happens.
    const drill = stage.leasehold('drill', 'run', 'release-fails', '--on', 'sqlite', '-o', 'json');
    const redis = await stage.redis();
    stage.redisServer = redis.child;
    const state = stage.path('daemon');
    await stage.serve(['--plane', '--state', 'daemon'], ['--store', redis.url, '--policies', 'classes.toml']);
    const hold = (name, holder, more = {}) => stage.must('POST', '/v1/holds', { name, holder, heartbeat_ms: 600_000, ...more });
    const take = (name, holder, ttl_ms, more = {}) => stage.must('POST', `/v1/locks/${name}/acquire`, { holder, ttl_ms, ...more });

    // The store stops answering: a release that cannot be confirmed, work that goes on without a lease.
    const owed = await hold('report:daily', 'reports-1', { class: 'report' });
    // On a busy machine it may have begun without a lease: then there would be nothing to owe.
    await until('its lease', async () => (await stage.must('GET', `/v1/holds/${owed.id}`)).fence);
    redis.child.kill('SIGSTOP');
    await stage.must('DELETE', `/v1/holds/${owed.id}`);
    const local = await hold('report:weekly', 'reports-2', { class: 'report' });
    await until('debt', async () => (await stage.must('GET', '/v1/history?prefix=report:daily')).holds[0]?.ended === 'debt');
    await until('a fall-back', async () => (await stage.must('GET', '/v1/history?prefix=report:weekly')).holds[0]?.fence === undefined);
    redis.child.kill('SIGCONT');
    await until('it heals', async () => (await stage.must('GET', `/v1/holds/${local.id}`)).fence);

    // A holder that dies, and its heir; one that is broken; ordinary ones.
    await take('job:41', 'worker-a:311', 1500);
    const heir = take('job:41', 'worker-b:127', 45_000, { wait_ms: 30_000 });
    // A store that forgets: the first holder goes on (its class says so), the second is let in.
    await hold('report:audit', 'reports-1', { class: 'report' });
    await stage.start('redis-cli', ['-u', redis.url, 'DEL', 'lock:report:audit']).ended;
    await take('report:audit', 'reports-3', 60_000, { class: 'report' });
    await take('job:40', 'worker-c:98', 60_000);
    await stage.must('POST', '/v1/locks/job:40/break', { reason: 'host is gone', force: true, wait_ms: 0 });
    await heir;
    for (const [name, holder] of [['job:42', 'worker-a:312'], ['run:2026-11-16', 'engine-2'], ['leader:billing', 'billing-0']]) await hold(name, holder, { class: name.startsWith('run') ? 'workflow' : 'scheduler' });
    const waiting = [1, 2].map((n) => stage.ask('POST', '/v1/locks/leader:billing/acquire', { holder: `billing-${n}`, wait_ms: 60_000 }).catch(() => null));
    stage.waiting = waiting;

    // The control plane, with a replica of its own.
    const plane = ['--store', redis.url, '--policies', 'classes.toml'];
    stage.leasehold(...plane, 'plane', 'replica', '--id', 'replica-1', '--poll', '500ms');
    await stage.run(...plane, 'workflow', 'apply', 'deploy.toml');
    await stage.run(...plane, 'workflow', 'start', 'deploy');
    await stage.run(...plane, 'job', 'submit', '--', 'echo', 'nightly report');
    await stage.run(...plane, 'job', 'submit', '--attempts', '1', '--', 'sh', '-c', 'echo disk full >&2; exit 3');
    await until('a dead letter', async () => (await stage.must('GET', '/v1/jobs?state=FAILED')).jobs.length);
    await until('an approval', async () => (await stage.must('GET', '/v1/approvals')).approvals.length);

    await mkdir(`${state}/drills/2026-11-16`, { recursive: true });
    await drill.ended;
    await writeFile(`${state}/drills/2026-11-16/report.json`, drill.out);

    await stage.must('POST', '/v1/policies/report/overrides', { field: 'acquire.on_error', value: 'fail-closed', reason: 'INC-7: duplicates while the store is down', lasting_ms: 600_000 });
    return stage;
  } catch (error) {
    await stage.close();
    throw error;
  }
}

/** Twenty seconds in which the store answers now and then: moves the charts of lock debt. */
export async function badMinute(stage) {
  await stage.must('DELETE', '/v1/policies/report/overrides/acquire.on_error');
  for (let round = 0; round < 4; round += 1) {
    const names = Array.from({ length: 1 + ((round * 2) % 5) }, (_, n) => `report:${round}-${n}`);
    const held = await Promise.all(names.map((name) => stage.must('POST', '/v1/holds', { name, class: 'report', heartbeat_ms: 600_000 })));
    stage.redisServer.kill('SIGSTOP');
    await Promise.all(held.map(({ id }) => stage.must('DELETE', `/v1/holds/${id}`)));
    const local = await Promise.all(names.map((name) => stage.must('POST', '/v1/holds', { name: `${name}b`, class: 'report', heartbeat_ms: 600_000 })));
    // Somebody wants the very lock that finished work still has.
    const waiting = stage.ask('POST', '/v1/holds', { name: names[0], class: 'report', holder: 'next', wait_ms: 5000, heartbeat_ms: 600_000 });
    stage.redisServer.kill('SIGCONT');
    const next = await waiting;
    if (next.json?.id) await stage.ask('DELETE', `/v1/holds/${next.json.id}`);
    await new Promise((resume) => setTimeout(resume, 2500));
    await Promise.all(local.map(({ id }) => stage.ask('DELETE', `/v1/holds/${id}`)));
  }
  await stage.must('POST', '/v1/policies/report/overrides', { field: 'acquire.on_error', value: 'fail-closed', reason: 'INC-7: duplicates while the store is down', lasting_ms: 600_000 });
}

export const VIEWS = ['locks', 'timeline', 'classes', 'debt', 'plane/jobs', 'plane/runs', 'plane/approvals', 'plane/dead', 'drills'];

/** What shows that a view has its data. */
export const READY = {
  locks: '[data-lock]',
  timeline: '[data-fate]',
  classes: '[data-class]',
  debt: '[data-chart] .line',
  'plane/jobs': '[data-job]',
  'plane/runs': '[data-step]',
  'plane/approvals': '[data-approval]',
  'plane/dead': '[data-dead]',
  drills: 'main section',
};
