// The log of a task as it is written: followed through breaks and moves, searched, kept as a file.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../preact.js";
import { pieces, plain } from "../ansi.js";
import { amount, count } from "../format.js";
import { follow, path, lines as whole, session } from "../http.js";
import { useStore } from "../live.js";
import { Badge, Choice, Dialog, Filter, Nothing, Trouble } from "../ui.js";

/** Of each node, when the view opens. */
const TAIL = 5000;
/** What the page keeps; the file has everything. */
const MOST_LINES = 50_000;
const MOST_CHARACTERS = 32 << 20;
const HEIGHT = 18;
/** Of one line; all of it is a click away. */
const SHOWN = 2000;
const PACE = 100;
const OVER = ["succeeded", "failed", "stopped"];

/** Lines, oldest first, as many as are kept. */
class Kept {
  lines = [];
  characters = 0;
  dropped = 0;
  next = 0;

  push(line) {
    this.lines.push({ ...line, number: this.next });
    this.next += 1;
    this.characters += line.raw.length;
  }

  /** In large steps: each moves all that stays. */
  trim() {
    if (this.lines.length <= MOST_LINES * 1.1 && this.characters <= MOST_CHARACTERS) return;
    let from = Math.max(0, this.lines.length - MOST_LINES);
    for (const { raw } of this.lines.slice(0, from)) this.characters -= raw.length;
    while (MOST_CHARACTERS * 0.9 < this.characters && from < this.lines.length - 1) {
      this.characters -= this.lines[from].raw.length;
      from += 1;
    }
    this.lines = this.lines.slice(from);
    this.dropped += from;
  }
}

function useLog(id, run) {
  const [, redraw] = useState(0);
  const kept = useRef(new Kept());
  const state = useRef({ end: null, error: null, isBegun: false, isDone: false });
  const { since } = useStore(session);
  const resume = useRef(null);
  useEffect(() => {
    if (state.current.end || state.current.isDone) return undefined;
    let timer = 0;
    const changed = () => {
      timer ||= setTimeout(() => {
        timer = 0;
        kept.current.trim();
        redraw((count) => count + 1);
      }, PACE);
    };
    const stop = follow({
      open: () => ({
        path: path(["tasks", id, "logs"], { follow: "true", tail: resume.current ? undefined : TAIL, previous: run === "previous" ? "true" : undefined }),
        accept: "text/event-stream",
        headers: resume.current ? { "last-event-id": resume.current } : {},
      }),
      begun: () => {
        state.current.isBegun = true;
        state.current.error = null;
        changed();
      },
      line: (line) => {
        if (line.startsWith("id: ")) resume.current = line.slice(4);
        if (!line.startsWith("data: ")) return;
        const item = JSON.parse(line.slice(6));
        if (item.type === "LINE") {
          kept.current.push({ raw: item.line, text: plain(item.line), node: item.node, pod: item.pod, container: item.container, ts: item.ts, cut: item.cut });
        } else if (item.type === "STATUS") {
          kept.current.push({ isWord: true, raw: "", text: `node ${item.node}: ${item.status}${item.message ? `, ${item.message}` : ""}` });
        } else if (item.type === "TASK") {
          if (item.resume) resume.current = item.resume;
          if (OVER.includes(item.phase)) state.current.end = item;
          kept.current.push({ isWord: true, raw: "", text: `task ${item.phase}${item.message ? `: ${item.message}` : ""}` });
        }
        changed();
      },
      // Nothing is added to an earlier run: its log is all there once an answer came to its end.
      over: (error) => state.current.end !== null || (run === "previous" && error === null),
      done: () => {
        state.current.isDone = true;
        changed();
      },
      failed: (error) => {
        state.current.error = error;
        changed();
      },
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [id, since]);
  return { kept: kept.current, ...state.current };
}

export function Log({ id, nodes, name }) {
  const [run, setRun] = useState("");
  return html`<${Run} key=${run} id=${id} nodes=${nodes} name=${name} run=${run} setRun=${setRun} />`;
}

function Run({ id, nodes, name, run, setRun }) {
  const { kept, end, error, isBegun, isDone } = useLog(id, run);
  const [query, search] = useState("");
  const [only, setOnly] = useState(false);
  const [times, setTimes] = useState(false);
  const [at, setAt] = useState(0);
  const [whole, show] = useState(null);
  const needle = query.toLowerCase();
  const matches = useMemo(() => {
    if (!needle) return [];
    return kept.lines.flatMap((line, index) => (line.text.toLowerCase().includes(needle) ? [index] : []));
  }, [kept.lines, kept.next, needle]);
  const lines = needle && only ? matches.map((index) => kept.lines[index]) : kept.lines;
  const chosen = matches.length ? Math.min(at, matches.length - 1) : 0;
  const step = (by) => setAt((chosen + by + matches.length) % matches.length);
  const row = only ? chosen : matches[chosen];
  return html`<section class="panel log-panel" aria-label="Log">
    <div class="panel-head">
      <div class="aside">
        <form role="search" onSubmit=${(event) => {
          event.preventDefault();
          if (matches.length) step(1);
        }}><${Filter} label="Search the log" value=${query} onInput=${(text) => {
          search(text);
          setAt(0);
        }} /></form>
        ${needle && html`<span role="status">${matches.length ? `${chosen + 1} of ${matches.length}` : "not found"}</span>
          <button type="button" aria-label="Previous match" disabled=${!matches.length} onClick=${() => step(-1)}>↑</button>
          <button type="button" aria-label="Next match" disabled=${!matches.length} onClick=${() => step(1)}>↓</button>
          <label><input type="checkbox" checked=${only} onChange=${() => setOnly(!only)} /> only these</label>`}
      </div>
      <div class="aside">
        <label><input type="checkbox" checked=${times} onChange=${() => setTimes(!times)} /> times</label>
        <${Choice} label="Which run" value=${run} options=${[["", "This run"], ["previous", "The one before"]]} onChange=${setRun} />
        <${Download} id=${id} name=${name} run=${run} />
        ${end ? html`<${Badge} word=${end.phase} />` : !error && html`<${Badge} word=${isDone ? "ended" : isBegun ? "following" : "opening"} tone="info" />`}
      </div>
    </div>
    ${error && html`<${Trouble} error=${error} />`}
    ${kept.dropped > 0 && html`<p class="dropped">${count(kept.dropped, "older line")} not kept here: the file has them.</p>`}
    ${kept.lines.length === 0 && !error
      ? html`<${Nothing}>${isDone ? "Nothing was written." : isBegun ? "Nothing is written yet." : "Opening…"}<//>`
      : html`<${Lines} lines=${lines} needle=${needle} row=${needle ? row : undefined} hit=${needle && matches.length ? kept.lines[matches[chosen]] : null}
          nodes=${nodes} times=${times} show=${show} isLive=${!end && !isDone} />`}
    ${whole && html`<${Dialog} title=${`Line ${whole.number + 1}, ${amount(whole.raw.length, "characters")} characters`} close=${() => show(null)}>
      <textarea class="whole" readonly aria-label="The whole line" rows="14">${plain(whole.raw)}</textarea>
      <div class="dialog-actions"><button type="button" onClick=${() => show(null)}>Close</button></div><//>`}
  </section>`;
}

/** Only lines on the screen are made; at the end it stays at the end. */
function Lines({ lines, needle, row, hit, nodes, times, show, isLive }) {
  const box = useRef(null);
  const [seen, see] = useState({ from: 0, to: 80 });
  const [stays, stay] = useState(true);
  const look = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    const from = Math.max(0, Math.floor(scrollTop / HEIGHT) - 20);
    const to = Math.ceil((scrollTop + clientHeight) / HEIGHT) + 20;
    see((before) => (before.from === from && before.to === to ? before : { from, to }));
    stay(scrollHeight - scrollTop - clientHeight < HEIGHT * 2);
  };
  useLayoutEffect(() => {
    if (stays && !needle) box.current.scrollTop = box.current.scrollHeight;
    look();
  }, [lines, lines.length, lines.at(-1)?.number]);
  useLayoutEffect(() => {
    if (row === undefined) return;
    box.current.scrollTop = Math.max(0, row * HEIGHT - box.current.clientHeight / 2);
    look();
  }, [row, hit?.number]);
  const to = Math.min(lines.length, seen.to);
  const from = Math.min(seen.from, to);
  return html`<div class="log-frame"><div class="log" ref=${box} onScroll=${look} tabindex="0" role="log" aria-label="Lines" aria-live="off">
      <div style=${{ height: `${lines.length * HEIGHT}px`, paddingTop: `${from * HEIGHT}px` }} class="log-lines">
        ${lines.slice(from, to).map((line) => html`<${Line} key=${line.number} line=${line} needle=${needle} isHit=${line === hit} nodes=${nodes} times=${times} show=${show} />`)}
      </div>
    </div>
    ${!stays && html`<button type="button" class="to-end" onClick=${() => {
      box.current.scrollTop = box.current.scrollHeight;
    }}>${isLive ? "Follow" : "To the end"} ↓</button>`}
  </div>`;
}

function Line({ line, needle, isHit, nodes, times, show }) {
  if (line.isWord) return html`<div class="line word">— ${line.text}</div>`;
  const prefix = nodes > 1 ? `${line.node} ` : "";
  const rest = line.raw.length - SHOWN;
  return html`<div class=${`line ${isHit ? "hit" : ""}`}>
    ${times && html`<span class="ts">${line.ts?.slice(11, 23) ?? ""} </span>`}${prefix && html`<span class="ts" title=${line.pod}>${prefix}</span>`}
    ${pieces(line.raw, SHOWN).map(({ text, classes }) => html`<span class=${classes || undefined}>${marked(text, needle)}</span>`)}
    ${rest > 0 && html`<button type="button" class="rest" onClick=${() => show(line)}>… ${amount(rest, "characters")} more</button>`}
    ${line.cut > 0 && html`<span class="ts"> (${amount(line.cut, "bytes")} bytes were not kept)</span>`}
  </div>`;
}

function marked(text, needle) {
  if (!needle) return text;
  const low = text.toLowerCase();
  const all = [];
  let from = 0;
  for (let at = low.indexOf(needle); 0 <= at && all.length < 200; at = low.indexOf(needle, from)) {
    all.push(text.slice(from, at), html`<mark>${text.slice(at, at + needle.length)}</mark>`);
    from = at + needle.length;
  }
  return [...all, text.slice(from)];
}

/** All of it, as it was written. */
function Download({ id, name, run }) {
  const [busy, setBusy] = useState(false);
  const [error, fail] = useState(null);
  const save = async () => {
    setBusy(true);
    fail(null);
    try {
      const parts = [];
      await whole(path(["tasks", id, "logs"], { previous: run === "previous" ? "true" : undefined }), (line) => {
        if (!line) return;
        const item = JSON.parse(line);
        if (item.type !== "LINE") return;
        parts.push(item.bytes ? Uint8Array.from(atob(item.bytes), (sign) => sign.charCodeAt(0)) : item.line, "\n");
      });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
      link.download = `${name.replace(/[^\w.-]+/g, "-")}-${id}.log`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    } catch (error) {
      fail(error);
    }
    setBusy(false);
  };
  return html`<button type="button" onClick=${save} disabled=${busy} title=${error?.message}>${busy ? "Loading…" : error ? "Download failed: again" : "Download"}</button>`;
}
