// Chromium as a person uses it, held to what every page must keep to: no error, no request elsewhere, nothing that the policy
// forbids, nothing that keeps people out who use a keyboard or a reader.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const { FEDQ_CHROMIUM: executablePath, FEDQ_PICTURES: pictures } = process.env;
/** A busy machine is not taken for a fault. */
const WITHIN = 45_000;

mkdirSync(pictures, { recursive: true });
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Has the test do what only it can do, and waits until it is done. */
export async function ask(what) {
  process.stdout.write(`DO ${what}\n`);
  const { value, done } = await answers.next();
  assert(!done, `nobody did ${what}`);
  return value;
}

/** A page of its own, as somebody with this screen sees it. Refusals that are expected are named by their status. */
export async function open(address, { width = 1440, scheme = "light", refusals = [] } = {}) {
  const viewport = { width, height: width < 500 ? 844 : 900 };
  const context = await browser.newContext({ viewport, colorScheme: scheme, acceptDownloads: true });
  const page = await context.newPage();
  page.setDefaultTimeout(WITHIN);
  const { origin } = new URL(address);
  const wrong = [];
  page.on("console", (message) => {
    const text = message.text();
    const isExpected = refusals.some((one) => text.includes(`${one}`));
    if (["error", "warning"].includes(message.type()) && !isExpected) wrong.push(`${message.type()}: ${text}`);
  });
  page.on("pageerror", (error) => wrong.push(error.stack));
  page.on("dialog", (dialog) => {
    if (dialog.type() !== "beforeunload") wrong.push(`a dialog: ${dialog.message()}`);
    dialog.accept();
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== origin && !["data:", "blob:"].includes(url.protocol)) wrong.push(`a request to ${url.origin}`);
  });
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
      window.violations.push(`${violatedDirective} ${blockedURI}`);
    });
  });
  await page.goto(address);
  return {
    page,
    async picture(name) {
      await page.screenshot({ path: `${pictures}/${name}.png` });
    },
    /** Nothing that keeps people out, as axe knows it. */
    async isForAll(where) {
      await page.evaluate(`${AXE}; 0`);
      const { violations } = await page.evaluate(() =>
        axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }),
      );
      const grave = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
      const told = grave.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html}\n  ${failureSummary}`).join("\n")}`);
      assert.deepEqual(told, [], where);
    },
    /** Nothing goes out of the screen sideways. */
    async fits(where) {
      const [inside, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
      assert(inside <= screen, `${where} is ${inside} wide on a screen of ${screen}`);
    },
    async close() {
      const violations = await page.evaluate(() => window.violations);
      assert.deepEqual([...wrong, ...violations], []);
      await context.close();
    },
  };
}

export async function login({ page }, token) {
  await page.fill("#token", token);
  await page.click("button[type=submit]");
  await page.waitForSelector("nav[aria-label=Views]");
}

/** Goes to a view as its address says. */
export async function go({ page }, hash) {
  await page.evaluate((hash) => (location.hash = hash), hash);
}

/** Until a text is there. */
export async function says({ page }, text, where = "main") {
  await page.locator(where, { hasText: text }).first().waitFor();
}

export async function until(what, holds) {
  const begun = Date.now();
  while (!(await holds())) {
    assert(Date.now() - begun < WITHIN, `waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  return Date.now() - begun;
}

export async function end() {
  await browser.close();
  process.exit(0);
}
