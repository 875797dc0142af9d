// A thousand clusters and a hundred thousand tasks: what a first view costs, and that it stays smooth.

import assert from "node:assert/strict";

import { end, go, login, open, says, until } from "./browser.mjs";

const { FEDQ_SERVER: server, FEDQ_TOKEN: token } = process.env;
/** All that a first view takes, with what its streams begin with. */
const WIRE = 300_000;
/** Whatever the length of a list. */
const ROWS = 80;

/** Bytes as they came, headers and all, of everything since. */
async function meter(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  let bytes = 0;
  const streams = new Map();
  session.on("Network.dataReceived", ({ requestId, encodedDataLength }) => {
    streams.set(requestId, (streams.get(requestId) ?? 0) + encodedDataLength);
  });
  session.on("Network.responseReceived", ({ requestId, response }) => {
    streams.set(requestId, (streams.get(requestId) ?? 0) + response.encodedDataLength);
  });
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    streams.delete(requestId);
    bytes += encodedDataLength;
  });
  return () => bytes + [...streams.values()].reduce((sum, one) => sum + one, 0);
}

/** The longest time for which the page stood still. */
async function stalls(page) {
  await page.evaluate(() => {
    window.stall = 0;
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) window.stall = Math.max(window.stall, duration);
    }).observe({ entryTypes: ["longtask"] });
  });
  return () => page.evaluate(() => window.stall);
}

async function showsAThousandClusters() {
  const seen = await open(`${server}/healthz`, { refusals: [404] });
  const { page } = seen;
  // What is asked for before is no part of it, as the icon of what is no page.
  const wire = await meter(page);
  await page.goto(`${server}/ui/#/fleet`);
  await page.waitForSelector("#token");
  const begun = Date.now();
  await login(seen, token);
  await page.locator("table.rows tbody tr").nth(5).waitFor();
  const took = Date.now() - begun;
  await says(seen, "/1,000");
  await until("all claims are there", async () => (await page.textContent(".link")).includes("Live"));
  await page.waitForTimeout(500);
  console.error(`1,000 clusters: content after ${took} ms, ${wire()} bytes over the wire`);
  assert(wire() <= WIRE, `${wire()} bytes`);
  await seen.isForAll("a thousand clusters");
  await seen.picture("large-fleet");
  const stall = await stalls(page);
  for (let at = 0; at < 40; at += 1) {
    await page.mouse.wheel(0, 2000);
    await page.waitForTimeout(16);
    const made = await page.locator("table.rows tbody tr").count();
    assert(made <= ROWS, `${made} rows are made`);
  }
  await until("the last is there", async () => {
    await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
    return (await page.textContent("table.rows tbody")).includes("cluster-0999");
  });
  console.error(`scrolled through 1,000 clusters, standing still for ${await stall()} ms at most`);
  await page.getByLabel("Filter clusters").fill("cluster-0500");
  await until("one is left", async () => (await page.locator("table.rows tbody tr").count()) === 1);
  await seen.close();
}

async function showsManyTasks() {
  const seen = await open(`${server}/ui/#/tasks`);
  const { page } = seen;
  await login(seen, token);
  await says(seen, "500 tasks");
  const stall = await stalls(page);
  for (const count of ["1,000", "1,500", "2,000", "2,500"]) {
    await until(`${count} are loaded`, async () => {
      await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
      return (await page.textContent(".loaded")).includes(`${count} tasks`);
    });
    const made = await page.locator("table.rows tbody tr").count();
    assert(made <= ROWS, `${made} rows are made`);
  }
  console.error(`scrolled through 2,500 of 100,000 tasks, standing still for ${await stall()} ms at most`);
  await seen.picture("large-tasks");
  await seen.close();
}

async function takesTextForText() {
  // What the hub of this test does not have is refused, and left out.
  const seen = await open(`${server}/ui/#/fleet/east`, { refusals: [403, 404, 502, 503] });
  const { page } = seen;
  await login(seen, token);
  for (const hash of ["#/fleet", "#/fleet/east", "#/queues/team-a", "#/claims/east-resource-claim", "#/audit"]) {
    await go(seen, hash);
    await page.waitForSelector("main h1");
    await until("it is shown", async () => !(await page.textContent("main")).includes("Loading"));
    assert.equal(await page.locator("main :is(img, script, iframe, object, b[data-x])").count(), 0, hash);
  }
  await go(seen, "#/claims/east-resource-claim");
  await says(seen, "<img src=x onerror=alert(1)>");
  await seen.close();
}

await showsAThousandClusters();
await showsManyTasks();
await takesTextForText();
await end();
