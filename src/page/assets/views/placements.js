// Placements: which clusters each chose, and what became of the others.

import { html, useMemo } from "../preact.js";
import { path } from "../http.js";
import { useLive, useObject } from "../live.js";
import { refine, to } from "../route.js";
import { Badge, Choice, Facts, Filter, Head, Loading, Note, Nothing, Panel, Rows, Table, Time, Trouble } from "../ui.js";

const keyOf = ({ namespace, name }) => `${namespace}/${name}`;

function satisfied({ conditions }) {
  return conditions.find(({ type }) => type === "PlacementSatisfied");
}

export function Placements({ query }) {
  const placements = useLive("placements", keyOf);
  const text = (query.q ?? "").toLowerCase();
  const rows = useMemo(
    () => [...placements.rows.values()]
      .filter((one) => !text || keyOf(one).toLowerCase().includes(text))
      .sort((a, b) => (satisfied(a)?.status ?? false) - (satisfied(b)?.status ?? false) || (keyOf(a) < keyOf(b) ? -1 : 1)),
    [placements.rows, placements.version, text],
  );
  return html`
    <${Head} title="Placements">
      <${Filter} label="Filter placements" value=${query.q ?? ""} onInput=${(q) => refine(["placements"], { ...query, q })} />
    <//>
    ${placements.error && html`<${Trouble} error=${placements.error} />`}
    ${!placements.isKnown && !placements.error && html`<${Loading} />`}
    ${placements.isKnown && rows.length === 0 && html`<${Nothing}>${placements.rows.size ? "No Placement is like that." : "The hub has no Placements, or fedqd does not follow them (placement.enabled)."}<//>`}
    ${rows.length > 0 && html`<${Rows} label="Placements" rows=${rows} keyOf=${keyOf} height=${60} columns=${COLUMNS}
      toneOf=${(one) => (satisfied(one)?.status ? undefined : "warn")} />`}`;
}

const COLUMNS = [
  {
    name: "Placement", isName: true, className: "name",
    cell: ({ namespace, name }) => html`<a href=${to(["placements", namespace, name])}>${name}</a><span class="sub">${namespace}</span>`,
  },
  {
    name: "State", className: "state",
    cell: (one) => {
      const condition = satisfied(one);
      return html`<${Badge} word=${condition?.reason ?? "undecided"} tone=${condition?.status ? "ok" : "warn"} title=${condition?.message} />`;
    },
  },
  { name: "Chose", className: "grow", cell: ({ clusters }) => html`${clusters.join(", ") || html`<span class="muted">no cluster</span>`}<span class="sub">${clusters.length} of them</span>` },
  { name: "Decided by", className: "wide small", cell: ({ decidedBy }) => decidedBy },
  { name: "Created", className: "wide time", cell: ({ created }) => html`<${Time} at=${created} />` },
];

const OUTCOMES = [["", "All"], ["Chosen", "Chosen"], ["Filtered", "Filtered"], ["others", "Others"]];

export function Placement({ parts: [namespace, name], query }) {
  const news = useLive("placements", keyOf).rows.get(`${namespace}/${name}`);
  const { object, error, reload } = useObject(path(["placements", namespace, name, "explanation"]), { again: news });
  const head = html`<${Head} title=${name} crumb=${{ href: to(["placements"]), text: `Placements / ${namespace}` }}>
    <button type="button" onClick=${reload}>Refresh</button><//>`;
  if (error && !object) return html`${head}<${Trouble} error=${error} retry=${reload} />`;
  if (!object) return html`${head}<${Loading} />`;
  const isOf = ({ outcome }) => !query.outcome || outcome === query.outcome || (query.outcome === "others" && outcome !== "Chosen" && outcome !== "Filtered");
  const text = (query.q ?? "").toLowerCase();
  const rows = object.clusters.filter((one) => isOf(one) && (!text || `${one.cluster} ${one.message}`.toLowerCase().includes(text)));
  const set = (more) => refine(["placements", namespace, name], { ...query, ...more });
  const scores = object.prioritizers.map(({ name, weight }, index) => ({
    name: `${name} ×${weight}`, className: "number score wide", cell: ({ scores }) => scores[index] ?? html`<span class="muted">–</span>`,
  }));
  return html`${head}
    ${error && html`<${Trouble} error=${error} retry=${reload} />`}
    ${object.warning && html`<${Note} tone="warn">${object.warning}<//>`}
    ${news?.failures?.map((failure) => html`<${Note} tone="bad">${failure}<//>`)}
    <${Facts} items=${[
      ["Decided by", object.decidedBy],
      ["Chosen now", object.chosen.join(", ") || "none"],
      ["In its decisions", object.decided.join(", ") || "none"],
    ]} />
    ${object.conditions.length > 0 && html`<${Panel} title="Conditions" id="conditions"><${Table} label="Conditions" rows=${object.conditions} columns=${[
      { name: "Type", isName: true, cell: ({ type }) => type },
      { name: "Status", cell: ({ type, status }) => html`<${Badge} word=${status ? "True" : "False"} tone=${status === (type !== "PlacementMisconfigured") ? "ok" : "warn"} />` },
      { name: "Reason", cell: ({ reason }) => reason },
      { name: "Message", className: "grow", cell: ({ message }) => message },
    ]} /><//>`}
    <div class="actions above">
      <${Choice} label="Outcome" value=${query.outcome ?? ""} options=${OUTCOMES} onChange=${(outcome) => set({ outcome })} />
      <${Filter} label="Filter clusters" value=${query.q ?? ""} onInput=${(q) => set({ q })} />
    </div>
    ${rows.length === 0 ? html`<${Nothing}>No cluster is like that.<//>` : html`<${Rows} label="Clusters" rows=${rows} keyOf=${({ cluster }) => cluster} height=${44} columns=${[
      { name: "Cluster", isName: true, className: "name", cell: ({ cluster }) => html`<a href=${to(["fleet", cluster])}>${cluster}</a>` },
      { name: "Outcome", className: "state", cell: ({ outcome }) => html`<${Badge} word=${outcome} tone=${outcome === "Chosen" ? "ok" : "muted"} />` },
      ...scores,
      { name: "Total", className: "number", cell: ({ total }) => total ?? html`<span class="muted">–</span>` },
      { name: "Why", className: "grow", cell: ({ message }) => html`<span title=${message}>${message}</span>` },
    ]} />`}`;
}
