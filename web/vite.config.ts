import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/**
 * The page names each file with the beginning of its SHA-256, so that a browser may keep a file for ever and still never shows an old
 * one. The daemon knows the same number (crates/server/src/dashboard.rs).
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
    // Within the crate that embeds it, so that the crate is whole by itself.
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
