import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Stage, browser, open, until } from './stage.mjs';

let stage, chrome;
before(async () => {
  chrome = await browser();
  stage = await Stage.open();
  await stage.daemon();
});
after(async () => {
  await chrome?.close();
  await stage?.close();
});

const onError = async () => {
  const { values } = await stage.must('GET', '/v1/policies/workflow');
  return values.find((value) => value.field === 'acquire.on_error');
};

test('a class is switched to fail-closed for ten minutes, with a reason, and can be taken back', async () => {
  const page = await open(chrome, stage.url);
  await page.goto(`${stage.url}/#/classes`);
  const card = page.locator('[data-class="workflow"]');
  await card.locator('[data-on-error="fail-open"]').waitFor();
  await card.getByRole('button', { name: 'Switch to fail-closed…' }).click();
  const act = page.getByRole('button', { name: 'Fail closed for 10 minutes' });
  assert.equal(await act.isDisabled(), true, 'no reason, no change');
  // Looking twice is free: nothing has happened yet.
  await page.keyboard.press('Escape');
  assert.equal((await onError()).value, 'fail-open');
  await card.getByRole('button', { name: 'Switch to fail-closed…' }).click();
  await page.getByLabel(/Reason/).fill('INC-7: duplicates while the store is down');
  await act.click();
  await card.locator('[data-on-error="fail-closed"]').waitFor();
  const now = await onError();
  assert.equal(now.value, 'fail-closed');
  assert.ok(now.reverts_in_ms > 0 && now.reverts_in_ms <= 600_000, `${now.reverts_in_ms}`);
  await card.getByText('local: INC-7').first().waitFor();
  // The countdown counts.
  const left = () => card.getByRole('timer').innerText();
  const first = await left();
  assert.match(first, /reverts in (10:00|9:\d\d)/);
  await until('the countdown moves', async () => (await left()) !== first);
  const { changes } = await stage.must('GET', '/v1/policy-history');
  assert.match(changes[0].change, /INC-7/);
  await card.getByRole('button', { name: 'Revert now' }).click();
  await card.locator('[data-on-error="fail-open"]').waitFor();
  assert.equal((await onError()).value, 'fail-open');
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test('a countdown starts with the requested time and not with more', async () => {
  const page = await open(chrome, stage.url);
  // The page's clock ticks so seldom that its last tick is older than the answer.
  await page.addInitScript(() => {
    const real = window.setInterval;
    window.setInterval = (what, every, ...rest) => real(what, every === 250 ? 60_000 : every, ...rest);
  });
  await page.goto(`${stage.url}/#/classes`);
  const card = page.locator('[data-class="workflow"]');
  await card.locator('[data-on-error="fail-open"]').waitFor();
  // Older by more than the second that a countdown rounds to.
  await page.waitForFunction((since) => performance.now() > since + 1100, await page.evaluate(() => performance.now()));
  await stage.must('POST', '/v1/policies/workflow/overrides', { field: 'acquire.on_error', value: 'fail-closed', reason: 'long', lasting_ms: 600_000 });
  assert.match(await card.getByRole('timer').innerText(), /reverts in (10:00|9:\d\d)/);
  await stage.must('DELETE', '/v1/policies/workflow/overrides/acquire.on_error');
  await card.locator('[data-on-error="fail-open"]').waitFor();
  await page.context().close();
});

test('an override made by another client is shown, and reverts by itself', async () => {
  const page = await open(chrome, stage.url);
  await page.goto(`${stage.url}/#/classes`);
  const card = page.locator('[data-class="workflow"]');
  await card.locator('[data-on-error="fail-open"]').waitFor();
  await stage.must('POST', '/v1/policies/workflow/overrides', { field: 'acquire.on_error', value: 'fail-closed', reason: 'short', lasting_ms: 4000 });
  await card.locator('[data-on-error="fail-closed"]').waitFor();
  await card.locator('[data-override="acquire.on_error"]').waitFor();
  await card.locator('[data-on-error="fail-open"]').waitFor();
  assert.equal(await card.locator('[data-override]').count(), 0);
  assert.equal((await onError()).value, 'fail-open');
  await page.context().close();
});

test('a daemon with tokens asks for one, keeps it in the tab only, and lets only admins change', async () => {
  const other = await Stage.open();
  try {
    const make = (id, grant) => other.run('token', 'new', id, '--grant', grant, '--file', 'tokens.toml');
    const reader = await make('reader', 'read:*');
    const holder = await make('holder', 'hold:*');
    const admin = await make('admin', 'admin:*');
    await other.serve(['--tokens', 'tokens.toml', '--plane']);
    await other.must('POST', '/v1/locks/job:1/acquire', { holder: 'me', ttl_ms: 600_000 }, holder);
    const page = await open(chrome, other.url);
    await page.goto(other.url);
    const field = page.getByLabel('API token');
    await field.fill('lk_wrong');
    await page.keyboard.press('Enter');
    await page.getByText('not known here').waitFor();
    await field.fill(reader);
    await page.keyboard.press('Enter');
    await page.locator('[data-lock="job:1"]').waitFor();
    const kept = await page.evaluate(() => ({ session: { ...sessionStorage }, local: JSON.stringify({ ...localStorage }), cookies: document.cookie, page: document.documentElement.outerHTML, address: location.href }));
    assert.equal(kept.session['leasehold-token'], reader);
    for (const where of ['local', 'cookies', 'page', 'address']) assert.ok(!kept[where].includes(reader), where);
    await page.getByText('As curl, as CLI').click();
    assert.match(await page.getByLabel('as curl').innerText(), /^sed 's\/\^\/authorization: Bearer \/' leasehold\.token \| curl -s -H @- /);
    await page.getByRole('link', { name: 'Classes' }).click();
    const change = page.locator('[data-class="workflow"]').getByRole('button', { name: 'Switch to fail-closed…' });
    await change.waitFor();
    assert.equal(await change.isDisabled(), true);
    const body = { field: 'acquire.on_error', value: 'fail-closed', reason: 'x', lasting_ms: 5000 };
    for (const token of [reader, holder]) assert.equal((await other.ask('POST', '/v1/policies/workflow/overrides', body, token)).status, 403);
    await page.getByRole('button', { name: 'sign out' }).click();
    await field.fill(admin);
    await page.keyboard.press('Enter');
    await change.click();
    await page.getByLabel(/Reason/).fill('because');
    await page.getByRole('button', { name: 'Fail closed for 10 minutes' }).click();
    await page.locator('[data-class="workflow"] [data-on-error="fail-closed"]').waitFor();
    await page.getByText('admin: because').first().waitFor();
    assert.deepEqual(page.faults, []);
    await page.context().close();
  } finally {
    await other.close();
  }
});
