// One task: how it is, what happened to it, what each cluster says to it, and how to end it.

import { html, useEffect, useState } from "../preact.js";
import { count } from "../format.js";
import { path, send } from "../http.js";
import { useLive, useObject } from "../live.js";
import { to } from "../route.js";
import { Badge, Dialog, Facts, Head, Loading, Note, Nothing, Panel, Table, Time, Trouble } from "../ui.js";
import { Log } from "./log.js";

const OVER = ["succeeded", "failed", "stopped"];

export function Task({ parts: [id, part] }) {
  // The stream tells of one's own newest; others are looked at now and then. What the stream does not tell of a task, such as
  // its history, is looked at too as long as it changes.
  const news = useLive("tasks", (row) => row.id).rows.get(id);
  const [isOver, setOver] = useState(false);
  const { object, error, reload } = useObject(path(["tasks", id]), { again: news, every: isOver ? 0 : news ? 30_000 : 5000 });
  const isNewer = news && object && Date.parse(object.changed) <= Date.parse(news.changed);
  const task = isNewer ? { ...object, ...news } : object;
  const phase = object?.phase;
  useEffect(() => setOver(OVER.includes(phase)), [phase]);
  const head = html`<${Head} title=${task?.name ?? id} crumb=${{ href: to(["tasks"]), text: "Tasks" }}>
    ${task && html`<${Badge} word=${task.phase} />`}
    ${task && !OVER.includes(task.phase) && html`<${Stop} task=${task} done=${reload} />`}
  <//>`;
  if (error && !task) return html`${head}<${Trouble} error=${error} retry=${reload} />`;
  if (!task) return html`${head}<${Loading} />`;
  return html`${head}
    ${error && html`<${Trouble} error=${error} retry=${reload} />`}
    <nav class="tabs" aria-label="Parts of the task">
      <a href=${to(["tasks", id])} aria-current=${part === "log" ? undefined : "page"}>Overview</a>
      <a href=${to(["tasks", id, "log"])} aria-current=${part === "log" ? "page" : undefined}>Log</a>
    </nav>
    ${part === "log" ? html`<${Log} key=${id} id=${id} nodes=${task.numNodes} name=${task.name} />` : html`<${Overview} task=${task} news=${news} />`}`;
}

function nodes({ succeeded, failed, running, pending }) {
  const all = [[running, "running"], [succeeded, "succeeded"], [failed, "failed"], [pending, "pending"]];
  return all.filter(([number]) => number).map(([number, word]) => `${number} ${word}`).join(", ");
}

function Overview({ task, news }) {
  return html`
    ${task.failure && html`<${Note} tone="bad">${task.failure}<//>`}
    ${task.pendingReason && html`<${Note}>${task.pendingReason}<//>`}
    <${Facts} items=${[
      ["Id", html`<code>${task.id}</code>`],
      ["User", task.user],
      ["Cluster", task.cluster && html`<a href=${to(["fleet", task.cluster])}>${task.cluster}</a>`],
      ["Queue", task.queue],
      ["Namespace", task.namespace],
      ["Nodes", `${count(task.numNodes, "node")}${nodes(task.nodes) ? `: ${nodes(task.nodes)}` : ""}`],
      ["Accelerators", task.accelerators],
      ["Workload", task.workload],
      ["Restarts", task.restarts],
      ["Submitted", html`<${Time} at=${task.submitted} />`],
      ["Changed", html`<${Time} at=${task.changed} />`],
    ]} />
    ${task.stages?.length > 0 && html`<${Panel} title="Stages" id="stages"><${Table} label="Stages" rows=${task.stages} columns=${[
      { name: "Stage", isName: true, cell: ({ id, name }) => html`<a href=${to(["tasks", id])}>${name}</a>` },
      { name: "Phase", cell: ({ phase }) => html`<${Badge} word=${phase} />` },
      { name: "", className: "grow", cell: ({ failure, pendingReason }) => failure ?? pendingReason },
    ]} /><//>`}
    <${Verdicts} id=${task.id} news=${news} />
    <${Panel} title="History" id="history"><${Table} label="History" rows=${[...task.events].reverse()} columns=${[
      { name: "When", className: "time", cell: ({ at }) => html`<${Time} at=${at} />` },
      { name: "Phase", cell: ({ phase }) => html`<${Badge} word=${phase} />` },
      { name: "Reason", isName: true, cell: ({ reason }) => reason },
      { name: "Message", className: "grow", cell: ({ message }) => message },
      { name: "Run", className: "number", cell: ({ epoch }) => epoch || "" },
    ]} /><//>
    ${task.components?.length > 0 && html`<${Panel} title="Components" id="components"><${Table} label="Components" columns=${[
      { name: "Kind", isName: true, cell: ({ kind }) => kind },
      { name: "Name", cell: ({ name }) => name },
      { name: "Pods", className: "grow", cell: ({ podSets = [] }) => podSets.map(({ replicas, requests }) =>
        html`<span class="sub">${replicas} × ${Object.entries(requests).map(([resource, amount]) => `${amount} ${resource}`).join(", ")}</span>`) },
    ]} rows=${task.components} /><//>`}
    <${Panel} title="What it runs" id="runs">
      <div class="pad">
        ${task.forms.map((form) => html`<p class="muted">${Object.entries(form).map(([key, value]) => `${key}: ${value}`).join(" · ")}</p>`)}
        ${task.setup && html`<h3>setup</h3><pre>${task.setup}</pre>`}
        ${task.run && html`<h3>run</h3><pre>${task.run}</pre>`}
        ${task.envs?.length > 0 && html`<p>Variables: ${task.envs.map((name) => html`<code>${name}</code> `)}</p>`}
        ${task.secrets?.length > 0 && html`<p>Secrets: ${task.secrets.map((name) => html`<code>${name}</code> `)}</p>`}
        ${task.volumes?.length > 0 && html`<p>Volumes: ${task.volumes.map(({ path, volume }) => html`<code>${path}</code> from ${volume} `)}</p>`}
      </div>
    <//>`;
}

/** What each cluster says to it now, with the numbers. */
function Verdicts({ id, news }) {
  const { object, error } = useObject(path(["tasks", id, "explain"]), { again: news?.phase });
  return html`<${Panel} title="What each cluster says" id="verdicts">
    ${error && html`<${Trouble} error=${error} />`}
    ${!object && !error && html`<${Loading} />`}
    ${object && object.clusters.length === 0 && html`<${Nothing}>No cluster is joined.<//>`}
    ${object && object.clusters.length > 0 && html`<${Table} label="Verdicts" rows=${object.clusters} columns=${[
      { name: "Cluster", isName: true, cell: ({ cluster }) => html`<a href=${to(["fleet", cluster])}>${cluster}</a>` },
      { name: "Verdict", cell: ({ verdict, chosen }) => html`<${Badge} word=${verdict} tone=${verdict === "fits" ? "ok" : "muted"} /> ${chosen && html`<${Badge} word="chosen" tone="ok" />`}` },
      { name: "Waiting there", className: "number", cell: ({ pending }) => pending ?? "" },
      {
        name: "Why", className: "grow",
        cell: ({ reasons = [], numbers = [] }) => html`${reasons.map((reason) => html`<span class="reason">${reason}</span>`)}
          ${numbers.map((one) => html`<span class="sub">${one.flavor} ${one.resource}: needs ${one.needed}, free ${one.available} (quota ${one.nominal}, reserved ${one.reserved}, on its way ${one.inFlight})</span>`)}`,
      },
    ]} />`}
  <//>`;
}

function Stop({ task, done }) {
  const [asks, ask] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, fail] = useState(null);
  const stop = async () => {
    setBusy(true);
    try {
      await send("POST", path(["tasks", task.id, "stop"]));
      ask(false);
      done();
    } catch (error) {
      fail(error);
    }
    setBusy(false);
  };
  return html`<button type="button" class="danger" onClick=${() => ask(true)}>Stop</button>
    ${asks && html`<${Dialog} title=${`Stop ${task.name}?`} close=${() => ask(false)}>
      <p>${task.cluster ? `What runs of it on ${task.cluster} is ended, and its pods are removed.` : "It will not be started."}
        ${task.pipeline && " So are the stages behind it."} It cannot be started again.</p>
      ${error && html`<${Trouble} error=${error} />`}
      <div class="dialog-actions">
        <button type="button" onClick=${() => ask(false)}>Keep it</button>
        <button type="button" class="danger" disabled=${busy} onClick=${stop}>${busy ? "Stopping…" : "Stop it"}</button>
      </div>
    <//>`}`;
}
