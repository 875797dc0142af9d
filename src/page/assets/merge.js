// Edits of a claim, quantity by quantity: what one person changed is put over what another changed meanwhile. The command
// line does the same.

import { same } from "./format.js";

const nominal = (resource) => JSON.stringify([resource]);
const assigned = (queue, flavor, resource) => JSON.stringify([queue, flavor, resource]);

/** Quantities by what they are of. */
function fields(spec) {
  const all = new Map();
  for (const [resource, amount] of Object.entries(spec.nominalResources ?? {})) all.set(nominal(resource), amount);
  for (const { clusterQueueName, flavor, resources } of spec.resourceAssignments ?? []) {
    for (const [resource, amount] of Object.entries(resources)) {
      all.set(assigned(clusterQueueName, flavor, resource), amount);
    }
  }
  return all;
}

function keys(...maps) {
  return [...new Set(maps.flatMap((map) => [...map.keys()]))].sort();
}

/** A field in words. */
export function named(field) {
  const parts = JSON.parse(field);
  return parts.length === 1 ? `nominalResources ${parts[0]}` : parts.join(" ");
}

/** Your edits over the newest. Where both touched a field, yours stands and the collision is told. */
export function merge(base, yours, newest) {
  const [before, mine, theirs] = [fields(base), fields(yours), fields(newest)];
  const merged = structuredClone(newest);
  merged.nominalResources ??= {};
  merged.resourceAssignments ??= [];
  const collisions = [];
  for (const field of keys(before, mine, theirs)) {
    const [was, my, their] = [before.get(field), mine.get(field), theirs.get(field)];
    if (same(my, was) || same(my, their)) continue;
    if (!same(their, was)) collisions.push({ field, before: was, yours: my, theirs: their });
    set(merged, field, my);
  }
  const had = new Set((newest.resourceAssignments ?? []).map((one) => JSON.stringify([one.clusterQueueName, one.flavor])));
  merged.resourceAssignments = merged.resourceAssignments.filter(
    (one) =>
      0 < Object.keys(one.resources).length ||
      (had.has(JSON.stringify([one.clusterQueueName, one.flavor])) && isEmptyIn(newest, one)),
  );
  return { merged, collisions };
}

/** Empty ones that somebody wrote so stay. */
function isEmptyIn(spec, { clusterQueueName, flavor }) {
  return (spec.resourceAssignments ?? []).some(
    (one) => one.clusterQueueName === clusterQueueName && one.flavor === flavor && Object.keys(one.resources).length === 0,
  );
}

function set(spec, field, amount) {
  const parts = JSON.parse(field);
  let resources = spec.nominalResources;
  if (parts.length === 3) {
    const [queue, flavor] = parts;
    let at = spec.resourceAssignments.find((one) => one.clusterQueueName === queue && one.flavor === flavor);
    if (!at) {
      at = { clusterQueueName: queue, flavor, resources: {} };
      spec.resourceAssignments.push(at);
    }
    resources = at.resources;
  }
  const resource = parts.at(-1);
  if (amount === undefined) delete resources[resource];
  else resources[resource] = amount;
}

/** Whether two specs say the same, however they write it. */
export function isSame(one, other) {
  const [a, b] = [fields(one), fields(other)];
  const pairs = (spec) =>
    JSON.stringify((spec.resourceAssignments ?? []).map((each) => [each.clusterQueueName, each.flavor]).sort());
  return (
    one.clusterName === other.clusterName && pairs(one) === pairs(other) && keys(a, b).every((field) => same(a.get(field), b.get(field)))
  );
}

/** Each quantity that differs: `[words, before, after]`. */
export function changes(before, after) {
  const [a, b] = [fields(before ?? {}), fields(after ?? {})];
  return keys(a, b)
    .filter((field) => !same(a.get(field), b.get(field)))
    .map((field) => [named(field), a.get(field), b.get(field)]);
}
