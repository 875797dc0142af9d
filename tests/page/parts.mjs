// Parts of the page that need no browser: quantities, edits on top of edits, lines of logs, answers that do not come.

import assert from "node:assert/strict";
import { mock } from "node:test";

const { FEDQ_ASSETS: assets } = process.env;
const { amount, exact, number, relative, same } = await import(`${assets}/format.js`);
const { changes, isSame, merge } = await import(`${assets}/merge.js`);
const { pieces, plain } = await import(`${assets}/ansi.js`);

for (const [one, other, is] of [
  ["1000m", "1", true], ["1Gi", "1024Mi", true], ["1e3", "1k", true], ["0.5", "500m", true], ["-0", "0", true],
  ["1Gi", "1G", false], ["9007199254740993", "9007199254740992", false], ["0.000000001", "1n", true], ["8Ei", "8192Pi", true],
  ["x", "x", true], ["x", "y", false], [undefined, undefined, true], [undefined, "0", false], ["1u", "1000n", true],
]) {
  assert.equal(same(one, other), is, `${one} and ${other}`);
}
assert.deepEqual(["1.5Gi", "250m", "2e3", "many", undefined].map(number), [1.5 * 2 ** 30, 0.25, 2000, 0, 0]);
assert.equal(exact("1.2.3"), null);
assert.deepEqual([amount(2 ** 40 * 11, "memory"), amount(1056, "cpu"), amount(0, "memory")], ["11Ti", "1,056", "0"]);
assert.deepEqual([0, 5, 90, 7200, 200_000, -90].map((ago) => relative(0, ago * 1000)), ["now", "5 s ago", "1 min ago", "2 h ago", "2 d ago", "in 1 min"]);

const spec = (nominal, ...assigned) => ({
  clusterName: "one", nominalResources: nominal,
  resourceAssignments: assigned.map(([clusterQueueName, flavor, resources]) => ({ clusterQueueName, flavor, resources })),
});
const base = spec({ cpu: "10" }, ["a", "x", { gpu: "4" }], ["b", "x", { gpu: "4" }]);

// Both changed something else.
let { merged, collisions } = merge(base, spec({ cpu: "10" }, ["a", "x", { gpu: "6" }], ["b", "x", { gpu: "4" }]), spec({ cpu: "12" }, ["a", "x", { gpu: "4" }], ["b", "x", { gpu: "2" }]));
assert.deepEqual([merged, collisions], [spec({ cpu: "12" }, ["a", "x", { gpu: "6" }], ["b", "x", { gpu: "2" }]), []]);
// Both changed the same: alike is no collision, however it is written.
({ merged, collisions } = merge(base, spec({ cpu: "10" }, ["a", "x", { gpu: "5" }], ["b", "x", { gpu: "5000m" }]), spec({ cpu: "10" }, ["a", "x", { gpu: "7" }], ["b", "x", { gpu: "5" }])));
assert.equal(merged.resourceAssignments[0].resources.gpu, "5", "yours stands");
assert.deepEqual(collisions, [{ field: JSON.stringify(["a", "x", "gpu"]), before: "4", yours: "5", theirs: "7" }]);
// Taken away, and added.
({ merged, collisions } = merge(base, spec({ cpu: "10" }, ["a", "x", { gpu: "4" }], ["c", "y", { gpu: "1" }]), spec({ cpu: "10" }, ["a", "x", { gpu: "4" }], ["b", "x", { gpu: "4" }], ["d", "x", { gpu: "1" }])));
assert.deepEqual(merged, spec({ cpu: "10" }, ["a", "x", { gpu: "4" }], ["d", "x", { gpu: "1" }], ["c", "y", { gpu: "1" }]));
assert.deepEqual(collisions, []);
// One took away what the other changed.
({ collisions } = merge(base, spec({ cpu: "10" }, ["a", "x", { gpu: "4" }]), spec({ cpu: "10" }, ["a", "x", { gpu: "4" }], ["b", "x", { gpu: "9" }])));
assert.deepEqual(collisions, [{ field: JSON.stringify(["b", "x", "gpu"]), before: "4", yours: undefined, theirs: "9" }]);
assert(isSame(base, spec({ cpu: "10000m" }, ["b", "x", { gpu: "4" }], ["a", "x", { gpu: "4" }])));
assert(!isSame(base, spec({ cpu: "10" }, ["a", "x", { gpu: "4" }], ["b", "x", { gpu: "4" }], ["c", "x", {}])));
assert.deepEqual(changes(base, spec({}, ["a", "x", { gpu: "4" }], ["b", "x", { gpu: "5" }])), [["b x gpu", "4", "5"], ["nominalResources cpu", "10", undefined]]);
// Names that are one when they are put together stay two.
assert(!isSame(spec({}, ["a b", "c", { gpu: "1" }]), spec({}, ["a", "b c", { gpu: "1" }])));

const shown = (line) => pieces(line, 2000).map(({ text }) => text).join("");
for (const [line, text] of [
  ["\x1b[1;31mred\x1b[0m end", "red end"],
  ["\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07", "link"],
  ["\x1b]0;title\x1b\\after", "after"],
  ["\x1b[2J\x1b[H\x1b[?25lgone", "gone"],
  ["10 %\r50 %\r100 %", "100 %"],
  ["ends\r", "ends"],
  ["a\x07b\x00c", "a␇b␀c"],
  ["\u202egnp.exe", "\ufffdgnp.exe"],
  ["\x1b[38;5;196mx\x1b[48;2;1;2;3my", "xy"],
  ["\x1b", "␛"],
  ["tab\tstays", "tab\tstays"],
]) {
  assert.equal(shown(line), text, JSON.stringify(line));
}
assert.deepEqual(pieces("\x1b[1;31ma\x1b[39mb\x1b[22mc", 10), [
  { text: "a", classes: "c1 bold" }, { text: "b", classes: "bold" }, { text: "c", classes: "" },
]);
assert.equal(plain("\x1b[32mok\x1b[0m done\r"), "ok done");
const begun = performance.now();
assert.equal(shown("x".repeat(1 << 20)).length, 2000);
for (const hostile of ["\x1b[".repeat(500_000), "\x1b]".repeat(500_000), "\x1b[;".repeat(300_000), "\r".repeat(1 << 20), "\x1bP".repeat(500_000)]) {
  plain(hostile);
  shown(hostile);
}
const took = performance.now() - begun;
assert(took < 2000, `lines of a megabyte took ${took} ms`);

// Answers that are refused, that break off and that do not come.
const answers = [];
globalThis.document = { baseURI: "http://127.0.0.1/ui/", hidden: false, addEventListener() {}, removeEventListener() {} };
globalThis.fetch = async (_, { signal }) => answers.shift()(signal);
const { follow, get, lines, links, login } = await import(`${assets}/http.js`);
const says = (text, status = 200) => () => new Response(text, { status, headers: { "content-type": "application/json" } });
const never = (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
const settled = () => new Promise(setImmediate);

/** Follows what is over once an answer came to its end; what it was told. */
function followed(...given) {
  answers.push(...given);
  const told = [];
  return new Promise((resolve) => {
    follow({
      open: () => ({ path: "log" }), line: (line) => told.push(line), over: (error) => error === null,
      done: () => resolve([...told, "done"]), failed: ({ status }) => resolve([...told, status]),
    });
  });
}
answers.push(says(JSON.stringify({ user: "ann" })));
await login("token");
assert.deepEqual(await followed(says("{}", 404)), [404], "it is over only once it was there");
assert.deepEqual(await followed(says("{}", 503), says("a\nb\n")), ["a", "b", "done"]);
await settled();
assert.equal(links.get().size, 0);

mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
answers.push(never);
let waited = assert.rejects(get("clusters"), /has not answered for 20 s/);
mock.timers.tick(20_000);
await waited;
// Its end is not taken for the end of what was to come.
answers.push(() => new Response(new ReadableStream()));
waited = assert.rejects(lines("log", () => {}), /has said nothing for 45 s/);
await settled();
mock.timers.tick(50_000);
await waited;
mock.timers.reset();
