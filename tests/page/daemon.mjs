// What a person does with the page of a fedqd that keeps the quota of two clusters: looks at everything, edits, follows.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, request } from "node:http";

import { ask, end, go, login, open, says, until } from "./browser.mjs";

const { FEDQ_SERVER: server, FEDQ_TOKEN: token, FEDQ_TASK: task, FEDQ_HOSTILE: hostile } = process.env;
const address = `${server}/ui/`;
const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
/** Of one line of a log, in bytes. */
const KEPT = 64 << 10;
const step = (what) => console.error(`${new Date().toISOString().slice(11, 23)} ${what}`);

/** Somebody else, by the API. */
async function api(method, path, body, more = {}) {
  const answer = await fetch(`${server}/api/v1/${path}`, { method, headers: { ...headers, ...more }, body: body && JSON.stringify(body) });
  assert(answer.ok, `${method} ${path}: ${answer.status}`);
  return answer.json();
}

/** Somebody else's edit of a claim. */
async function assigns(gpu) {
  const claim = await api("GET", "claims/one-resource-claim");
  claim.spec.resourceAssignments[0].resources.gpu = gpu;
  for (let tries = 0; ; tries += 1) {
    const { resourceVersion } = await api("GET", "claims/one-resource-claim");
    try {
      return await api("PUT", "claims/one-resource-claim", claim.spec, { "if-match": `"${resourceVersion}"` });
    } catch (error) {
      if (10 < tries) throw error;
    }
  }
}

const VIEWS = [
  ["fleet", "#/fleet", ["one", "two", "Ready", "gpus", "Usable nodes"]],
  ["cluster", "#/fleet/one", ["What it has", "gpus", "Over time", "Check"]],
  ["queues", "#/queues", ["team", "gpus"]],
  ["queue", "#/queues/team?flavor=gpus&resource=gpu", ["Quota by cluster", "Why gpus gpu is", "one", "two", "over time"]],
  ["claims", "#/claims", ["one-resource-claim", "two-resource-claim"]],
  ["claim", "#/claims/one-resource-claim", ["What it asks for and gets", "Who holds what", "Who changed it", "Assigned"]],
  ["edit", "#/claims/one-resource-claim/edit", ["nominalResources", "Review changes"]],
  ["tasks", "#/tasks", [hostile, "running"]],
  ["task", `#/tasks/${task}`, ["What each cluster says", "fits", "History", "Submitted", "What it runs"]],
  ["log", `#/tasks/${task}/log`, ["following"]],
  ["placements", "#/placements", ["best", "one, two"]],
  ["placement", "#/placements/kueue-system/best", ["Steady ×", "Chosen", "Filtered"]],
  ["audit", "#/audit", ["create", `tasks/${task}`, "ann@example.com"]],
];

async function refusesWhoIsNobody() {
  step("refuses who is nobody");
  const seen = await open(address, { refusals: [401] });
  const text = await seen.page.textContent("body");
  for (const told of ["one", "team", "ann@"]) assert(!new RegExp(`\\b${told}`).test(text.replace("one of the hub", "")), `told ${told}`);
  await seen.isForAll("login");
  await seen.picture("login");
  await seen.page.fill("#token", "no-such-token");
  await seen.page.keyboard.press("Enter");
  await says(seen, "the token is not valid here", "[role=alert]");
  assert.equal(await seen.page.locator("nav").count(), 0);
  await login(seen, token);
  const kept = await seen.page.evaluate(() => [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie].join());
  assert(!kept.includes(token), "the token is stored");
  await seen.page.reload();
  await seen.page.waitForSelector("#token");
  await seen.close();
}

async function showsEveryView() {
  for (const [width, scheme] of [[1440, "light"], [390, "dark"], [390, "light"], [1440, "dark"]]) {
    const seen = await open(`${address}${VIEWS[0][1]}`, { width, scheme });
    await login(seen, token);
    for (const [name, hash, texts] of VIEWS) {
      step(`${name} ${width} ${scheme}`);
      await go(seen, hash);
      for (const text of texts) await says(seen, text);
      if (["cluster", "queue"].includes(name)) await seen.page.waitForSelector(".chart canvas");
      await seen.fits(`${name} at ${width}`);
      await seen.isForAll(`${name} at ${width}, ${scheme}`);
      await seen.picture(`${name}-${width}-${scheme}`);
    }
    await seen.close();
  }
}

/** What a queue got of its clusters, from the plans and up to now. */
async function drawsWhatAQueueGets() {
  step("draws what a queue gets");
  const seen = await open(`${address}#/queues/team?flavor=gpus&resource=gpu`);
  const { page } = seen;
  await login(seen, token);
  const over = page.locator(".chart .u-over");
  await over.waitFor();
  const top = page.locator(".chart .u-legend .u-value").nth(1);
  // Where the last plan stands, and now.
  for (const share of [0.3, 0.99]) {
    await until(`at ${share} it is the quota`, async () => {
      const { queue } = await api("GET", "queues/team");
      const { nominal, target } = queue.cells.find(({ flavor, resource }) => flavor === "gpus" && resource === "gpu");
      const { width } = await over.boundingBox();
      await over.hover({ position: { x: width * share, y: 20 } });
      return nominal !== "0" && nominal === target && (await top.textContent()) === nominal;
    });
  }
  await seen.close();
}

/** What the server refuses in the place of what it would answer. */
function refuse(route, status, title) {
  return route.fulfill({ status, contentType: "application/problem+json", body: JSON.stringify({ title, status }) });
}

async function saysWhatIsRefused() {
  step("says what is refused");
  const seen = await open(`${address}#/placements/kueue-system/best`, { refusals: [404, 429, 503] });
  const { page } = seen;
  await login(seen, token);
  await says(seen, "Decided by");
  // What was known stays beside a fault, and goes with the object.
  let status = 503;
  await page.route("**/best/explanation", (route) => refuse(route, status, `refused with ${status}`));
  await page.getByRole("button", { name: "Refresh" }).click();
  await says(seen, "refused with 503", "[role=alert]");
  await says(seen, "Decided by");
  status = 404;
  await page.getByRole("button", { name: "Try again" }).click();
  await says(seen, "refused with 404", "[role=alert]");
  assert(!(await page.textContent("main")).includes("Decided by"));

  // An earlier run's log is tried again after a passing fault, and a lasting one is told.
  status = 429;
  await page.route("**/logs?*previous=true*", (route) => refuse(route, status, `no log: ${status}`));
  await go(seen, `#/tasks/${task}/log`);
  await page.getByRole("button", { name: "The one before" }).click();
  await says(seen, "no log: 429", ".link");
  status = 404;
  await says(seen, "no log: 404", "[role=alert]");
  await seen.isForAll("log that is refused");

  await page.route("**/uplot.js", (route) => route.fulfill({ status: 404 }));
  await go(seen, "#/queues/team");
  await says(seen, "Load the page anew", "[role=alert]");
  await seen.close();
}

async function loadsOlderTasksAgain() {
  step("loads older tasks again");
  const seen = await open(`${address}#/fleet`, { refusals: [503] });
  const { page } = seen;
  await login(seen, token);
  const { items: [one] } = await api("GET", "tasks");
  const row = (id, submitted) => ({ ...one, id, name: id, submitted });
  const newest = Array.from({ length: 500 }, (_, index) => row(`t-${index}`, one.submitted));
  const old = row("t-older", "2020-01-01T00:00:00Z");
  let [isRefused, isDeleted] = [true, false];
  await page.route(/tasks\?.*watch=true/, (route) => {
    const events = [...newest.map((object) => ({ type: "ADDED", object })), { type: "SYNCED" }, ...(isDeleted ? [{ type: "DELETED", object: old }] : [])];
    return route.fulfill({ contentType: "application/x-ndjson", body: events.map((event) => `${JSON.stringify(event)}\n`).join("") });
  });
  await page.route(/tasks\?.*limit=/, (route) =>
    isRefused ? refuse(route, 503, "busy for now") : route.fulfill({ contentType: "application/json", body: JSON.stringify({ items: [old] }) }));
  await go(seen, "#/tasks");
  await says(seen, "500 tasks");
  await page.getByRole("button", { name: "Load older" }).click();
  await says(seen, "busy for now", "[role=alert]");
  isRefused = false;
  await page.getByRole("button", { name: "Try again" }).click();
  await says(seen, "501 tasks");
  isDeleted = true;
  await until("what was deleted is gone", async () => (await page.textContent(".loaded")).includes("500 tasks"));
  await seen.close();
}

async function narrowsTheAudit() {
  step("narrows the audit");
  const seen = await open(`${address}#/audit`);
  const { page } = seen;
  await login(seen, token);
  await page.locator("button.plainly", { hasText: "ann@example.com" }).first().click();
  await until("the box says who", async () => (await page.getByLabel("Who", { exact: true }).inputValue()) === "ann@example.com");
  await seen.close();
}

/** A proxy that hands on what is under a prefix, as ingresses do. */
async function worksUnderAPrefix() {
  step("works under a prefix");
  const { hostname, port } = new URL(server);
  const proxy = createServer((asked, answer) => {
    const path = asked.url.replace(/^\/some\/prefix\//, "/");
    if (path === asked.url) return answer.writeHead(404).end();
    const handed = request({ hostname, port, path, method: asked.method, headers: asked.headers }, (got) => {
      answer.writeHead(got.statusCode, got.headers);
      got.pipe(answer);
    });
    handed.on("error", () => answer.destroy());
    answer.on("close", () => handed.destroy());
    return asked.pipe(handed);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const seen = await open(`http://127.0.0.1:${proxy.address().port}/some/prefix/ui#/fleet`);
  await login(seen, token);
  await says(seen, "Ready");
  assert(seen.page.url().endsWith("/some/prefix/ui/#/fleet"), seen.page.url());
  await seen.close();
  proxy.closeAllConnections();
  proxy.close();
}

async function isUsedByKeyboard() {
  step("is used by keyboard");
  const seen = await open(`${address}#/fleet`);
  await seen.page.waitForSelector("#token");
  await seen.page.keyboard.type(token);
  await seen.page.keyboard.press("Enter");
  await says(seen, "Ready");
  await seen.page.evaluate(() => document.activeElement.blur());
  const passed = [];
  for (let tabs = 0; tabs < 40; tabs += 1) {
    await seen.page.keyboard.press("Tab");
    const focus = await seen.page.evaluate(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      return { text: document.activeElement.textContent || document.activeElement.ariaLabel, isSeen: outlineStyle !== "none" && outlineWidth !== "0px" };
    });
    assert(focus.isSeen, `focus on ${focus.text} is not seen`);
    passed.push(focus.text);
    if (focus.text === "one") break;
  }
  assert.equal(passed[0], "Skip to content");
  await seen.page.keyboard.press("Enter");
  await says(seen, "What it has");
  assert.equal(await seen.page.evaluate(() => document.activeElement.textContent), "one", "the head of the new view has the focus");
  await seen.close();
}

async function showsAChangeWithinASecond() {
  step("shows a change within a second");
  const seen = await open(`${address}#/fleet`);
  await login(seen, token);
  await says(seen, "Ready");
  const row = seen.page.locator("tr", { has: seen.page.locator("a", { hasText: /^one$/ }) });
  // The best of three: a busy machine is not taken for a fault.
  const [cordons, nodes] = [[], []];
  for (let times = 0; times < 3; times += 1) {
    await api("POST", "clusters/one/cordon");
    cordons.push(await until("it shows as cordoned", async () => (await row.textContent()).includes("cordoned")));
    await api("POST", "clusters/one/uncordon");
    await until("it does not any more", async () => !(await row.textContent()).includes("cordoned"));
    await ask("node-goes");
    nodes.push(await until("the node is not usable", async () => (await row.textContent()).includes("1/2")));
    await ask("node-returns");
    await until("it is again", async () => (await row.textContent()).includes("2/2"));
  }
  const [took, gone] = [cordons, nodes].map((all) => Math.min(...all));
  await go(seen, "#/fleet/one");
  await says(seen, "gpus nvidia.com/gpu 16 → 8 (node b)");
  await says(seen, "gpus nvidia.com/gpu 8 → 16 (node b)");
  console.error(`a cordon was shown after ${took} ms, a node after ${gone} ms`);
  assert(took < 1000 && gone < 1000, `shown after ${took} and ${gone} ms`);
  await seen.close();
}

async function editsOverAnothersEdit() {
  step("edits over another's edit");
  const seen = await open(`${address}#/claims/one-resource-claim/edit`, { refusals: [412, 422] });
  const { page } = seen;
  await login(seen, token);
  const gpu = page.getByLabel("team gpus gpu", { exact: true });
  const cap = page.getByLabel("nominalResources cpu", { exact: true });
  await gpu.waitFor();
  await gpu.fill("many");
  await says(seen, "many is no quantity");
  assert(await page.getByRole("button", { name: "Review changes" }).isDisabled());

  // Nobody else: gains and losses are shown first, and nothing is written until they are confirmed.
  await gpu.fill("15");
  await go(seen, "#/fleet");
  await says(seen, "Usable nodes");
  await go(seen, "#/claims/one-resource-claim/edit");
  await says(seen, "What you typed before is still here");
  assert.equal(await gpu.inputValue(), "15", "what was typed is kept");
  await page.getByRole("button", { name: "Review changes" }).click();
  await says(seen, "-1", "dialog");
  await seen.isForAll("review");
  await seen.picture("review");
  assert.equal((await api("GET", "claims/one-resource-claim")).spec.resourceAssignments[0].resources.gpu, "16");
  await page.getByRole("button", { name: "Apply" }).click();
  await says(seen, "Who changed it");
  assert.equal((await api("GET", "claims/one-resource-claim")).spec.resourceAssignments[0].resources.gpu, "15");

  // Somebody else changed something else: both stand.
  await go(seen, "#/claims/one-resource-claim/edit");
  await cap.fill("100");
  await page.getByRole("button", { name: "Review changes" }).click();
  await page.waitForSelector("dialog");
  await assigns("6");
  await page.getByRole("button", { name: "Apply" }).click();
  await says(seen, "your edits are put on top of theirs", "dialog");
  await page.getByRole("button", { name: "Apply" }).click();
  await says(seen, "Who changed it");
  let { spec } = await api("GET", "claims/one-resource-claim");
  assert.deepEqual([spec.nominalResources.cpu, spec.resourceAssignments[0].resources.gpu], ["100", "6"]);

  // Somebody else changed the same: the person decides, with both values before them.
  await go(seen, "#/claims/one-resource-claim/edit");
  await gpu.fill("5");
  await page.getByRole("button", { name: "Review changes" }).click();
  await page.waitForSelector("dialog");
  await assigns("4");
  await page.getByRole("button", { name: "Apply" }).click();
  await says(seen, "team gpus gpu: you wrote 5, meanwhile it was set to 4 (it was 6)");
  await seen.isForAll("collision");
  await seen.picture("collision");
  assert.equal(await gpu.inputValue(), "5", "what was typed is kept");
  await gpu.fill("8");
  await page.getByRole("button", { name: "Review changes" }).click();
  await says(seen, "+4", "dialog");
  await page.getByRole("button", { name: "Apply" }).click();
  await says(seen, "Who changed it");
  ({ spec } = await api("GET", "claims/one-resource-claim"));
  assert.equal(spec.resourceAssignments[0].resources.gpu, "8");
  await says(seen, "4 → 8");

  // Somebody else changed something before the review: it tells what is added to that.
  await go(seen, "#/claims/one-resource-claim/edit");
  await cap.fill("90");
  await assigns("7");
  await says(seen, "Somebody else has changed the claim since you began");
  await page.getByRole("button", { name: "Review changes" }).click();
  await says(seen, "your edits are put on top of theirs", "dialog");
  await page.getByRole("button", { name: "Edit again" }).click();
  assert.equal(await gpu.inputValue(), "7", "theirs stands");
  await page.getByRole("button", { name: "Undo all" }).click();

  // What the hub refuses is said as the hub says it, and what was typed stays.
  await go(seen, "#/claims/one-resource-claim/edit");
  await page.getByRole("button", { name: "Add" }).click();
  await page.getByLabel("Queue", { exact: true }).last().fill("Not A Name");
  await page.getByLabel("Flavor", { exact: true }).last().fill("gpus");
  await page.getByRole("button", { name: "Review changes" }).click();
  await page.waitForSelector("[role=alert]");
  assert.equal(await page.getByLabel("Queue", { exact: true }).last().inputValue(), "Not A Name");
  await page.getByRole("button", { name: "Undo all" }).click();
  await seen.close();
}

async function followsALog() {
  step("follows a log");
  const seen = await open(`${address}#/tasks/${task}/log`);
  const { page } = seen;
  await login(seen, token);
  await says(seen, "following");
  await ask("line plain words");
  const took = await until("the line is there", async () => (await page.textContent(".log")).includes("plain words"));
  console.error(`a line was shown after ${took} ms`);
  await ask("line \x1b[31mred\x1b[0m \x1b]0;title\x07and \x1b[2J\x1b[Hgone <img src=x onerror=alert(1)> \u202edlrow");
  await says(seen, "red and gone <img src=x onerror=alert(1)> \ufffddlrow", ".log");
  assert.equal(await page.locator(".log .c1").first().textContent(), "red");
  assert.equal(await page.locator(".log img").count(), 0, "a line is no markup");
  await ask("long");
  await says(seen, "more", ".log button.rest");
  await says(seen, "bytes were not kept", ".log .line");
  await seen.picture("log-hostile");
  await page.locator("button.rest").click();
  await page.waitForSelector("dialog textarea");
  const whole = (await page.inputValue("dialog textarea")).length;
  assert(KEPT <= whole && whole < KEPT + 100, `${whole} characters are there of what fedqd keeps of a line of a megabyte`);
  await page.getByRole("button", { name: "Close" }).click();
  await ask("many");
  await until("the last of many is there", async () => (await page.textContent(".log")).includes("line 9999"));
  const made = await page.locator(".log .line").count();
  assert(made < 200, `${made} lines are made`);

  await page.getByLabel("Search the log").fill("LINE 4242");
  await says(seen, "1 of 1");
  await says(seen, "line 4242", ".log .hit");
  await page.getByLabel("only these").check();
  assert.equal(await page.locator(".log .line").count(), 1);
  await seen.isForAll("log that is searched");
  await page.getByLabel("Search the log").fill("");

  const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
  const text = readFileSync(await saved.path(), "utf8");
  assert(saved.suggestedFilename().endsWith(`-${task}.log`) && !/[<>]/.test(saved.suggestedFilename()), saved.suggestedFilename());
  assert(text.includes("plain words\n") && text.includes("\x1b[31mred") && text.includes("line 9999\n"));
  await seen.close();
}

async function takesTextForText() {
  step("takes text for text");
  // No such names are possible.
  const seen = await open(`${address}#/tasks`, { refusals: [400, 404] });
  await login(seen, token);
  for (const hash of ["#/tasks", `#/tasks/${task}`, "#/audit", "#/claims/%3Cimg%20src=x%20onerror=alert(1)%3E", "#/nowhere/%zz?q=%3Cb%3E"]) {
    await go(seen, hash);
    await seen.page.waitForTimeout(300);
    assert.equal(await seen.page.locator("main img, main script, h1 b").count(), 0, hash);
  }
  await go(seen, "#/tasks");
  await says(seen, hostile);
  await seen.close();
}

async function stopsATask() {
  step("stops a task");
  const { id } = await api("POST", "tasks", { file: "name: short\nrun: x\nresources: {accelerators: 1}\nconfig: {kubernetes: {custom_metadata: {annotations: {sim.fedq.dev/seconds: '3600'}}}}\n" });
  const seen = await open(`${address}#/tasks/${id}`);
  await login(seen, token);
  await says(seen, "running", "header .badge");
  await seen.page.getByRole("button", { name: "Stop", exact: true }).click();
  await says(seen, "It cannot be started again", "dialog");
  await seen.isForAll("stop");
  await seen.page.getByRole("button", { name: "Stop it" }).click();
  await says(seen, "stopped", "header .badge");
  await seen.close();
}

async function outlivesARestart() {
  step("outlives a restart");
  const seen = await open(`${address}#/claims/one-resource-claim/edit`, { refusals: ["ERR_", 503] });
  const { page } = seen;
  await login(seen, token);
  await page.getByLabel("team gpus gpu", { exact: true }).fill("3");
  await ask("stop");
  await says(seen, "Not live", ".link");
  await seen.picture("broken");
  await ask("start");
  await until("it is live again", async () => (await page.textContent(".link")).includes("Live"));
  assert.equal(await page.getByLabel("team gpus gpu", { exact: true }).inputValue(), "3", "what was typed is kept");
  await page.getByRole("button", { name: "Undo all" }).click();
  await seen.close();
}

async function asksAgainWhenATokenEnds() {
  step("asks again when a token ends");
  const seen = await open(`${address}#/claims/one-resource-claim/edit`, { refusals: [401] });
  const { page } = seen;
  await login(seen, token);
  await page.getByLabel("team gpus gpu", { exact: true }).fill("2");
  const next = await ask("another-token");
  await says(seen, "Log in again", "dialog");
  await seen.isForAll("login again");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await says(seen, "Log in again", "dialog");
  await seen.picture("again");
  await page.fill("#token", next);
  await page.locator("dialog button[type=submit]").click();
  await until("the dialog is gone", async () => (await page.locator("dialog").count()) === 0);
  assert.equal(await page.getByLabel("team gpus gpu", { exact: true }).inputValue(), "2", "what was typed is kept");
  await page.getByRole("button", { name: "Undo all" }).click();
  await until("it is live again", async () => (await page.textContent(".link")).includes("Live"));
  await seen.close();
}

await refusesWhoIsNobody();
await showsEveryView();
await drawsWhatAQueueGets();
await saysWhatIsRefused();
await loadsOlderTasksAgain();
await narrowsTheAudit();
await worksUnderAPrefix();
await isUsedByKeyboard();
await showsAChangeWithinASecond();
await editsOverAnothersEdit();
await followsALog();
await takesTextForText();
await stopsATask();
await outlivesARestart();
await asksAgainWhenATokenEnds();
await end();
