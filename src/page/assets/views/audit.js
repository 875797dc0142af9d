// Who did what through fedqd.

import { html, useEffect, useState } from "../preact.js";
import { path } from "../http.js";
import { usePages } from "../live.js";
import { refine, to } from "../route.js";
import { Badge, Choice, Filter, Head, Loading, Nothing, Table, Time, Trouble } from "../ui.js";

const SPANS = [["", "All"], ["1", "Hour"], ["24", "Day"], ["168", "Week"]];

export function Audit({ query }) {
  // Fixed when it is chosen: pages of a list that moves along would not fit together.
  const [since] = useState(() => new Map(SPANS.map(([hours]) => [hours, hours && new Date(Date.now() - hours * 3_600_000).toISOString()])));
  const pages = usePages((next) =>
    path(["audit"], { limit: 100, continue: next, who: query.who, object: query.object, since: since.get(query.span ?? "") }),
  );
  const set = (more) => refine(["audit"], { ...query, ...more });
  return html`
    <${Head} title="Audit">
      <${Choice} label="How far back" value=${query.span ?? ""} options=${SPANS} onChange=${(span) => set({ span })} />
      <${Exactly} label="Who" value=${query.who ?? ""} set=${(who) => set({ who })} />
      <${Exactly} label="Object" placeholder="Object: clusters/oregon" value=${query.object ?? ""} set=${(object) => set({ object })} />
      <button type="button" onClick=${pages.restart} disabled=${pages.isLoading}>Refresh</button>
    <//>
    ${pages.error && html`<${Trouble} error=${pages.error} retry=${pages.more} />`}
    ${!pages.isBegun && !pages.error && html`<${Loading} />`}
    ${pages.isBegun && pages.items.length === 0 && html`<${Nothing}>Nothing of that kind is written down.<//>`}
    ${pages.items.length > 0 && html`<section class="panel"><${Table} label="Audit" rows=${pages.items} columns=${COLUMNS(set)} /></section>`}
    ${pages.hasMore && html`<button type="button" onClick=${pages.more} disabled=${pages.isLoading}>Older</button>`}`;
}

/** The server compares whole names, so it is asked once one is finished. */
function Exactly({ label, placeholder, value, set }) {
  const [typed, type] = useState(value);
  useEffect(() => type(value), [value]);
  return html`<form onSubmit=${(event) => {
    event.preventDefault();
    set(typed.trim());
  }} onFocusOut=${() => typed.trim() !== value && set(typed.trim())}>
    <${Filter} label=${label} placeholder=${placeholder ?? label} value=${typed} onInput=${(text) => {
      type(text);
      if (text === "") set("");
    }} />
  </form>`;
}

const COLUMNS = (set) => [
  { name: "When", className: "time", cell: ({ at }) => html`<${Time} at=${at} />` },
  {
    name: "Who", isName: true,
    cell: ({ who, through }) => html`<button type="button" class="plainly" title="Only what this one did" onClick=${() => set({ who })}>${who}</button>${through && html`<span class="sub">through ${through}</span>`}`,
  },
  { name: "Did", cell: ({ verb }) => verb },
  { name: "To", cell: ({ object }) => html`<${Linked} object=${object} />` },
  { name: "Outcome", className: "outcome", cell: ({ outcome }) => (outcome === "ok" ? html`<${Badge} word="ok" />` : html`<span class="refused">${outcome}</span>`) },
  {
    name: "What changed", className: "grow",
    cell: ({ detail }) => detail && html`<details><summary>${summary(detail)}</summary><pre>${JSON.stringify(detail, null, 2)}</pre></details>`,
  },
];

function summary(detail) {
  const text = Array.isArray(detail.changes)
    ? detail.changes.map(({ queue, flavor, resource, before, after }) => `${queue} ${flavor} ${resource} ${before} → ${after}`).join(", ")
    : Object.entries(detail).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
  return text.length < 120 ? text : `${text.slice(0, 117)}…`;
}

const VIEWS = { clusters: "fleet", clusterresourceclaims: "claims", claims: "claims", clusterqueues: "queues", tasks: "tasks" };

function Linked({ object }) {
  const [kind, name, ...more] = object.split("/");
  const view = VIEWS[kind];
  return view && name && more.length < 2 ? html`<a href=${to([view, name])}>${object}</a>` : object;
}
