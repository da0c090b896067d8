// Draws boards in a headless Chromium and writes a picture of each; nothing listens on a port.
// Reads JSON from its input: {chromium, prometheus, width, pictures: [{file, wanted}]}.
import { readFile, writeFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { chromium } from 'playwright-core';
import UPNG from 'upng-js';

const DIST = new URL('./dist/', import.meta.url).pathname;
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' };
const SWITCHES = ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-sync'];

const job = JSON.parse(await text(process.stdin));
const browser = await chromium.launch({ executablePath: job.chromium, args: SWITCHES });

async function answer(route) {
  const { pathname, search } = new URL(route.request().url());
  if (pathname.startsWith('/prometheus/')) {
    const asked = await fetch(`${job.prometheus}/api/v1/${pathname.split('/').pop()}${search}`);
    return route.fulfill({ status: asked.status, body: await asked.text() });
  }
  const file = pathname === '/' ? 'index.html' : pathname.slice(1);
  try {
    const body = await readFile(join(DIST, file));
    return await route.fulfill({ body, contentType: TYPES[extname(file)] ?? 'text/plain' });
  } catch {
    return route.fulfill({ status: 404, body: '' });
  }
}

// 256 colours are enough for lines and text, and a third of the bytes.
function smaller(png) {
  const picture = UPNG.decode(png);
  const [pixels] = UPNG.toRGBA8(picture);
  return Buffer.from(UPNG.encode([pixels], picture.width, picture.height, 256));
}

async function shoot({ file, wanted }) {
  const page = await browser.newPage({ viewport: { width: job.width, height: 1000 } });
  page.on('pageerror', (error) => console.error(`${file}: ${error}`));
  await page.route('**/*', answer);
  await page.addInitScript((wanted) => (window.wanted = wanted), wanted);
  await page.goto('http://boards.invalid/');
  await page.waitForFunction(() => window.left === 0, undefined, { timeout: 60_000 });
  await page.evaluate(() => document.fonts.ready);
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await writeFile(file, smaller(await page.screenshot({ fullPage: true })));
  const empty = await page.evaluate(() => window.empty);
  await page.close();
  return { file, empty };
}

try {
  const drawn = [];
  for (const picture of job.pictures) {
    drawn.push(await shoot(picture));
  }
  console.log(JSON.stringify(drawn));
} finally {
  await browser.close();
}
