// What the browser tests stand on: a real daemon on a free port, real commands, a real Chromium. Everything started here is ended here,
// by its process id. Tests wait for conditions; LIMIT is only how long a broken one takes to be called broken.
import { spawn } from 'node:child_process';
import { mkdtemp, rm, mkdir, readFile } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

export const BIN = process.env.LEASEHOLD_BIN ?? new URL('../../target/debug/leasehold', import.meta.url).pathname;
export const LIMIT = Number(process.env.LEASEHOLD_WEB_LIMIT ?? 60_000);
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const AXE = readFileSync(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

/** Waits until `look` answers something true, and answers it. */
export async function until(what, look, limit = LIMIT) {
  const end = Date.now() + limit;
  let last;
  for (;;) {
    try {
      const seen = await look();
      if (seen) return seen;
      last = seen;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`never saw: ${what}; last: ${last}`);
    await new Promise((resume) => setTimeout(resume, 50));
  }
}

/** The owner tokens of the daemons that were started here, by their address. */
const ownerTokens = new Map();

export class Stage {
  static async open() {
    const stage = new Stage();
    stage.home = await mkdtemp(join(tmpdir(), 'leasehold-web-'));
    stage.children = [];
    return stage;
  }

  get env() {
    return { PATH: process.env.PATH, HOME: this.home, XDG_STATE_HOME: join(this.home, 'state'), XDG_CONFIG_HOME: join(this.home, 'config'), NO_COLOR: '1' };
  }

  path(...parts) {
    return join(this.home, ...parts);
  }

  /** Starts a program; it is killed at the end if it still runs. */
  start(program, args, options = {}) {
    const child = spawn(program, args, { env: this.env, cwd: this.home, stdio: ['ignore', 'pipe', 'pipe'], ...options });
    child.out = '';
    child.err = '';
    child.stdout.on('data', (piece) => (child.out += piece));
    child.stderr.on('data', (piece) => (child.err += piece));
    child.on('error', (error) => (child.err += error));
    child.ended = new Promise((ended) => child.once('exit', (code) => ended(code)).once('error', () => ended(127)));
    this.children.push(child);
    return child;
  }

  leasehold(...args) {
    return this.start(BIN, args);
  }

  /** Runs a command to its end. */
  async run(...args) {
    const child = this.leasehold(...args);
    const code = await child.ended;
    if (code !== 0) throw new Error(`leasehold ${args.join(' ')}: ${code}: ${child.err}${child.out}`);
    return child.out.trim();
  }

  /** A daemon on a free port; answers its address. */
  async daemon(verb = 'dev', ...args) {
    const child = this.leasehold(...args, verb, '--listen', '127.0.0.1:0');
    return this.address(child);
  }

  async serve(args, before = []) {
    return this.address(this.leasehold(...before, 'serve', '--listen', '127.0.0.1:0', ...args));
  }

  async address(child) {
    this.server = child;
    this.url = await until('the daemon', () => {
      if (child.exitCode !== null) throw new Error(child.err);
      return /(http:\/\/127\.0\.0\.1:\d+)/.exec(child.out + child.err)?.[1];
    });
    this.token = await this.ownerToken();
    if (this.token) ownerTokens.set(this.url, this.token);
    return this.url;
  }

  /** The token of a daemon without a tokens file; the daemon wrote it before it told its address. */
  async ownerToken() {
    const file = this.path('state', 'leasehold', 'tokens', new URL(this.url).host);
    return readFile(file, 'utf8').then((text) => text.trim(), () => undefined);
  }

  async ask(method, path, body, token = this.token) {
    const headers = { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) };
    const response = await fetch(this.url + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    let json = null;
    try {
      json = JSON.parse(text);
    } catch {
      // Some answers are text.
    }
    return { status: response.status, text, json };
  }

  async must(method, path, body, token) {
    const answer = await this.ask(method, path, body, token);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.json;
  }

  /** A redis-server of our own. */
  async redis() {
    await mkdir(this.path('redis'), { recursive: true });
    for (let tries = 0; tries < 20; tries += 1) {
      const port = 20_000 + Math.floor(Math.random() * 20_000);
      const child = this.start('redis-server', ['--port', String(port), '--bind', '127.0.0.1', '--dir', this.path('redis'), '--appendonly', 'no', '--save', '']);
      const ready = await until('redis', () => (child.exitCode !== null ? 'ended' : /Ready to accept/.test(child.out) && 'ready'));
      if (ready === 'ready') return { child, url: `redis://127.0.0.1:${port}` };
    }
    throw new Error('no port for redis-server');
  }

  async close() {
    for (const child of this.children) {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGCONT');
        child.kill('SIGKILL');
        await child.ended;
      }
    }
    // Guardians end within moments of those they watch, and may still write.
    await rm(this.home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

/** Chromium with a fresh profile. */
export async function browser() {
  const args = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'];
  return chromium.launch({ executablePath: CHROMIUM, args, chromiumSandbox: false });
}

/** A page that notices everything it should not do: foreign requests, refused scripts or styles, errors. */
export async function open(chrome, url, { dark = false, width = 1280, height = 900, axe = false, token = ownerTokens.get(url) ?? '' } = {}) {
  const context = await chrome.newContext({ colorScheme: dark ? 'dark' : 'light', viewport: { width, height } });
  if (axe) await context.addInitScript({ content: AXE });
  if (token) await context.addInitScript(`sessionStorage.setItem('leasehold-token', ${JSON.stringify(token)})`);
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT);
  page.faults = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(url)) page.faults.push(`asked elsewhere: ${request.url()}`);
  });
  page.on('pageerror', (error) => page.faults.push(String(error)));
  page.on('console', (message) => {
    // A status the test asks for is not a fault of the page.
    if (message.type() === 'error' && !/the server responded with a status of/.test(message.text())) page.faults.push(message.text());
  });
  return page;
}
