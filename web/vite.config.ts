import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/**
 * The page adds the first digits of each file's SHA-256 to its URL, so that a browser may cache a file forever and never shows an old
 * one. The daemon computes the same digits (crates/server/src/api/dashboard.rs).
 */
function stamped(): Plugin {
  return {
    name: 'stamped',
    enforce: 'post',
    generateBundle(_, bundle) {
      const page = bundle['index.html'];
      if (page?.type !== 'asset') throw new Error('no index.html');
      let html = String(page.source);
      const parts = Object.entries(bundle).map(([name, file]) => [name, file.type === 'chunk' ? file.code : file.source] as const);
      for (const [name, bytes] of [...parts, ['assets/icon.svg', readFileSync('public/assets/icon.svg')] as const]) {
        if (name === 'index.html') continue;
        const sum = createHash('sha256').update(bytes).digest('hex').slice(0, 16);
        html = html.replaceAll(`/${name}"`, `/${name}?v=${sum}"`);
      }
      page.source = html;
    },
  };
}

export default defineConfig({
  plugins: [svelte(), stamped()],
  build: {
    // Inside the crate that embeds it, so that the crate can be packaged alone.
    outDir: '../crates/server/dashboard',
    emptyOutDir: true,
    modulePreload: false,
    // Nothing is inlined: the page's policy allows no inline script and no data: URL.
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: 'assets/app.js',
        chunkFileNames: 'assets/[name].js',
        assetFileNames: 'assets/app[extname]',
      },
    },
  },
  server: { proxy: Object.fromEntries(['/v1', '/metrics', '/readyz', '/healthz'].map((path) => [path, process.env['LEASEHOLD_URL'] ?? 'http://127.0.0.1:7420'])) },
});
