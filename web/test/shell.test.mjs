// Commands to copy, with names that others have chosen: finding 18 of the security review.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import ts from 'typescript';
import { Stage, browser, open } from './stage.mjs';

const HOSTILE = ['x;touch$IFS"ran"', '$(touch$IFS"ran")', '`touch$IFS"ran"`', "x'|touch$IFS\"ran\"#", '~&&touch$IFS"ran"', '--store=memory:'];

const source = readFileSync(new URL('../src/lib/shell.ts', import.meta.url), 'utf8');
const { outputText } = ts.transpileModule(source, { compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 } });
const { ownerFile, quote, quoteArgument } = await import(`data:text/javascript,${encodeURIComponent(outputText)}`);

/** Runs a text in a shell with programs that only note their arguments. Answers the arguments. */
function paste(text, program) {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-paste-'));
  try {
    mkdirSync(join(folder, 'bin'));
    writeFileSync(join(folder, 'bin', program), '#!/bin/sh\nprintf "%s\\n" "$@" > pasted\n');
    chmodSync(join(folder, 'bin', program), 0o755);
    execFileSync('/bin/sh', ['-c', text], { cwd: folder, env: { PATH: `${folder}/bin:${process.env.PATH}` } });
    assert.equal(existsSync(join(folder, 'ran')), false, text);
    return readFileSync(join(folder, 'pasted'), 'utf8').split('\n').slice(0, -1);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('finding_18 a shell reads back what was quoted', () => {
  for (const text of [...HOSTILE, 'job:42', '', '~', '*', 'a b', '#x', 'a=b', '!!', "''", '\\']) {
    assert.deepEqual(paste(`note ${quote(text)}`, 'note'), [text]);
  }
  assert.equal(quote('job:42'), 'job:42');
  assert.equal(quoteArgument('-x'), '-- -x');
});

test('finding_08 the token file is named by the address of the daemon', () => {
  const at = (url) => ownerFile(new URL(url));
  assert.equal(at('http://localhost:7420/#/locks'), '127.0.0.1:7420');
  assert.equal(at('http://[::1]:7420/'), '[::1]:7420');
  assert.equal(at('http://127.0.0.1/'), '127.0.0.1:80');
});

test('finding_18 the command of a lock with a hostile name runs nothing else', async () => {
  const [chrome, stage] = [await browser(), await Stage.open()];
  try {
    await stage.serve([]);
    const page = await open(chrome, stage.url);
    for (const name of HOSTILE) {
      await stage.must('POST', `/v1/locks/${encodeURIComponent(name)}/acquire`, { holder: 'me' });
      await page.goto(stage.url);
      await page.getByRole('button', { name, exact: true }).click();
      const card = page.getByRole('dialog');
      await card.getByText('As curl, as CLI').click();
      const cli = await card.getByLabel('as CLI').innerText();
      const dashes = name.startsWith('-') ? ['--'] : [];
      assert.deepEqual(paste(cli, 'leasehold'), ['--store', stage.url, 'show', ...dashes, name]);
      const curl = await card.getByLabel('as curl').innerText();
      // Between them the header's file, whose folder the shell fills in.
      const [silent, ...rest] = paste(curl, 'curl');
      const words = [silent, rest[0], rest.at(-1), rest.length];
      assert.deepEqual(words, ['-s', '-H', `${stage.url}/v1/locks/${encodeURIComponent(name)}`, 3]);
      await card.getByRole('button', { name: 'Close' }).click();
    }
  } finally {
    await chrome.close();
    await stage.close();
  }
});
