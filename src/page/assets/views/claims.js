// Claims: what they ask for, what they get and why.

import { html, useEffect, useMemo, useRef, useState } from "../preact.js";
import { byScarcity, number } from "../format.js";
import { path } from "../http.js";
import { useLive, useObject, usePages } from "../live.js";
import { changes } from "../merge.js";
import { refine, to } from "../route.js";
import { Badge, Bar, Facts, Filter, Head, Loading, Note, Nothing, Panel, Rows, Table, Time, Trouble } from "../ui.js";
import { Edit } from "./edit.js";
import { Shares } from "./fleet.js";

const nameOf = ({ name }) => name;

function words(quantities) {
  const all = Object.entries(quantities).sort(([a], [b]) => byScarcity(a, b));
  return all.map(([resource, amount]) => `${amount} ${resource}`).join(", ");
}

export function Claims({ query }) {
  const claims = useLive("claims", nameOf);
  const text = (query.q ?? "").toLowerCase();
  const rows = useMemo(() => {
    const rank = ({ ready }) => (ready.status === "False" ? 0 : ready.status === "Unknown" ? 1 : 2);
    return [...claims.rows.values()]
      .filter((claim) => !text || [claim.name, claim.cluster, claim.ready.reason, ...claim.assignments.map(({ queue }) => queue)]
        .some((one) => one.toLowerCase().includes(text)))
      .sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  }, [claims.rows, claims.version, text]);
  return html`
    <${Head} title="Claims">
      <${Filter} label="Filter claims" value=${query.q ?? ""} onInput=${(q) => refine(["claims"], { ...query, q })} />
    <//>
    ${claims.error && html`<${Trouble} error=${claims.error} />`}
    ${!claims.isKnown && !claims.error && html`<${Loading} />`}
    ${claims.isKnown && rows.length === 0 && html`<${Nothing}>${claims.rows.size ? "No claim is like that." : "There are no claims yet: each cluster that is joined gets one."}<//>`}
    ${rows.length > 0 && html`<${Rows} label="Claims" rows=${rows} keyOf=${nameOf} height=${60} columns=${COLUMNS}
      toneOf=${({ ready }) => (ready.status === "True" ? undefined : "warn")} />`}`;
}

const COLUMNS = [
  {
    name: "Claim", isName: true, className: "name",
    cell: ({ name, cluster }) => html`<a href=${to(["claims", name])}>${name}</a><span class="sub">${cluster}</span>`,
  },
  {
    name: "Ready", className: "state",
    cell: ({ ready }) => html`<${Badge} word=${ready.status === "True" ? "Ready" : ready.reason} tone=${ready.status === "True" ? "ok" : "warn"} title=${ready.message} />`,
  },
  {
    name: "Gets", className: "grow",
    cell: ({ assignments }) => html`${[...new Set(assignments.map(({ queue }) => queue))].join(", ") || html`<span class="muted">nothing is assigned</span>`}
      <span class="sub">${assignments.map(({ queue, flavor, effective }) => `${queue} ${flavor}: ${words(effective) || "0"}`).join(" · ")}</span>`,
  },
  { name: "Short", className: "wide small", cell: ({ short }) => words(short) || html`<span class="muted">–</span>` },
  { name: "Edits", className: "number wide", cell: ({ generation }) => generation },
];

export function Claim({ parts: [name, edit] }) {
  const news = useLive("claims", nameOf).rows.get(name);
  const { object, error, reload } = useObject(path(["claims", name]), { again: news });
  // What was typed stays, also where the claim went meanwhile.
  const edited = useRef(null);
  if (object) edited.current = object;
  const claim = edit === "edit" ? edited.current : object;
  const head = html`<${Head} title=${name} crumb=${{ href: to(["claims"]), text: "Claims" }}>
    ${claim?.state && html`<${Badge} word=${claim.state.ready.status === "True" ? "Ready" : claim.state.ready.reason}
      tone=${claim.state.ready.status === "True" ? "ok" : "warn"} />`}
    ${claim && edit !== "edit" && html`<a class="button" href=${to(["claims", name, "edit"])}>Edit</a>`}
  <//>`;
  if (error && !claim) return html`${head}<${Trouble} error=${error} retry=${reload} />`;
  if (!claim) return html`${head}<${Loading} />`;
  if (edit === "edit") {
    return html`${head}${error && html`<${Trouble} error=${error} retry=${reload} />`}<${Edit} key=${name} detail=${claim} done=${() => {
      location.hash = to(["claims", name]);
    }} />`;
  }
  const { state } = claim;
  return html`${head}
    ${error && html`<${Trouble} error=${error} retry=${reload} />`}
    ${state && state.ready.status !== "True" && html`<${Note} tone="warn"><strong>${state.ready.reason}</strong>: ${state.ready.message}<//>`}
    ${state?.notes?.map(({ kind, reason, message }) => html`<${Note} tone="warn"><strong>${kind}</strong> (${reason}): ${message}<//>`)}
    <${Facts} items=${[
      ["Cluster", html`<a href=${to(["fleet", claim.spec.clusterName])}>${claim.spec.clusterName}</a>`],
      ["Edits", claim.generation],
      ["Created", state?.created && html`<${Time} at=${state.created} />`],
      ["Caps", state && (words(Object.fromEntries(state.nominal.filter(({ cap }) => cap).map(({ resource, amount }) => [resource, amount]))) || "none")],
      ["Follow capacity", state && state.nominal.filter(({ cap }) => !cap).map(({ resource, amount }) => `${amount} ${resource}`).join(", ")],
    ]} />
    <${Panel} title="What it asks for and gets" id="asks">
      ${state ? html`<${Assignments} state=${state} />` : html`<${Nothing}>fedqd has not looked at it yet.<//>`}
    <//>
    <${Panel} title=${`What ${claim.spec.clusterName} has`} id="has">
      ${claim.flavors.length ? html`<${Shares} flavors=${claim.flavors} />` : html`<${Nothing}>Its capacity is not known yet.<//>`}
    <//>
    ${claim.holders.length > 0 && html`<${Panel} title="Who holds what of these queues" id="holders"><${Holders} cells=${claim.holders} /><//>`}
    <${History} name=${name} generation=${claim.generation} />`;
}

function Assignments({ state }) {
  const rows = state.assignments.flatMap((assignment) =>
    Object.keys(assignment.requested).sort(byScarcity).map((resource, index) => ({ assignment, resource, isFirst: index === 0 })),
  );
  if (rows.length === 0) return html`<${Nothing}>Nothing is assigned. Edit the claim to give queues a share.<//>`;
  return html`<${Table} label="Assignments" rows=${rows} columns=${[
    {
      name: "Queue", isName: true,
      cell: ({ assignment, isFirst }) => html`<a class=${isFirst ? "" : "muted"} href=${to(["queues", assignment.queue])}>${assignment.queue}</a>`,
    },
    { name: "Flavor", cell: ({ assignment }) => assignment.flavor },
    { name: "Resource", cell: ({ resource }) => resource },
    { name: "Asks", className: "number", cell: ({ assignment, resource }) => assignment.requested[resource] },
    { name: "Gets", className: "number", cell: ({ assignment, resource }) => assignment.effective[resource] ?? "0" },
    {
      name: "", className: "meter wide",
      cell: ({ assignment, resource }) => {
        const [asks, gets] = [number(assignment.requested[resource]), number(assignment.effective[resource])];
        return html`<${Bar} total=${asks} parts=${[{ value: gets, tone: gets < asks ? "s2" : "s0" }]}
          label=${`gets ${assignment.effective[resource] ?? 0} of ${assignment.requested[resource]}`} />`;
      },
    },
    {
      name: "Why", className: "grow",
      cell: ({ assignment, resource, isFirst }) => {
        const reason = assignment.reasons?.[resource] ?? assignment.reason;
        return html`<${Badge} word=${reason} tone=${reason === "Assigned" ? "ok" : "warn"} />
          ${isFirst && assignment.message && html`<span class="sub">${assignment.message}</span>`}`;
      },
    },
  ]} />`;
}

function Holders({ cells }) {
  const rows = cells.flatMap((cell) => [
    ...(number(cell.base) ? [{ cell, holder: "base", amount: cell.base }] : []),
    ...cell.terms.map((term) => ({ cell, holder: term.cluster, amount: term.term, reason: term.reason })),
  ]);
  return html`<${Table} label="Holders" rows=${rows} columns=${[
    { name: "Queue", isName: true, cell: ({ cell }) => html`<a href=${to(["queues", cell.queue])}>${cell.queue}</a>` },
    { name: "Flavor", cell: ({ cell }) => cell.flavor },
    { name: "Resource", cell: ({ cell }) => cell.resource },
    { name: "From", cell: ({ holder }) => (holder === "base" ? html`<em>base</em>` : html`<a href=${to(["fleet", holder])}>${holder}</a>`) },
    { name: "Counts", className: "number", cell: ({ amount }) => amount },
    { name: "Why", className: "grow", cell: ({ reason }) => reason && html`<${Badge} word=${reason} tone=${reason === "Assigned" ? "ok" : "warn"} />` },
  ]} />`;
}

function History({ name, generation }) {
  const pages = usePages((next) => path(["claims", name, "history"], { limit: 20, continue: next }));
  const [seen, see] = useState(generation);
  useEffect(() => {
    if (seen !== generation) {
      see(generation);
      pages.restart();
    }
  }, [generation]);
  return html`<${Panel} title="Who changed it" id="history">
    ${pages.error && html`<${Trouble} error=${pages.error} />`}
    ${pages.isBegun && pages.items.length === 0 && html`<${Nothing}>No edit is remembered.<//>`}
    ${pages.items.length > 0 && html`<${Table} label="Edits" rows=${pages.items} columns=${[
      { name: "When", className: "time", cell: ({ at }) => html`<${Time} at=${at} />` },
      { name: "Who", isName: true, cell: ({ who }) => who },
      { name: "What", className: "grow", cell: (row) => html`<${Edited} row=${row} />` },
    ]} />`}
    ${pages.hasMore && html`<div class="pad"><button type="button" onClick=${pages.more} disabled=${pages.isLoading}>Older</button></div>`}
  <//>`;
}

function Edited({ row }) {
  if (!row.before) return "created it";
  if (!row.after) return "deleted it";
  const all = changes(row.before, row.after);
  return all.length === 0 ? "changed no quantity" : html`<ul class="changes">${all.map(
    ([field, before, after]) => html`<li>${field} <span class="muted">${before ?? "none"}</span> → ${after ?? "none"}</li>`,
  )}</ul>`;
}
