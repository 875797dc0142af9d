// The page: login, what is around every view, and which view is shown.

import { html, render, useEffect, useRef, useState } from "./preact.js";
import { links, login, logout, session } from "./http.js";
import { useStore } from "./live.js";
import { to, useRoute } from "./route.js";
import { Dialog, Trouble } from "./ui.js";
import { Audit } from "./views/audit.js";
import { Claim, Claims } from "./views/claims.js";
import { Cluster, Fleet } from "./views/fleet.js";
import { Placement, Placements } from "./views/placements.js";
import { Queue, Queues } from "./views/queues.js";
import { Task } from "./views/task.js";
import { Tasks } from "./views/tasks.js";

const VIEWS = [
  { name: "fleet", title: "Fleet", list: Fleet, one: Cluster },
  { name: "queues", title: "Queues", list: Queues, one: Queue },
  { name: "claims", title: "Claims", list: Claims, one: Claim },
  { name: "tasks", title: "Tasks", list: Tasks, one: Task },
  { name: "placements", title: "Placements", list: Placements, one: Placement },
  { name: "audit", title: "Audit", list: Audit, one: Audit },
];

function Shell() {
  const route = useRoute();
  const { state, user } = useStore(session);
  const main = useRef(null);
  const first = useRef(true);
  const found = VIEWS.find(({ name }) => name === route.parts[0]);
  const view = found ?? VIEWS[0];
  const parts = found ? route.parts.slice(1) : [];
  const shown = route.parts.join("/");
  useEffect(() => {
    if (!first.current) {
      window.scrollTo(0, 0);
      main.current.querySelector("h1")?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [shown]);
  const View = parts.length ? view.one : view.list;
  return html`<div class="shell">
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      main.current.focus();
    }}>Skip to content</a>
    <div class="side">
      <a class="brand" href=${to(["fleet"])}><span class="mark" aria-hidden="true"><i></i><i></i><i></i></span>fedq</a>
      <nav aria-label="Views">
        ${VIEWS.map(
          ({ name, title }) =>
            html`<a href=${to([name])} aria-current=${name === view.name ? "page" : undefined}>${title}</a>`,
        )}
      </nav>
      <div class="foot">
        <${Link} />
        <${Theme} />
        <span class="user" title=${user}>${user}</span>
        <button type="button" class="quiet" onClick=${logout}>Log out</button>
      </div>
    </div>
    <main id="main" ref=${main} tabindex="-1">
      <${View} key=${`${user}/${parts.length ? shown : view.name}`} parts=${parts} query=${route.query} />
    </main>
    ${state === "ended" && html`<${Again} />`}
  </div>`;
}

/** How the streams are. */
function Link() {
  const all = [...useStore(links).values()];
  const broken = all.find(({ state }) => state === "broken");
  const [, tick] = useState(0);
  useEffect(() => {
    if (!broken) return undefined;
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, [broken]);
  if (broken) {
    const seconds = Math.max(0, Math.ceil((broken.until - Date.now()) / 1000));
    // Seconds that go by are not announced.
    return html`<div class="link broken">
      <span role="status">Not live: ${broken.error?.message ?? "the stream ended"}</span>
      <span>again in ${seconds} s</span>
      <button type="button" onClick=${broken.now}>Now</button>
    </div>`;
  }
  if (all.length === 0) return null;
  const word = all.some(({ state }) => state === "live") ? "Live" : "Connecting";
  return html`<div class=${`link ${word.toLowerCase()}`}><span role="status">${word}</span></div>`;
}

const SCHEMES = [["", "System"], ["light", "Light"], ["dark", "Dark"]];

function Theme() {
  const [scheme, set] = useState(document.documentElement.dataset.theme ?? "");
  const choose = (event) => {
    const chosen = event.currentTarget.value;
    set(chosen);
    dress(chosen);
    try {
      localStorage.setItem("fedq-theme", chosen);
    } catch {
      // Where nothing may be stored, it lasts as long as the page.
    }
  };
  return html`<select aria-label="Colours" value=${scheme} onChange=${choose}>
    ${SCHEMES.map(([value, words]) => html`<option value=${value} selected=${value === scheme}>${words}</option>`)}
  </select>`;
}

function dress(scheme) {
  if (scheme) document.documentElement.dataset.theme = scheme;
  else delete document.documentElement.dataset.theme;
}

function LoginForm({ words }) {
  const [token, set] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, fail] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    fail(null);
    try {
      await login(token.trim());
    } catch (error) {
      fail(error);
      setBusy(false);
    }
  };
  return html`<form class="login" onSubmit=${submit}>
    ${words}
    <label for="token">Token</label>
    <input id="token" type="password" autocomplete="off" spellcheck="false" required value=${token}
      onInput=${(event) => set(event.currentTarget.value)} />
    <button type="submit" class="primary" disabled=${busy || token.trim() === ""}>${busy ? "Logging in…" : "Log in"}</button>
    ${error && html`<${Trouble} error=${error} />`}
  </form>`;
}

function Login() {
  useEffect(() => {
    document.title = "Log in · fedq";
    document.getElementById("token")?.focus();
  }, []);
  return html`<main class="door">
    <div class="brand"><span class="mark" aria-hidden="true"><i></i><i></i><i></i></span>fedq</div>
    <h1>Log in</h1>
    <${LoginForm} words=${html`<p>With the token that the command line uses: one of the hub, made for the audience <code>fedq</code>, such as</p>
      <pre>kubectl -n fedq-system create token NAME --audience fedq</pre>
      <p>This page keeps it in memory only: reload it, and it asks again.</p>`} />
  </main>`;
}

function Again() {
  return html`<${Dialog} title="Log in again" close=${null}>
    <${LoginForm} words=${html`<p>The token is not valid any more. What you see, and what you have typed, stays.</p>`} />
    <p><button type="button" class="quiet" onClick=${logout}>Log out instead</button></p>
  <//>`;
}

function Page() {
  const { state } = useStore(session);
  return state === "out" ? html`<${Login} />` : html`<${Shell} />`;
}

try {
  dress(localStorage.getItem("fedq-theme") ?? "");
} catch {
  // As above.
}
render(html`<${Page} />`, document.getElementById("page"));
