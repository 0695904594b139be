// The documentation's pictures: `npm run shots` writes docs/images/dashboard-*.png from a daemon with a story (then: pngquant --ext .png --force).
import { mkdir } from 'node:fs/promises';
import { browser, open } from './stage.mjs';
import { READY, badMinute, story } from './story.mjs';

const out = process.argv[2] ?? new URL('../../docs/images', import.meta.url).pathname;
await mkdir(out, { recursive: true });
const chrome = await browser();
const stage = await story();
try {
  const shoot = async (view, dark, width = 1200, height = 760) => {
    const page = await open(chrome, stage.url, { dark, width, height });
    await page.goto(`${stage.url}/#/${view}`);
    await page.locator(READY[view]).first().waitFor({ state: 'attached' });
    if (view === 'timeline') await page.getByLabel('How far back').selectOption('60');
    if (view === 'drills') await page.locator('main summary').first().click();
    if (view === 'debt') await badMinute(stage);
    await page.waitForTimeout(800);
    const name = `${view.replace('/', '-')}${width < 500 ? '-narrow' : ''}-${dark ? 'dark' : 'light'}`;
    await page.screenshot({ path: `${out}/dashboard-${name}.png` });
    await page.context().close();
  };
  for (const view of ['timeline', 'locks', 'classes', 'plane/runs', 'drills']) for (const dark of [false, true]) await shoot(view, dark);
  for (const dark of [false, true]) await shoot('locks', dark, 360, 740);
  // Last: its bad minutes would fill the timeline.
  for (const dark of [false, true]) await shoot('debt', dark);
} finally {
  await chrome.close();
  await stage.close();
}
