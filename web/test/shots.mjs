// The documentation's pictures: `npm run shots` writes docs/images/dashboard-*.png from a daemon with a story.
import { mkdir } from 'node:fs/promises';
import { browser, open } from './stage.mjs';
import { READY, story } from './story.mjs';

const out = process.argv[2] ?? new URL('../../docs/images', import.meta.url).pathname;
await mkdir(out, { recursive: true });
const chrome = await browser();
const stage = await story();
try {
  for (const dark of [false, true]) {
    const page = await open(chrome, stage.url, { dark, width: 1200, height: 760 });
    for (const view of ['debt', 'locks', 'timeline', 'classes', 'plane/runs', 'plane/approvals', 'drills']) {
      await page.goto(`${stage.url}/#/${view}`);
      await page.locator(READY[view]).first().waitFor({ state: 'attached' });
      if (view === 'timeline') await page.getByLabel('How far back').selectOption('60');
      if (view === 'drills') await page.locator('main summary').first().click();
      await page.waitForTimeout(view === 'debt' ? 6000 : 800);
      await page.screenshot({ path: `${out}/dashboard-${view.replace('/', '-')}-${dark ? 'dark' : 'light'}.png` });
    }
    await page.setViewportSize({ width: 360, height: 740 });
    for (const view of ['locks', 'timeline']) {
      await page.goto(`${stage.url}/#/${view}`);
      await page.locator(READY[view]).first().waitFor({ state: 'attached' });
      await page.waitForTimeout(800);
      await page.screenshot({ path: `${out}/dashboard-${view}-narrow-${dark ? 'dark' : 'light'}.png` });
    }
    await page.context().close();
  }
} finally {
  await chrome.close();
  await stage.close();
}
