// Clusters: how they are, what they have and what of it is assigned. What needs somebody comes first.

import { html, useMemo, useState } from "../preact.js";
import { amount, byScarcity, count, number, scarcity } from "../format.js";
import { path } from "../http.js";
import { useLive, useObject } from "../live.js";
import { refine, to } from "../route.js";
import {
  Badge, Bar, Choice, Facts, Filter, Head, Loading, Note, Nothing, Panel, Rows, Table, Tiles, Time, Trouble,
} from "../ui.js";
import { Capacity } from "./history.js";

const nameOf = ({ name }) => name;

/** How soon somebody should look: the lower, the sooner. */
const URGENCY = { Refused: 0, Quarantined: 0, Lost: 1, Stale: 2, Connecting: 3, Unreached: 6, Ready: 5 };

function urgency(cluster, claim) {
  const link = URGENCY[cluster.state] ?? 4;
  if (link < 4) return link;
  if (claim && claim.ready.status !== "True") return 4;
  return cluster.cordoned ? 4.5 : link;
}

function trouble(cluster, claim) {
  if (cluster.reason) return cluster.reason;
  if (claim && claim.ready.status !== "True") return `${claim.ready.reason}: ${claim.ready.message}`;
  return "";
}

export function Fleet({ query }) {
  const clusters = useLive("clusters", nameOf);
  const claims = useLive("claims", nameOf);
  const set = (more) => refine(["fleet"], { ...query, ...more });
  const all = useMemo(() => {
    const rows = [...clusters.rows.values()].map((cluster) => {
      const claim = cluster.claim && claims.rows.get(cluster.claim);
      return { cluster, claim, urgency: urgency(cluster, claim), words: trouble(cluster, claim) };
    });
    return rows.sort((a, b) => a.urgency - b.urgency || (a.cluster.name < b.cluster.name ? -1 : 1));
  }, [clusters.rows, clusters.version, claims.rows, claims.version]);
  const text = (query.q ?? "").toLowerCase();
  const rows = all.filter(
    (row) =>
      (query.show !== "warnings" || row.urgency < 5) &&
      (!text || [row.cluster.name, row.cluster.state, row.words].some((one) => one.toLowerCase().includes(text))),
  );
  return html`
    <${Head} title="Fleet">
      <${Choice} label="Which clusters" value=${query.show ?? ""} options=${[["", "All"], ["warnings", "Warnings"]]}
        onChange=${(show) => set({ show })} />
      <${Filter} label="Filter clusters" value=${query.q ?? ""} onInput=${(q) => set({ q })} />
    <//>
    ${clusters.error && html`<${Trouble} error=${clusters.error} />`}
    ${!clusters.isKnown && !clusters.error && html`<${Loading} />`}
    ${clusters.isKnown && html`<${Sums} all=${all} />`}
    ${clusters.isKnown && rows.length === 0 && html`<${Nothing}>${
      all.length ? "No cluster is like that." : html`No cluster is joined yet: <code>fedq cluster join NAME</code> joins one.`
    }<//>`}
    ${rows.length > 0 && html`<${Rows} label="Clusters" rows=${rows} keyOf=${(row) => row.cluster.name} height=${60} columns=${COLUMNS}
      toneOf=${(row) => (row.urgency < 3 ? "bad" : row.urgency < 5 ? "warn" : undefined)} />`}
  `;
}

function Sums({ all }) {
  const sums = useMemo(() => {
    const nodes = { total: 0, usable: 0 };
    const resources = new Map();
    let ready = 0;
    for (const { cluster } of all) {
      ready += cluster.state === "Ready" ? 1 : 0;
      nodes.total += cluster.nodes.total;
      nodes.usable += cluster.nodes.usable;
      for (const [resource, has] of Object.entries(cluster.capacity)) {
        const sum = resources.get(resource) ?? { has: 0, assigned: 0 };
        sum.has += number(has);
        resources.set(resource, sum);
      }
      for (const flavor of cluster.flavors) {
        for (const [resource, assigned] of Object.entries(flavor.assigned)) {
          const sum = resources.get(resource) ?? { has: 0, assigned: 0 };
          sum.assigned += number(assigned);
          resources.set(resource, sum);
        }
      }
    }
    return { nodes, resources, ready };
  }, [all]);
  const warnings = all.filter(({ urgency }) => urgency < 5).length;
  const resources = [...sums.resources].sort(([a], [b]) => byScarcity(a, b)).slice(0, 4);
  return html`<${Tiles} items=${[
    {
      name: "Clusters ready", value: html`${amount(sums.ready, "")}<small>/${amount(all.length, "")}</small>`, tone: warnings ? "warn" : "ok",
      detail: warnings ? count(warnings, "warning") : "no warnings",
    },
    {
      name: "Usable nodes", value: html`${amount(sums.nodes.usable, "")}<small>/${amount(sums.nodes.total, "")}</small>`,
      detail: sums.nodes.usable < sums.nodes.total ? `${amount(sums.nodes.total - sums.nodes.usable, "")} not usable` : "all of them",
    },
    ...resources.map(([resource, { has, assigned }]) => ({
      name: `${resource} assigned`, value: html`${amount(assigned, resource)}<small>/${amount(has, resource)}</small>`,
      detail: has ? `${Math.round((100 * assigned) / has)} %` : "none there",
      bar: html`<${Bar} total=${has} parts=${[{ value: assigned, tone: "s0" }]} label=${`${amount(assigned, resource)} of ${amount(has, resource)} ${resource} assigned`} />`,
    })),
  ]} />`;
}

const COLUMNS = [
  {
    name: "Cluster", isName: true, className: "name",
    cell: ({ cluster, words }) => html`<a href=${to(["fleet", cluster.name])}>${cluster.name}</a>
      ${words ? html`<span class="sub" title=${words}>${words}</span>` : html`<span class="sub">${cluster.server ?? cluster.source}</span>`}`,
  },
  {
    name: "State", className: "state",
    cell: ({ cluster, claim }) => html`<span class="stack"><${Badge} word=${cluster.state} title=${cluster.reason} />
      ${cluster.cordoned && html`<${Badge} word="cordoned" />`}
      ${!cluster.cordoned && claim && claim.ready.status !== "True" && html`<${Badge} word=${claim.ready.reason} tone="warn" title=${claim.ready.message} />`}
      ${cluster.since && html`<span class="sub"><${Time} at=${cluster.since} /></span>`}</span>`,
  },
  { name: "Nodes", className: "number wide", cell: ({ cluster }) => html`${cluster.nodes.usable}<span class="muted">/${cluster.nodes.total}</span>` },
  { name: "Assigned", className: "grow", cell: ({ cluster }) => html`<${Flavors} flavors=${cluster.flavors} />` },
  {
    name: "Kueue", className: "wide small",
    cell: ({ cluster }) => html`<span class="stack"><span>${cluster.kueueVersion ?? "–"}</span><span class="sub">${cluster.kubernetesVersion}</span></span>`,
  },
];

/** Of each flavor the resource that is scarcest as a rule; those that are full first. */
function Flavors({ flavors }) {
  const shown = useMemo(() => {
    const all = flavors.map((flavor) => {
      const resource = Object.keys(flavor.capacity).sort(byScarcity)[0];
      return { flavor, resource, has: number(flavor.capacity[resource]), assigned: number(flavor.assigned[resource]) };
    });
    return all
      .filter(({ has, assigned }) => has || assigned)
      .sort((a, b) => scarcity(a.resource) - scarcity(b.resource) || b.has - a.has);
  }, [flavors]);
  return html`<span class="flavors">
    ${shown.slice(0, 3).map(({ flavor, resource, has, assigned }) => {
      const words = `${flavor.assigned[resource] ?? "0"} of ${flavor.capacity[resource]} ${resource} of ${flavor.name} assigned`;
      return html`<span class="flavor"><span class="flavor-name"><b>${flavor.name}</b> <span>${flavor.assigned[resource] ?? "0"}/${flavor.capacity[resource]} ${resource}</span></span>
        <${Bar} total=${has} parts=${[{ value: assigned, tone: assigned > has ? "over" : "s0" }]} label=${words} /></span>`;
    })}
    ${shown.length > 3 && html`<span class="muted">+${shown.length - 3}</span>`}
  </span>`;
}

export function Cluster({ parts: [name] }) {
  const news = useLive("clusters", nameOf).rows.get(name);
  const { object, error, reload } = useObject(path(["clusters", name]), { again: news });
  const cluster = object && news ? { ...object, ...news } : object;
  const head = html`<${Head} title=${name} crumb=${{ href: to(["fleet"]), text: "Fleet" }}>
    ${cluster && html`<${Badge} word=${cluster.state} />`}
    ${cluster?.cordoned && html`<${Badge} word="cordoned" />`}
    ${cluster?.claim && html`<a class="button" href=${to(["claims", cluster.claim])}>Claim</a>`}
  <//>`;
  if (error && !cluster) return html`${head}<${Trouble} error=${error} retry=${reload} />`;
  if (!cluster) return html`${head}<${Loading} />`;
  return html`${head}
    ${error && html`<${Trouble} error=${error} retry=${reload} />`}
    ${cluster.reason && html`<${Note} tone=${cluster.state === "Ready" ? "info" : "bad"}>${cluster.reason}${cluster.since && html`, since <${Time} at=${cluster.since} />`}<//>`}
    ${cluster.foundIdentity && html`<${Note} tone="warn">If another cluster is meant to answer there now: <code>fedq cluster confirm ${name}</code><//>`}
    <${Facts} items=${[
      ["Nodes", `${cluster.nodes.usable} usable of ${cluster.nodes.total}`],
      ["Server", cluster.server],
      ["Kubernetes", cluster.kubernetesVersion],
      ["Kueue", cluster.kueueVersion],
      ["AppWrappers", cluster.appWrappers],
      ["Known from", cluster.source],
      ["Joined", cluster.joined && html`<${Time} at=${cluster.joined} />`],
      ["Last seen", cluster.lastSeen && html`<${Time} at=${cluster.lastSeen} />`],
      ["Credential ends", cluster.credentialExpires && html`<${Time} at=${cluster.credentialExpires} />`],
    ]} />
    <${Panel} title="What it has" id="has">
      ${cluster.flavors.length === 0 ? html`<${Nothing}>Its capacity is not known yet.<//>` : html`<${Shares} flavors=${cluster.flavors} />`}
      ${Object.keys(cluster.foreign).length > 0 &&
      html`<p class="below">Quota there that is not fedq's: ${Object.entries(cluster.foreign).map(([resource, held]) => `${held} ${resource}`).join(", ")}</p>`}
    <//>
    <${Capacity} cluster=${name} news=${news?.claim && JSON.stringify(news.flavors)} />
    <${Findings} cluster=${name} />`;
}

/** By flavor and resource: what there is, what is assigned and what is left. */
export function Shares({ flavors }) {
  const rows = flavors.flatMap((flavor) =>
    Object.keys(flavor.capacity).sort(byScarcity).map((resource, index) => ({ flavor, resource, isFirst: index === 0 })),
  );
  return html`<${Table} label="Capacity by flavor" rows=${rows} columns=${[
    { name: "Flavor", isName: true, cell: ({ flavor, isFirst }) => (isFirst ? flavor.name : html`<span class="hidden">${flavor.name}</span>`) },
    { name: "Resource", cell: ({ resource }) => resource },
    { name: "Has", className: "number", cell: ({ flavor, resource }) => flavor.capacity[resource] },
    { name: "Assigned", className: "number", cell: ({ flavor, resource }) => flavor.assigned[resource] ?? "0" },
    { name: "Left", className: "number", cell: ({ flavor, resource }) => flavor.unassigned[resource] ?? "0" },
    {
      name: "", className: "grow wide",
      cell: ({ flavor, resource }) => {
        const [has, assigned] = [number(flavor.capacity[resource]), number(flavor.assigned[resource])];
        return html`<${Bar} total=${has} parts=${[{ value: assigned, tone: assigned > has ? "over" : "s0" }]} label=${`${assigned} of ${has} assigned`} />`;
      },
    },
  ]} />`;
}

/** The server gives up sooner, and says what it found until then. */
const CHECKED = 45_000;

/** Asks the cluster only when somebody wants to know: it is many requests. */
function Findings({ cluster }) {
  const [asked, set] = useState(0);
  const ask = () => set((count) => count + 1);
  const { object, error } = useObject(asked ? path(["clusters", cluster, "check"]) : null, { again: asked, patience: CHECKED });
  return html`<${Panel} title="Check" id="check" aside=${html`<button type="button" onClick=${ask}>${asked ? "Check again" : "Check now"}</button>`}>
    ${!asked && html`<${Nothing}>Looks at the cluster as <code>fedq check ${cluster}</code> does.<//>`}
    ${error && html`<${Trouble} error=${error} />`}
    ${asked > 0 && !object && !error && html`<${Loading} />`}
    ${object && html`<${Table} label="Findings" rows=${object.items} columns=${[
      { name: "What", isName: true, cell: ({ name }) => name },
      { name: "Outcome", cell: ({ outcome }) => html`<${Badge} word=${outcome} />` },
      { name: "Found", className: "grow", cell: ({ message, next }) => html`${message}${next && html`<span class="sub">${next}</span>`}` },
    ]} />`}
  <//>`;
}
