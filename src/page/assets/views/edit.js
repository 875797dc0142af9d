// Edits a claim as `fedq claim edit` does: what is wrong is said where it is, gains and losses are shown before anything is
// written, and what somebody else changed meanwhile stays. What was typed is kept until it is applied or given up.

import { html, useLayoutEffect, useRef, useState } from "../preact.js";
import { byScarcity, count, isQuantity } from "../format.js";
import { get, path, send, session } from "../http.js";
import { useObject } from "../live.js";
import { isSame, merge, named } from "../merge.js";
import { to } from "../route.js";
import { Badge, Dialog, Note, Panel, Table, Trouble } from "../ui.js";
import { Shares } from "./fleet.js";

/** Versions move with every status; only another spec is somebody else's edit. */
const STATUSES = 20;

/** What was typed, by claim, until it is applied or given up: whoever looks at another view meanwhile finds it again. */
const drafts = new Map();
window.addEventListener("beforeunload", (event) => {
  if (0 < drafts.size) event.preventDefault();
});
session.listen(({ state }) => {
  if (state === "out") drafts.clear();
});

/** What is typed: rows of text, of which an empty quantity is none. */
function typed(spec) {
  return {
    nominal: { ...spec.nominalResources },
    rows: (spec.resourceAssignments ?? []).map(({ clusterQueueName, flavor, resources }, index) => ({
      id: index, queue: clusterQueueName, flavor, resources: { ...resources },
    })),
  };
}

function filled(resources) {
  return Object.fromEntries(Object.entries(resources).map(([key, text]) => [key, text.trim()]).filter(([, text]) => text !== ""));
}

function specOf(draft, base) {
  return {
    clusterName: base.clusterName,
    nominalResources: filled(draft.nominal),
    resourceAssignments: draft.rows
      .filter(({ queue, flavor, resources }) => queue.trim() || flavor.trim() || Object.keys(filled(resources)).length)
      .map(({ queue, flavor, resources }) => ({ clusterQueueName: queue.trim(), flavor: flavor.trim(), resources: filled(resources) })),
  };
}

/** What can be told without asking the server. */
function slips(draft) {
  const all = [];
  const check = (resources, of) => {
    for (const [resource, text] of Object.entries(filled(resources))) {
      if (!isQuantity(text)) all.push(`${of} ${resource}: ${text} is no quantity; write it as 500m, 8 or 64Gi`);
    }
  };
  check(draft.nominal, "nominalResources");
  const seen = new Set();
  for (const { queue, flavor, resources } of draft.rows) {
    if (!queue.trim() && !flavor.trim() && !Object.keys(filled(resources)).length) continue;
    if (!queue.trim() || !flavor.trim()) all.push("each assignment names a queue and a flavor");
    const pair = JSON.stringify([queue.trim(), flavor.trim()]);
    if (seen.has(pair)) all.push(`${queue} ${flavor} is there twice`);
    seen.add(pair);
    check(resources, `${queue} ${flavor}`);
  }
  return all;
}

export function Edit({ detail, done }) {
  // What the edit is made from; the claim may be another by now.
  const [kept] = useState(() => drafts.get(detail.name));
  const [base, setBase] = useState(() => kept?.base ?? detail);
  const [draft, setDraft] = useState(() => kept?.draft ?? typed(detail.spec));
  const [collisions, setCollisions] = useState(() => kept?.collisions ?? []);
  const [review, setReview] = useState(null);
  const [error, fail] = useState(null);
  const [note, say] = useState(null);
  const [busy, setBusy] = useState(false);
  const { object: queues } = useObject(path(["queues"], { limit: 1000 }));
  const form = useRef(null);
  const spec = specOf(draft, base.spec);
  const isChanged = !isSame(spec, base.spec);
  const wrong = slips(draft);
  // Before anything else happens: whoever goes on at once finds the last letter, too.
  useLayoutEffect(() => {
    if (isChanged) drafts.set(base.name, { base, draft, collisions });
    else drafts.delete(base.name);
  }, [base, draft, collisions, isChanged]);

  const resources = columns(base, draft);
  const ask = async (wanted, words = null) => {
    setBusy(true);
    fail(null);
    say(words);
    try {
      setReview({ change: await send("POST", path(["claims", base.name, "diff"]), wanted), wanted });
    } catch (error) {
      setReview(null);
      fail(error);
    }
    setBusy(false);
  };
  const apply = async () => {
    setBusy(true);
    fail(null);
    const { wanted } = review;
    try {
      await put(wanted);
      drafts.delete(base.name);
      done();
      return;
    } catch (error) {
      if (error.status === 412) await rebase(wanted);
      else {
        setReview(null);
        fail(error);
      }
    }
    setBusy(false);
  };
  const put = async (wanted) => {
    let { resourceVersion } = base;
    for (let tries = 0; ; tries += 1) {
      try {
        return await send("PUT", path(["claims", base.name]), wanted, { "if-match": `"${resourceVersion}"` });
      } catch (error) {
        if (error.status !== 412 || STATUSES <= tries) throw error;
        const newest = await get(path(["claims", base.name]));
        if (!isSame(newest.spec, base.spec)) throw error;
        ({ resourceVersion } = newest);
      }
    }
  };
  const rebase = async (wanted) => {
    try {
      const newest = await get(path(["claims", base.name]));
      if (isSame(newest.spec, base.spec)) {
        await ask(wanted);
        return;
      }
      const { merged, collisions } = merge(base.spec, wanted, newest.spec);
      setBase(newest);
      setDraft(typed(merged));
      setCollisions(collisions);
      if (collisions.length === 0) {
        await ask(merged, "Somebody else changed the claim meanwhile; your edits are put on top of theirs. Look once more.");
      } else {
        setReview(null);
      }
    } catch (error) {
      setReview(null);
      fail(error);
    }
  };
  /** Gains and losses are told against the newest claim, so your edits have to stand on that one too. */
  const look = async () => {
    if (isSame(detail.spec, base.spec)) {
      await ask(spec);
      return;
    }
    setBusy(true);
    fail(null);
    await rebase(spec);
    setBusy(false);
  };
  const change = (row, more) =>
    setDraft((draft) => ({ ...draft, rows: draft.rows.map((one) => (one.id === row.id ? { ...one, ...more } : one)) }));
  const add = () => {
    const id = 1 + Math.max(-1, ...draft.rows.map(({ id }) => id));
    setDraft({ ...draft, rows: [...draft.rows, { id, queue: "", flavor: "", resources: {} }] });
  };
  const collided = (field) => collisions.find((one) => one.field === JSON.stringify(field));
  const cell = (field, value, label, onInput) => {
    const collision = collided(field);
    return html`<input class=${`quantity ${collision ? "collides" : ""}`} value=${value ?? ""} aria-label=${label} size="8"
      aria-invalid=${value && !isQuantity(value.trim()) ? "true" : undefined} autocomplete="off" spellcheck="false"
      onInput=${(event) => onInput(event.currentTarget.value)} />
      ${collision && html`<span class="sub collision">theirs: ${collision.theirs ?? "none"}</span>`}`;
  };
  return html`
    ${collisions.length > 0 && html`<${Note} tone="warn"><strong>Somebody else changed the same.</strong> Your values stand below; decide:
      <ul>${collisions.map(({ field, before, yours, theirs }) => html`<li>${named(field)}: you wrote ${yours ?? "nothing"}, meanwhile it was set to ${theirs ?? "nothing"} (it was ${before ?? "nothing"})</li>`)}</ul><//>`}
    ${collisions.length === 0 && !isSame(detail.spec, base.spec) && html`<${Note} tone="warn">Somebody else has changed the claim since you began: your edits will be put on top of theirs.<//>`}
    ${kept && isChanged && html`<${Note}>What you typed before is still here; Undo all gives it up.<//>`}
    ${error && html`<${Trouble} error=${error} />`}
    <form ref=${form} onSubmit=${(event) => {
      event.preventDefault();
      if (wrong.length === 0) look();
    }}>
    <${Panel} title="Assignments" id="edit-assignments" aside=${html`<button type="button" onClick=${add}>Add</button>`}>
      <div class="scroller"><table class="form" aria-label="Assignments">
        <thead><tr><th scope="col">Queue</th><th scope="col">Flavor</th>${resources.map((resource) => html`<th scope="col">${resource}</th>`)}<th scope="col"><span class="hidden">Remove</span></th></tr></thead>
        <tbody>
          <tr class="caps"><th scope="row" colspan="2">nominalResources <span class="sub">what follows capacity becomes a cap when you change it</span></th>
            ${resources.map((resource) => html`<td>${cell([resource], draft.nominal[resource], `nominalResources ${resource}`, (text) =>
              setDraft((draft) => ({ ...draft, nominal: { ...draft.nominal, [resource]: text } })))}
              <span class="sub">${base.follows.includes(resource) ? "follows" : draft.nominal[resource] ? "cap" : ""}</span></td>`)}<td></td></tr>
          ${draft.rows.map((row) => html`<tr key=${row.id}>
            <td><input list="queues" value=${row.queue} aria-label="Queue" spellcheck="false" onInput=${(event) => change(row, { queue: event.currentTarget.value })} /></td>
            <td><input list="flavors" value=${row.flavor} aria-label="Flavor" size="12" spellcheck="false" onInput=${(event) => change(row, { flavor: event.currentTarget.value })} /></td>
            ${resources.map((resource) => html`<td>${cell([row.queue, row.flavor, resource], row.resources[resource], `${row.queue || "new"} ${row.flavor} ${resource}`, (text) =>
              change(row, { resources: { ...row.resources, [resource]: text } }))}</td>`)}
            <td><button type="button" class="quiet" aria-label=${`Remove ${row.queue} ${row.flavor}`} onClick=${() =>
              setDraft({ ...draft, rows: draft.rows.filter((one) => one !== row) })}>✕</button></td>
          </tr>`)}
        </tbody>
      </table></div>
      <datalist id="queues">${queues?.items.map(({ name }) => html`<option value=${name}></option>`)}</datalist>
      <datalist id="flavors">${base.flavors.map(({ name }) => html`<option value=${name}></option>`)}</datalist>
    <//>
    ${wrong.length > 0 && html`<${Note} tone="warn"><ul class="changes">${wrong.map((one) => html`<li>${one}</li>`)}</ul><//>`}
    <div class="bottom">
      <button type="submit" class="primary" disabled=${busy || !isChanged || wrong.length > 0}>${busy ? "Asking…" : "Review changes"}</button>
      <button type="button" disabled=${!isChanged} onClick=${() => {
        setDraft(typed(base.spec));
        setCollisions([]);
        fail(null);
      }}>Undo all</button>
      <a class="button quiet" href=${to(["claims", base.name])} onClick=${() => drafts.delete(base.name)}>Cancel</a>
    </div>
    </form>
    <${Panel} title=${`What ${base.spec.clusterName} has`} id="edit-has"><${Shares} flavors=${base.flavors} /><//>
    ${review && html`<${Review} review=${review} note=${note} busy=${busy} apply=${apply} close=${() => {
      setReview(null);
      say(null);
    }} />`}`;
}

function columns(base, draft) {
  const all = new Set([
    ...Object.keys(base.spec.nominalResources ?? {}),
    ...base.flavors.flatMap(({ capacity }) => Object.keys(capacity)),
    ...draft.rows.flatMap(({ resources }) => Object.keys(resources)),
  ]);
  return [...all].sort(byScarcity);
}

function Review({ review: { change }, note, busy, apply, close }) {
  return html`<${Dialog} title="Review" close=${close}>
    ${note && html`<${Note} tone="warn">${note}<//>`}
    ${change.changes.length === 0
      ? html`<p class="muted">No queue gains or loses anything.</p>`
      : html`<p class="muted">${count(change.changes.length, "quantity", "quantities")} of queues would change:</p>
        <${Table} label="Gains and losses" rows=${change.changes} columns=${[
          { name: "Queue", isName: true, cell: ({ queue }) => queue },
          { name: "Flavor", cell: ({ flavor }) => flavor },
          { name: "Resource", cell: ({ resource }) => resource },
          { name: "Before", className: "number", cell: ({ before }) => before },
          { name: "After", className: "number", cell: ({ after }) => after },
          { name: "", className: "number", cell: ({ change }) => html`<${Badge} word=${change} tone=${change.startsWith("-") || change.startsWith("−") ? "bad" : "ok"} />` },
        ]} />`}
    ${change.warnings.map((warning) => html`<${Note} tone="warn">${warning}<//>`)}
    <div class="dialog-actions">
      <button type="button" onClick=${close}>Edit again</button>
      <button type="button" class="primary" disabled=${busy} onClick=${apply}>${busy ? "Applying…" : "Apply"}</button>
    </div>
  <//>`;
}
