// Queues: the quota of each, what clusters contribute to it, and why it is what it is.

import { html, useMemo } from "../preact.js";
import { amount, byScarcity, number } from "../format.js";
import { path } from "../http.js";
import { useLive, useObject } from "../live.js";
import { refine, to } from "../route.js";
import { Badge, Bar, Facts, Filter, Head, Loading, Note, Nothing, Panel, Rows, Table, Trouble, useSeries } from "../ui.js";
import { QuotaHistory } from "./history.js";

const nameOf = ({ name }) => name;

const cellKey = ({ flavor, resource }) => JSON.stringify([flavor, resource]);

function reserved(cell) {
  return cell.terms.reduce((sum, term) => sum + number(term.reserved), 0);
}

/** What keeps the queue from what it should have, in a few words. */
function troubles(queue) {
  const all = [];
  if (queue.untouched) all.push("left alone");
  if (queue.conflicts?.length) all.push("conflict");
  if (queue.problems?.length) all.push("problem");
  if (queue.cells.some((cell) => cell.terms.some(({ requested, effective }) => number(effective) < number(requested)))) all.push("short");
  return all;
}

export function Queues({ query }) {
  const queues = useLive("queues", nameOf);
  const text = (query.q ?? "").toLowerCase();
  const rows = useMemo(
    () =>
      [...queues.rows.values()]
        .filter(({ name, cohort = "" }) => !text || name.toLowerCase().includes(text) || cohort.toLowerCase().includes(text))
        .map((queue) => ({ queue, troubles: troubles(queue) }))
        .sort((a, b) => Math.sign(b.troubles.length) - Math.sign(a.troubles.length) || (a.queue.name < b.queue.name ? -1 : 1)),
    [queues.rows, queues.version, text],
  );
  return html`
    <${Head} title="Queues">
      <${Filter} label="Filter queues" value=${query.q ?? ""} onInput=${(q) => refine(["queues"], { ...query, q })} />
    <//>
    ${queues.error && html`<${Trouble} error=${queues.error} />`}
    ${!queues.isKnown && !queues.error && html`<${Loading} />`}
    ${queues.isKnown && rows.length === 0 && html`<${Nothing}>${queues.rows.size ? "No queue is like that." : "No ClusterQueue of the hub has quota of a claim yet."}<//>`}
    ${rows.length > 0 && html`<${Rows} label="Queues" rows=${rows} keyOf=${({ queue }) => queue.name} height=${60} columns=${COLUMNS}
      toneOf=${({ troubles }) => (troubles.length ? "warn" : undefined)} />`}`;
}

const COLUMNS = [
  {
    name: "Queue", isName: true, className: "name",
    cell: ({ queue }) => html`<a href=${to(["queues", queue.name])}>${queue.name}</a><span class="sub">${queue.cohort ? `cohort ${queue.cohort}` : "no cohort"}</span>`,
  },
  {
    name: "State", className: "state",
    cell: ({ troubles }) => (troubles.length ? html`<span class="stack">${troubles.map((word) => html`<${Badge} word=${word} tone="warn" />`)}</span>` : html`<${Badge} word="as claimed" tone="ok" />`),
  },
  { name: "Quota, reserved", className: "grow", cell: ({ queue }) => html`<${Cells} cells=${queue.cells} />` },
  {
    name: "Clusters", className: "number wide",
    cell: ({ queue }) => new Set(queue.cells.flatMap((cell) => cell.terms.map(({ cluster }) => cluster))).size,
  },
];

function Cells({ cells }) {
  const shown = [...cells].sort((a, b) => byScarcity(a.resource, b.resource) || number(b.nominal) - number(a.nominal));
  return html`<span class="flavors">${shown.slice(0, 3).map((cell) => {
    const [has, used] = [number(cell.nominal), reserved(cell)];
    const words = `${amount(used, cell.resource)} of ${cell.nominal} ${cell.resource} of ${cell.flavor} reserved`;
    return html`<span class="flavor"><span class="flavor-name"><b>${cell.flavor}</b> <span>${amount(used, cell.resource)}/${cell.nominal} ${cell.resource}</span></span>
      <${Bar} total=${has} parts=${[{ value: used, tone: used > has ? "over" : "s1" }]} label=${words} /></span>`;
  })}${shown.length > 3 && html`<span class="muted">+${shown.length - 3}</span>`}</span>`;
}

export function Queue({ parts: [name], query }) {
  const news = useLive("queues", nameOf).rows.get(name);
  // The stream tells all that is shown of it; without it, the server says why.
  const { object, error, reload } = useObject(news ? null : path(["queues", name]));
  const head = html`<${Head} title=${name} crumb=${{ href: to(["queues"]), text: "Queues" }} />`;
  const queue = news ?? object?.queue;
  const clusters = (queue?.cells ?? []).flatMap((cell) => cell.terms.map(({ cluster }) => cluster));
  const series = useSeries(clusters);
  if (error && !queue) return html`${head}<${Trouble} error=${error} retry=${reload} />`;
  if (!queue) return html`${head}<${Loading} />`;
  const given = JSON.stringify(queue.cells.map(({ terms }) => terms.map(({ cluster, requested, effective, term }) => [cluster, requested, effective, term])));
  const cells = [...queue.cells].sort((a, b) => byScarcity(a.resource, b.resource) || (a.flavor < b.flavor ? -1 : 1));
  const chosen = cells.find((cell) => cell.flavor === query.flavor && cell.resource === query.resource) ?? cells[0];
  return html`${head}
    ${error && html`<${Trouble} error=${error} retry=${reload} />`}
    ${queue.untouched && html`<${Note} tone="warn">fedq leaves this queue alone: ${queue.untouched}<//>`}
    ${queue.conflicts?.map(({ cluster, message, next }) => html`<${Note} tone="warn"><strong>${cluster ?? "the hub"}</strong>: ${message}<pre>${next}</pre><//>`)}
    ${queue.problems?.map(({ cluster, reason, message }) => html`<${Note} tone="warn"><strong>${cluster}</strong>, ${reason}: ${message}<//>`)}
    <${Facts} items=${[["Cohort", queue.cohort], ["Its quota stands in", queue.quotaCohort]]} />
    <${Pending} name=${name} news=${news} />
    ${cells.length === 0 ? html`<${Nothing}>No claim gives it anything.<//>` : html`
    <${Panel} title="Quota by cluster" id="quota">
      <ul class="cells">${cells.map((cell) => html`<li key=${cellKey(cell)}>
        <button type="button" class="cell" aria-pressed=${cell === chosen} onClick=${() => refine(["queues", name], { flavor: cell.flavor, resource: cell.resource })}>
          <span class="flavor-name"><span><b>${cell.flavor}</b> ${cell.resource}</span>
            <span>${cell.nominal !== cell.target ? `${cell.nominal} → ${cell.target}` : cell.nominal}</span></span>
          <${Stacked} cell=${cell} series=${series} />
        </button></li>`)}
      </ul>
      <p class="legend">${[...series].map(([cluster, tone]) => html`<span key=${cluster}><i class=${`dot ${tone}`}></i><a href=${to(["fleet", cluster])}>${cluster}</a></span>`)}
        ${cells.some(({ base }) => number(base)) && html`<span><i class="dot base"></i>base</span>`}</p>
    <//>
    <${Explained} cell=${chosen} />
    <${QuotaHistory} queue=${name} cell=${chosen} series=${series} news=${given} />
`}`;
}

function Stacked({ cell, series }) {
  const parts = cell.terms.map(({ cluster, term }) => ({ value: number(term), tone: series.get(cluster), title: `${cluster}: ${term}` }));
  if (number(cell.base)) parts.unshift({ value: number(cell.base), tone: "base", title: `base: ${cell.base}` });
  const words = [...(number(cell.base) ? [`base ${cell.base}`] : []), ...cell.terms.map(({ cluster, term }) => `${cluster} ${term}`)].join(", ");
  return html`<${Bar} total=${Math.max(number(cell.nominal), number(cell.target))} parts=${parts} label=${`${cell.flavor} ${cell.resource}: ${words}`} />`;
}

/** Why one cell is what it is: base and what each cluster adds. */
function Explained({ cell }) {
  const used = reserved(cell);
  return html`<${Panel} title=${`Why ${cell.flavor} ${cell.resource} is ${cell.nominal}`} id="why"
      aside=${number(cell.target) !== number(cell.nominal) && html`<${Badge} word=${`on its way to ${cell.target}`} tone="warn" />`}>
    <p class="sum">${cell.base} base${cell.terms.map(({ cluster, term }) => html` + ${term} <span class="muted">${cluster}</span>`)} = <b>${cell.target}</b>; ${amount(used, cell.resource)} reserved</p>
    <${Table} label="What each cluster contributes" rows=${cell.terms} columns=${[
      { name: "Cluster", isName: true, cell: ({ cluster }) => html`<a href=${to(["fleet", cluster])}>${cluster}</a>` },
      { name: "Asked", className: "number", cell: ({ requested }) => requested },
      { name: "Gets", className: "number", cell: ({ effective }) => effective },
      { name: "On the cluster", className: "number wide", cell: ({ worker }) => worker ?? "no queue" },
      { name: "Reserved", className: "number", cell: ({ reserved }) => reserved },
      { name: "Counts", className: "number", cell: ({ term }) => term },
      { name: "Why", className: "grow", cell: ({ reason }) => html`<${Badge} word=${reason} tone=${reason === "Assigned" ? "ok" : "warn"} />` },
    ]} />
  <//>`;
}

/** What Kueue on the hub counts, as far as the person may read the queue there. */
function Pending({ name, news }) {
  const { object, error } = useObject(`hub/proxy/apis/kueue.x-k8s.io/v1beta2/clusterqueues/${encodeURIComponent(name)}`, { again: news, every: 30_000 });
  if (error || !object?.status) return null;
  const { pendingWorkloads = 0, reservingWorkloads = 0, admittedWorkloads = 0 } = object.status;
  return html`<${Facts} items=${[["Pending on the hub", pendingWorkloads], ["Reserving", reservingWorkloads], ["Admitted", admittedWorkloads]]} />`;
}
