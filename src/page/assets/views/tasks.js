// Tasks, newest first: the newest as they change, older ones in pages.

import { html, useCallback, useMemo, useState } from "../preact.js";
import { count } from "../format.js";
import { get, path } from "../http.js";
import { useLive } from "../live.js";
import { refine, to } from "../route.js";
import { Badge, Choice, Filter, Head, Loading, Nothing, Rows, Time, Trouble } from "../ui.js";

const idOf = ({ id }) => id;
const PAGE = 500;

export function Tasks({ query }) {
  const asked = { over: query.over, allUsers: query.all ? "true" : undefined, kind: query.kind };
  const newest = useLive(path(["tasks"], asked), idOf);
  const set = (more) => refine(["tasks"], { ...query, ...more });
  const older = useOlder(asked);
  const text = (query.q ?? "").toLowerCase();
  const all = useMemo(() => {
    const rows = new Map(older.rows);
    for (const id of newest.gone) rows.delete(id);
    for (const [id, row] of newest.rows) rows.set(id, row);
    return [...rows.values()].sort((a, b) => (a.submitted < b.submitted ? 1 : a.submitted > b.submitted ? -1 : a.id < b.id ? 1 : -1));
  }, [newest.rows, newest.version, older.rows]);
  const rows = useMemo(
    () => (text ? all.filter((row) => [row.id, row.name, row.user, row.phase, row.cluster ?? "", row.queue ?? ""].some((one) => one.toLowerCase().includes(text))) : all),
    [all, text],
  );
  // The stream tells of the newest 500: with fewer, there are no others.
  const isAll = newest.isKnown && newest.rows.size < PAGE && older.rows.size === 0;
  const end = useCallback(() => {
    // What was refused is asked for again when somebody says so.
    if (newest.isKnown && !isAll && !text && !older.error) older.more();
  }, [newest.isKnown, isAll, text, older.error, older.more]);
  return html`
    <${Head} title="Tasks">
      <${Choice} label="State" value=${query.over ?? ""} options=${[["", "All"], ["false", "Live"], ["true", "Over"]]} onChange=${(over) => set({ over })} />
      <${Choice} label="Kind" value=${query.kind ?? ""} options=${[["", "Any kind"], ["task", "Tasks"], ["appWrapper", "AppWrappers"]]} onChange=${(kind) => set({ kind })} />
      <${Choice} label="Whose" value=${query.all ?? ""} options=${[["", "Mine"], ["1", "Everybody's"]]} onChange=${(all) => set({ all })} />
      <${Filter} label="Filter tasks" value=${query.q ?? ""} onInput=${(q) => set({ q })} />
    <//>
    ${newest.error && html`<${Trouble} error=${newest.error} />`}
    ${older.error && older.error.status !== 401 && html`<${Trouble} error=${older.error} retry=${older.more} />`}
    ${!newest.isKnown && !newest.error && html`<${Loading} />`}
    ${newest.isKnown && rows.length === 0 && html`<${Nothing}>${all.length ? "None of those that are loaded is like that." : html`No tasks. <code>fedq task submit FILE</code> hands one in.`}<//>`}
    ${rows.length > 0 && html`<${Rows} label="Tasks" rows=${rows} keyOf=${idOf} height=${52} columns=${COLUMNS} end=${end} />`}
    ${newest.isKnown && all.length > 0 && html`<p class="loaded" role="status">${count(rows.length, "task")}${older.hasMore && !isAll ? html` of those loaded so far
      <button type="button" onClick=${older.more} disabled=${older.isLoading}>Load older</button>` : ""}</p>`}`;
}

/** Pages behind the newest, as far as somebody looks. */
function useOlder(asked) {
  const key = JSON.stringify(asked);
  const empty = { key, rows: new Map(), next: undefined, hasMore: true, isLoading: false, error: null };
  const [state, set] = useState(empty);
  const current = state.key === key ? state : empty;
  const more = useCallback(async () => {
    if (current.isLoading || !current.hasMore) return;
    set({ ...current, isLoading: true, error: null });
    try {
      const page = await get(path(["tasks"], { ...asked, limit: PAGE, continue: current.next }));
      const rows = new Map(current.rows);
      for (const row of page.items) rows.set(row.id, row);
      set({ ...current, rows, next: page.continue, hasMore: page.continue !== undefined, isLoading: false, error: null });
    } catch (error) {
      set({ ...current, isLoading: false, error });
    }
  }, [current, key]);
  return { ...current, more };
}

const COLUMNS = [
  {
    name: "Task", isName: true, className: "name",
    cell: ({ id, name, kind, pipeline }) => html`<a href=${to(["tasks", id])}>${name}</a>
      <span class="sub"><code>${id}</code>${kind === "appWrapper" ? " · AppWrapper" : ""}${pipeline ? ` · stage ${pipeline.stage} of ${pipeline.stages}` : ""}</span>`,
  },
  {
    name: "Phase", className: "state",
    cell: ({ phase, failure, pendingReason }) => html`<${Badge} word=${phase} title=${failure ?? pendingReason} />
      <span class="sub" title=${failure ?? pendingReason}>${failure ?? pendingReason}</span>`,
  },
  { name: "Cluster", className: "grow wide", cell: ({ cluster, queue }) => html`${cluster ?? html`<span class="muted">none yet</span>`}<span class="sub">${queue}</span>` },
  { name: "Asks", className: "wide small", cell: ({ accelerators, numNodes }) => html`${/^\d+$/.test(accelerators ?? "") ? `${accelerators} GPUs` : (accelerators ?? "no GPU")}<span class="sub">${count(numNodes, "node")}</span>` },
  { name: "User", className: "wide user-name", cell: ({ user }) => html`<span title=${user}>${user}</span>` },
  { name: "Submitted", className: "wide time", cell: ({ submitted }) => html`<${Time} at=${submitted} />` },
  { name: "Changed", className: "time", cell: ({ changed }) => html`<${Time} at=${changed} />` },
];
