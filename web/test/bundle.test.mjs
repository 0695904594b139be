import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';

const folder = new URL('../../crates/server/dashboard/', import.meta.url);

test('the whole bundle is under 80 kB gzip', () => {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const sizes = files.map((entry) => gzipSync(readFileSync(`${entry.parentPath}/${entry.name}`), { level: 9 }).length);
  const all = sizes.reduce((sum, size) => sum + size, 0);
  console.log(`# ${files.length} files, ${all} bytes gzip`);
  assert.equal(files.length, 4);
  assert.ok(all < 80_000, `${all}`);
});
