// Parts that views share. Text is never markup: everything goes through the library, which makes text nodes of it.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { moment, relative } from "./format.js";
import { store } from "./http.js";
import { useStore } from "./live.js";

/** One clock for all times on the page. */
const now = store(Date.now());
setInterval(() => !document.hidden && now.set(Date.now()), 5000);
document.addEventListener("visibilitychange", () => document.hidden || now.set(Date.now()));

/** How long ago, with the exact time to hover over. */
export function Time({ at }) {
  const present = useStore(now);
  if (!at) return html`<span class="muted">–</span>`;
  const date = new Date(at);
  return html`<time datetime=${at} title=${moment(date)}>${relative(date, Math.max(present, Date.now()))}</time>`;
}

const TONES = {
  Ready: "ok", True: "ok", Assigned: "ok", running: "ok", succeeded: "ok", ok: "ok", Chosen: "ok", fits: "ok", done: "ok",
  Stale: "warn", Connecting: "info", Unreached: "muted", Unknown: "warn", Draining: "warn", pending: "info", warning: "warn",
  dispatching: "info", queued: "info", starting: "info", withdrawing: "warn", lost: "bad", stopped: "muted", failed: "bad",
  Lost: "bad", Quarantined: "bad", Refused: "bad", False: "bad", cordoned: "warn",
};

/** A state, told by its word; the colour only helps. */
export function Badge({ word, tone, title }) {
  return html`<span class=${`badge ${tone ?? TONES[word] ?? "info"}`} title=${title}>${word}</span>`;
}

/** Parts of a whole, side by side. `parts`: `{ value, tone, title }`. */
export function Bar({ parts, total, label }) {
  const sum = parts.reduce((sum, { value }) => sum + value, 0);
  const whole = Math.max(total, sum);
  return html`<span class="bar" role="img" aria-label=${label} title=${label}>
    ${parts.map(({ value, tone, title }) => {
      const share = whole ? (100 * value) / whole : 0;
      return share > 0 && html`<span class=${`part ${tone}`} title=${title} style=${{ width: `${share}%` }}></span>`;
    })}
  </span>`;
}

/** What went wrong, why, and what helps, as the server said it. */
export function Trouble({ error, retry }) {
  return html`<div class="trouble" role="alert">
    <strong>${error.message}</strong>
    ${error.causes?.length > 0 &&
    html`<ul>${error.causes.map(({ field, message }) => html`<li>${field && html`<code>${field}</code> `}${message}</li>`)}</ul>`}
    ${error.next && html`<p>${error.next}</p>`}
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

export function Note({ tone = "info", children }) {
  return html`<div class=${`note ${tone}`}>${children}</div>`;
}

export function Nothing({ children }) {
  return html`<p class="nothing">${children}</p>`;
}

export function Loading() {
  return html`<p class="nothing" role="status">Loading…</p>`;
}

/** The head of a view. Names the document as well, so that histories and tabs can be told apart. */
export function Head({ title, crumb, children }) {
  useEffect(() => {
    document.title = `${title} · fedq`;
  }, [title]);
  return html`<header class="head">
    <div>
      ${crumb && html`<a class="crumb" href=${crumb.href}>${crumb.text}</a>`}
      <h1 tabindex="-1">${title}</h1>
    </div>
    <div class="actions">${children}</div>
  </header>`;
}

export function Panel({ title, aside, children, id }) {
  return html`<section class="panel" aria-labelledby=${id}>
    <div class="panel-head"><h2 id=${id}>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</div>
    ${children}
  </section>`;
}

/** Words with what they are of. `items`: `[name, value]`. */
export function Facts({ items }) {
  const there = items.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  if (there.length === 0) return null;
  return html`<dl class="facts">${there.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

export function Tiles({ items }) {
  return html`<ul class="tiles">
    ${items.map(
      ({ name, value, detail, tone, bar }) => html`<li class=${`tile ${tone ?? ""}`}>
        <span class="tile-name">${name}</span><span class="tile-value">${value}</span>
        <span class="tile-detail">${detail}</span>${bar}
      </li>`,
    )}
  </ul>`;
}

/**
 * A table of any length: only rows near the screen are made. Each has the height that the style sheet gives, told by
 * `height`. `columns`: `{ name, cell, className }`; `end` is told when the last row is near.
 */
export function Rows({ label, columns, rows, keyOf, height = 40, toneOf, end }) {
  const table = useRef(null);
  const [seen, see] = useState({ from: 0, to: 60 });
  useLayoutEffect(() => {
    let frame = 0;
    const look = () => {
      frame = 0;
      if (!table.current) return;
      const top = table.current.tBodies[0].getBoundingClientRect().top;
      const from = Math.max(0, Math.floor(-top / height) - 10);
      const to = Math.ceil((window.innerHeight - top) / height) + 10;
      see((before) => (before.from === from && before.to === to ? before : { from, to }));
      if (end && rows.length <= to + 20) end();
    };
    const later = () => {
      frame ||= requestAnimationFrame(look);
    };
    look();
    window.addEventListener("scroll", later, { passive: true });
    window.addEventListener("resize", later, { passive: true });
    return () => {
      cancelAnimationFrame(frame);
      window.removeEventListener("scroll", later);
      window.removeEventListener("resize", later);
    };
  }, [rows.length, height, end]);
  const to = Math.min(rows.length, seen.to);
  const from = Math.min(seen.from, Math.max(0, to - 1));
  const gap = (count, key) =>
    0 < count && html`<tr key=${key} class="gap" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${count * height}px` }}></td></tr>`;
  return html`<div class="scroller"><table ref=${table} class="rows" aria-label=${label} aria-rowcount=${rows.length + 1}>
    <thead><tr>${columns.map(({ name, className }) => html`<th scope="col" class=${className}>${name}</th>`)}</tr></thead>
    <tbody>
      ${gap(from, "before")}
      ${rows.slice(from, to).map(
        (row, index) => html`<tr key=${keyOf(row)} class=${toneOf?.(row)} aria-rowindex=${from + index + 2} style=${{ height: `${height}px` }}>
          ${columns.map(({ cell, className, isName }) =>
            isName ? html`<th scope="row" class=${className}>${cell(row)}</th>` : html`<td class=${className}>${cell(row)}</td>`,
          )}
        </tr>`,
      )}
      ${gap(rows.length - to, "after")}
    </tbody>
  </table></div>`;
}

/** A small table, all of it. */
export function Table({ label, columns, rows }) {
  return html`<div class="scroller" role="region" tabindex="0" aria-label=${label}><table class="plain" aria-label=${label}>
    <thead><tr>${columns.map(({ name, className }) => html`<th scope="col" class=${className}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (row) => html`<tr>${columns.map(({ cell, className, isName }) =>
        isName ? html`<th scope="row" class=${className}>${cell(row)}</th>` : html`<td class=${className}>${cell(row)}</td>`,
      )}</tr>`,
    )}</tbody>
  </table></div>`;
}

/** A question that has to be answered first. */
export function Dialog({ title, children, close }) {
  const dialog = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.focus?.();
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    close?.();
  };
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onCancel=${cancel}
    onClose=${() => (close ? close() : dialog.current?.showModal())}>
    <h2 id="dialog-title">${title}</h2>${children}
  </dialog>`;
}

export function Filter({ label, value, onInput, placeholder }) {
  return html`<input class="filter" type="search" aria-label=${label} placeholder=${placeholder ?? label} value=${value}
    onInput=${(event) => onInput(event.currentTarget.value)} />`;
}

/** One of a few. `options`: `[value, words]`. */
export function Choice({ label, value, options, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(([one, words]) => html`<button type="button" aria-pressed=${one === value} onClick=${() => onChange(one)}>${words}</button>`)}
  </div>`;
}

/** Colours that tell clusters apart, the same on every view. */
export function useSeries(names) {
  return useMemo(() => new Map([...new Set(names)].sort().map((name, index) => [name, `s${index % 8}`])), [names.join("\n")]);
}
