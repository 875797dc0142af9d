// What happened: capacity, and what queues were given of it, as curves; below them what moved them and who.

import { html, useEffect, useMemo, useState } from "../preact.js";
import { Chart } from "../chart.js";
import { amount, byScarcity, number } from "../format.js";
import { get, path, session } from "../http.js";
import { useStore } from "../live.js";
import { to } from "../route.js";
import { Choice, Loading, Nothing, Panel, Table, Time, Trouble } from "../ui.js";

const SPANS = [["6", "6 h"], ["24", "Day"], ["168", "Week"], ["2160", "All"]];
/** Pages that are read for one picture: of each, the server looks at 1,000 entries. */
const PAGES = 10;
const SHOWN = 100;

/** Entries since `hours` ago and the last before each, oldest first; as far as pages are read. */
function useSince(pathOf, hours, again) {
  const first = pathOf(undefined);
  const [state, set] = useState({ first: null });
  const { since } = useStore(session);
  useEffect(() => {
    let gone = false;
    const load = async () => {
      const from = Date.now() - hours * 3_600_000;
      let items = [];
      let next;
      let isCut = false;
      try {
        for (let page = 0; ; page += 1) {
          const answer = await get(pathOf(next));
          items = items.concat(answer.items);
          next = answer.continue;
          const last = answer.items.at(-1);
          if (next === undefined || gone || (last && Date.parse(last.at) < from)) break;
          if (page === PAGES - 1) {
            isCut = true;
            break;
          }
        }
        if (!gone) set({ first, hours, items: items.reverse(), from, until: Date.now(), isCut, error: null });
      } catch (error) {
        if (!gone && error.status !== 401) set({ first, hours, error });
      }
    };
    load();
    return () => {
      gone = true;
    };
  }, [first, hours, again, since]);
  return state.first === first && state.hours === hours ? state : {};
}

/**
 * Steps of several quantities on one axis of times. `entries`: `{ at, key, value }`, oldest first; what stood before the
 * first time is taken over to it.
 */
function steps(entries, keys, since, until) {
  // What was not remembered yet takes no room.
  const first = entries.find(({ key }) => keys.includes(key))?.at ?? since;
  const from = Math.max(since, first - (until - first) / 20);
  const times = [from / 1000];
  const values = new Map(keys.map((key) => [key, [null]]));
  for (const { at, key, value } of entries) {
    if (!values.has(key)) continue;
    const seconds = Math.max(at, from) / 1000;
    if (times.at(-1) < seconds) {
      times.push(seconds);
      for (const all of values.values()) all.push(all.at(-1));
    }
    values.get(key)[times.length - 1] = value;
  }
  times.push(Math.max(until / 1000, times.at(-1) + 1));
  for (const all of values.values()) all.push(all.at(-1));
  return { times, values };
}

const cellKey = ({ flavor, resource }) => JSON.stringify([flavor, resource]);

/** What a cluster had, and what queues got of it. */
export function Capacity({ cluster, news }) {
  const [hours, setHours] = useState(24);
  const [chosen, choose] = useState(null);
  const capacity = useSince((next) => path(["capacity", cluster, "history"], { limit: 1000, continue: next }), hours, news);
  const plans = useSince((next) => path(["plans"], { cluster, limit: 1000, continue: next }), hours, news);
  const cells = useMemo(() => {
    const all = new Map((capacity.items ?? []).map((entry) => [cellKey(entry), entry]));
    return [...all.values()].sort((a, b) => byScarcity(a.resource, b.resource) || (a.flavor < b.flavor ? -1 : 1));
  }, [capacity.items]);
  const cell = cells.find((cell) => cellKey(cell) === chosen) ?? cells[0];
  const key = cell && cellKey(cell);
  const drawn = useMemo(() => {
    if (!cell || !plans.items) return null;
    const entries = capacity.items.filter((entry) => cellKey(entry) === key).flatMap((entry) => {
      const at = Date.parse(entry.at);
      return [
        { at, key: "capacity", value: entry.capacity === undefined ? null : number(entry.capacity) },
        { at, key: "usable", value: entry.usable === undefined ? null : number(entry.usable) },
      ];
    });
    const given = plans.items.map(({ at, report }) => ({
      at: Date.parse(at), key: "given",
      value: report.cells.filter((one) => cellKey(one) === key).reduce((sum, { effective }) => sum + number(effective), 0),
    }));
    const { times, values } = steps([...entries, ...given].sort((a, b) => a.at - b.at), ["capacity", "usable", "given"], capacity.from, capacity.until);
    return {
      times,
      series: [
        { name: "has", tone: "muted", values: values.get("capacity"), isDashed: true },
        { name: "usable", tone: "s1", values: values.get("usable") },
        { name: "queues get", tone: "s0", values: values.get("given"), isFilled: true },
      ],
    };
  }, [capacity.items, plans.items, key]);
  return html`<${Past} title="Over time" hours=${hours} setHours=${setHours} states=${[capacity, plans]} cell=${cell} drawn=${drawn} plans=${plans.items}
    aside=${cells.length > 1 && html`<select aria-label="Flavor and resource" value=${key} onChange=${(event) => choose(event.currentTarget.value)}>
      ${cells.map((one) => html`<option value=${cellKey(one)} selected=${cellKey(one) === key}>${one.flavor} ${one.resource}</option>`)}</select>`} />`;
}

/**
 * What each cluster gave a cell, as entries for `steps`: what plans gave it, up to `today`, which has what each gives now. A
 * plan without the cell gives it nothing. A plan's `term` is no measure: it is what the cluster had done when it was made.
 */
function contributed({ items, from, until }, key, today) {
  const entries = items.map(({ at, cluster, report }) => {
    const found = report.cells.find((one) => cellKey(one) === key);
    return { at: Date.parse(at), key: cluster, value: found ? number(found.effective) : 0 };
  });
  const told = new Set(entries.map(({ key }) => key));
  // Of a cluster without a plan in what was read, nothing changed in that time.
  const quiet = [...today].filter(([cluster]) => !told.has(cluster));
  const begun = entries[0]?.at ?? from;
  entries.unshift(...quiet.map(([cluster, value]) => ({ at: begun, key: cluster, value })));
  const now = [...new Set([...told, ...today.keys()])].map((cluster) => ({ at: until, key: cluster, value: today.get(cluster) ?? 0 }));
  const all = [...entries, ...now];
  const some = new Set(all.filter(({ value }) => value !== 0).map(({ key }) => key));
  return all.filter(({ key }) => some.has(key) || today.has(key));
}

/** What a queue got of each cluster. */
export function QuotaHistory({ queue, cell, series: tones, news }) {
  const [hours, setHours] = useState(24);
  const plans = useSince((next) => path(["plans"], { queue, limit: 1000, continue: next }), hours, news);
  const key = cellKey(cell);
  const today = JSON.stringify(cell.terms.map(({ cluster, effective }) => [cluster, number(effective)]));
  const drawn = useMemo(() => {
    if (!plans.items) return null;
    const entries = contributed(plans, key, new Map(JSON.parse(today)));
    const last = new Map(entries.map(({ key, value }) => [key, value]));
    const clusters = [...last.keys()].sort((a, b) => last.get(b) - last.get(a));
    const { times, values } = steps(entries, clusters, plans.from, plans.until);
    // One upon the other: the top is what the clusters give together.
    const sum = times.map(() => 0);
    const stacked = clusters.map((cluster) => values.get(cluster).map((value, index) => (sum[index] += value ?? 0)));
    const few = clusters.length <= 8 ? clusters : [];
    return {
      times,
      series: [
        ...few.map((cluster, index) => ({ name: few.length > 1 && index ? `+ ${cluster}` : cluster, tone: tones.get(cluster) ?? "s7", values: stacked[index], isFilled: true })).reverse(),
        ...(few.length ? [] : [{ name: "all clusters", tone: "s0", values: stacked.at(-1) ?? sum, isFilled: true }]),
      ],
    };
  }, [plans.items, key, today]);
  return html`<${Past} title=${`${cell.flavor} ${cell.resource} over time`} hours=${hours} setHours=${setHours} states=${[plans]} cell=${cell} drawn=${drawn} plans=${plans.items} />`;
}

function Past({ title, hours, setHours, states, cell, drawn, plans, aside }) {
  const error = states.find(({ error }) => error)?.error;
  const known = states.every(({ items }) => items);
  const from = states[0].from;
  const events = useMemo(() => {
    const all = (plans ?? []).filter(({ at }) => from <= Date.parse(at));
    return all.reverse();
  }, [plans, from]);
  const marks = useMemo(() => [...new Set(events.filter(({ who }) => who).map(({ at }) => Date.parse(at) / 1000))], [events]);
  return html`<${Panel} title=${title} id="past" aside=${html`${aside}<${Choice} label="Time" value=${String(hours)} options=${SPANS} onChange=${(value) => setHours(Number(value))} />`}>
    ${error && html`<${Trouble} error=${error} />`}
    ${!known && !error && html`<${Loading} />`}
    ${known && !cell && html`<${Nothing}>Nothing is remembered.<//>`}
    ${known && cell && drawn && html`
      <${Chart} label=${`${title}: curves of ${drawn.series.map(({ name }) => name).join(", ")}`} times=${drawn.times} series=${drawn.series} marks=${marks}
        format=${(value) => amount(value, cell.resource)} />
      ${states.some(({ isCut }) => isCut) && html`<p class="below">There is more than one picture shows: choose a shorter time.</p>`}
      <${Events} events=${events} />`}
  <//>`;
}

/** What moved the curves; those of people are marked in the picture. */
function Events({ events }) {
  if (events.length === 0) return html`<${Nothing}>Nothing changed in that time.<//>`;
  return html`<${Table} label="What moved it" rows=${events.slice(0, SHOWN)} columns=${[
    { name: "When", className: "time", cell: ({ at }) => html`<${Time} at=${at} />` },
    { name: "Cluster", isName: true, cell: ({ cluster }) => html`<a href=${to(["fleet", cluster])}>${cluster}</a>` },
    { name: "What moved it", className: "grow", cell: ({ cause, who }) => html`${cause}${who && html`<span class="sub">by ${who}</span>`}` },
    {
      name: "Then", className: "grow",
      cell: ({ report }) => report.cells.length === 0 ? html`<span class="sub">nothing any more</span>` : report.cells.slice(0, 4).map(({ queue, flavor, resource, effective, requested, reason }) =>
        html`<span class="sub">${queue} ${flavor} ${resource}: ${effective}${effective !== requested ? ` of ${requested}` : ""}${reason !== "Assigned" ? `, ${reason}` : ""}</span>`),
    },
  ]} />`;
}
