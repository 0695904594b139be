import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { BIN, Stage, browser, open, until } from './stage.mjs';

let stage, chrome;
before(async () => {
  chrome = await browser();
  stage = await Stage.open();
  await stage.serve([]);
});
after(async () => {
  await chrome?.close();
  await stage?.close();
});

/** The share of the bar that is full, as it is drawn; null if there is none. */
const drawn = (page, name) =>
  page.evaluate((name) => {
    const bar = document.querySelector(`[data-lock="${name}"] .bar`);
    return bar && bar.firstElementChild.getBoundingClientRect().width / bar.getBoundingClientRect().width;
  }, name);

test('an empty daemon shows commands to try, and their locks appear', async () => {
  const page = await open(chrome, stage.url);
  await page.goto(stage.url);
  const command = await page.locator('.empty code').innerText();
  assert.equal(command, `leasehold --store ${stage.url} run demo -- sleep 60`);
  stage.leasehold(...command.split(' ').slice(1));
  await page.locator('[data-lock="demo"]').waitFor();
  assert.equal(await page.locator('.empty').count(), 0);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test('a lock appears, its bar shrinks, and is full again when it is renewed', async () => {
  const page = await open(chrome, stage.url);
  await page.goto(stage.url);
  stage.leasehold('--store', stage.url, '--holder', 'alice', 'run', '--ttl', '3s', 'job:bar', '--', 'sleep', '600');
  const row = page.locator('[data-lock="job:bar"]');
  await row.waitFor();
  const { fence } = await stage.must('GET', '/v1/locks/job:bar');
  for (const text of ['alice', 'scheduler', fence]) assert.match(await row.innerText(), new RegExp(text));
  // Renewed every second: each wave falls by about a third and comes back. Two refills, each after a fall.
  let [last, fell, refills] = [await drawn(page, 'job:bar'), 0, 0];
  await until('two waves', async () => {
    const now = await drawn(page, 'job:bar');
    if (now < last - 0.005) fell += last - now;
    if (now > last + 0.05 && fell > 0.05) [refills, fell] = [refills + 1, 0];
    last = now;
    return refills >= 2;
  });
  // And the number beside it is what the store says, within a second and a half.
  // (A renewal may lie between the two looks, and an answer that was slow leaves open when it was true.)
  const shown = Number.parseFloat(await row.locator('.left').innerText());
  const { remaining_ms: left } = await stage.must('GET', '/v1/locks/job:bar');
  assert.ok(Math.abs(shown - left / 1000) < 1.5, `${shown} s are shown, ${left} ms are left`);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test('without renewals a bar only shrinks, and the lock disappears', async () => {
  const page = await open(chrome, stage.url);
  await page.goto(stage.url);
  // The first answer that has the lock comes late, as on a busy machine, and so does its question: how much is left is less certain
  // then, but does not grow.
  let late = 0;
  const wait = (ms) => new Promise((resume) => setTimeout(resume, ms));
  await page.route('**/v1/locks?*', async (route) => {
    if (late === 0) await wait(250);
    const answer = await route.fetch();
    if (late === 0 && (await answer.text()).includes('job:once')) {
      late += 1;
      await wait(700);
      // One more event, so that the next reading, a quick one, follows at once.
      await stage.must('POST', '/v1/locks/job:beside/acquire', { holder: 'beside', ttl_ms: 60_000 });
    }
    await route.fulfill({ response: answer });
  });
  await stage.must('POST', '/v1/locks/job:once/acquire', { holder: 'once', ttl_ms: 4000 });
  await page.locator('[data-lock="job:once"]').waitFor();
  const seen = [];
  await until('it is gone', async () => {
    const now = await drawn(page, 'job:once');
    if (now !== null) seen.push(now);
    return now === null;
  });
  assert.equal(late, 1);
  assert.ok(seen.length >= 3 && seen.every((now, at) => at === 0 || now <= seen[at - 1] + 0.02), JSON.stringify(seen));
  await page.context().close();
});

test('a killed holder’s lock passes to the waiter, and the timeline shows the takeover', async () => {
  const page = await open(chrome, stage.url);
  await page.goto(stage.url);
  const holder = stage.leasehold('--store', stage.url, '--holder', 'doomed', 'run', '--ttl', '3s', 'job:passes', '--', 'sleep', '600');
  const row = page.locator('[data-lock="job:passes"]');
  await row.getByText('doomed').waitFor();
  stage.leasehold('--store', stage.url, '--holder', 'heir', 'run', '--ttl', '3s', '-w', '120s', 'job:passes', '--', 'sleep', '600');
  await row.locator('dd .tag.warn', { hasText: '1' }).waitFor();
  const before = await stage.must('GET', '/v1/locks/job:passes');
  holder.kill('SIGKILL');
  await row.getByText('heir').waitFor();
  const now = await stage.must('GET', '/v1/locks/job:passes');
  assert.equal(now.holder, 'heir');
  assert.ok(BigInt(now.fence) > BigInt(before.fence));
  await row.getByText(now.fence).waitFor();
  await page.getByRole('link', { name: 'Timeline' }).click();
  await page.locator('[data-fate="lost"]').first().waitFor();
  await page.locator('[data-takeover]').first().waitFor();
  await page.getByText('As a table').click();
  await page.locator('tr', { hasText: 'doomed' }).getByText('abandoned: the lease ran out').waitFor();
  await page.locator('tr', { hasText: 'heir' }).getByText('taken over after').waitFor();
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test('a lock is inspected and broken with the keyboard alone, with a reason', async () => {
  const page = await open(chrome, stage.url);
  await stage.must('POST', '/v1/locks/job:stuck/acquire', { holder: 'stuck', ttl_ms: 600_000 });
  await page.goto(stage.url);
  await page.locator('[data-lock="job:stuck"] button').focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').getByText('Held by').waitFor();
  await page.getByRole('button', { name: 'Break…' }).focus();
  await page.keyboard.press('Enter');
  const sure = page.getByRole('button', { name: 'Break the lease' });
  assert.equal(await sure.isDisabled(), true, 'no reason, no break');
  await page.getByRole('checkbox').check();
  await page.getByLabel(/Reason/).fill('the host is gone');
  await page.keyboard.press('Enter');
  await page.locator('[data-lock="job:stuck"]').waitFor({ state: 'detached' });
  await until('it is free', async () => !(await stage.must('GET', '/v1/locks/job:stuck')).held);
  const audit = await until('the history', async () => {
    const { holds } = await stage.must('GET', '/v1/history?prefix=job:stuck');
    return holds[0]?.ended === 'broken' && holds[0];
  });
  assert.match(audit.why, /the host is gone/);
  await page.context().close();
});

test('the page reconnects by itself when the daemon restarts', async () => {
  const other = await Stage.open();
  try {
    // With a tokens file: a daemon without one has a new token at each start.
    const token = await other.run('token', 'new', 'me', '--grant', 'admin:*', '--file', 'tokens.toml');
    await other.serve(['--tokens', 'tokens.toml']);
    const port = new URL(other.url).port;
    const page = await open(chrome, other.url, { token });
    await page.goto(other.url);
    await page.locator('[data-standing="live"]').waitFor();
    other.server.kill('SIGKILL');
    await other.server.ended;
    await page.locator('[data-standing="away"]').waitFor();
    await other.address(other.leasehold('serve', '--tokens', 'tokens.toml', '--listen', `127.0.0.1:${port}`));
    await other.must('POST', '/v1/locks/back/acquire', { holder: 'me', ttl_ms: 60_000 }, token);
    await page.locator('[data-standing="live"]').waitFor();
    await page.locator('[data-lock="back"]').waitFor();
    await page.context().close();
  } finally {
    await other.close();
  }
});

test('the printed link opens the dashboard once, and leasehold dashboard prints another', async () => {
  const other = await Stage.open();
  try {
    // `dev` prints the link on a terminal only. The terminal's end hangs it up.
    const terminal = other.start('script', ['-qec', `exec '${BIN}' dev --listen 127.0.0.1:0`, '/dev/null']);
    const url = await other.address(terminal);
    const link = await until('the link', () => /http:\/\/[^ \r\n]*#code=[0-9a-f]+/.exec(terminal.out)?.[0]);
    const stranger = await open(chrome, url, { token: '' });
    await stranger.goto(url);
    await stranger.getByLabel('API token').waitFor();
    const opened = async (address) => {
      const page = await open(chrome, url, { token: '' });
      await page.goto(address);
      return page;
    };
    const page = await opened(link);
    await page.locator('[data-standing="live"]').waitFor();
    const kept = await page.evaluate(() => ({ session: sessionStorage.getItem('leasehold-token'), local: JSON.stringify({ ...localStorage }), cookies: document.cookie, page: document.documentElement.outerHTML, address: location.href }));
    assert.equal(kept.session, other.token);
    for (const where of ['local', 'cookies', 'page', 'address']) assert.ok(!kept[where].includes(other.token) && !kept[where].includes('code='), where);
    const again = await opened(link);
    await again.getByText('was used before').waitFor();
    // Pasted into the tab that is open already.
    await again.goto(await other.run('--store', url, 'dashboard'));
    await again.locator('[data-standing="live"]').waitFor();
    for (const one of [page, again]) assert.deepEqual(one.faults, []);
    for (const one of [stranger, page, again]) await one.context().close();
  } finally {
    await other.close();
  }
});
