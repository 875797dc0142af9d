// The REST API, asked as the person whose token this is. The token is in memory only: a page that is loaded anew asks for it
// again, and no script of another page, no cookie and no storage ever holds it.

const BASE = new URL("../api/v1/", document.baseURI);
/** An open stream says something each 20 seconds, if only that it is there. */
const SILENCE = 45_000;
/** Until an answer begins; what is asked of clusters may take longer. */
const PATIENCE = 20_000;
const FIRST_RETRY = 500;
const LAST_RETRY = 15_000;
/** One that went on for so long did not end because something is wrong. */
const LASTED = 2000;
/** A page that nobody sees follows nothing: browsers open few connections to a server, and share them among all pages. */
const UNSEEN = 30_000;

/** Something that is told to whoever listens when it changes. */
export function store(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** `out`: nobody is logged in. `ended`: the token is not valid any more; what is shown stays until there is another. */
export const session = store({ state: "out", user: null, since: 0 });
let token = null;

/** What the server refused, as it said it. */
export class Problem extends Error {
  constructor(status, said) {
    super(said.detail || said.title || `the server answered with status ${status}`);
    this.status = status;
    this.code = said.code;
    this.next = said.next;
    this.causes = said.causes ?? [];
  }
}

/** No answer, or none that is one of fedqd's. */
export class Unreached extends Error {}

export async function login(given) {
  const response = await ask("whoami", { token: given });
  const { user } = await response.json();
  token = given;
  session.set({ state: "in", user, since: Date.now() });
}

export function logout() {
  token = null;
  session.set({ state: "out", user: null, since: Date.now() });
}

async function ask(path, options = {}) {
  const { method = "GET", body, headers = {}, accept = "application/json", signal, patience = PATIENCE } = options;
  const used = options.token ?? token;
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), patience);
  let response;
  try {
    response = await fetch(new URL(path, BASE), {
      method,
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: {
        accept,
        authorization: `Bearer ${used}`,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      signal: signal ? AbortSignal.any([signal, late.signal]) : late.signal,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreached(late.signal.aborted ? `fedqd has not answered for ${patience / 1000} s` : "fedqd does not answer");
  } finally {
    clearTimeout(timer);
  }
  if (response.ok) return response;
  const problem = await refusal(response);
  if (response.status === 401 && used === token && session.get().state === "in") {
    session.set({ ...session.get(), state: "ended" });
  }
  throw problem;
}

async function refusal(response) {
  const media = response.headers.get("content-type") ?? "";
  if (!media.includes("json")) {
    return new Unreached(`something between here and fedqd answered with status ${response.status}`);
  }
  const said = await response.json().catch(() => ({}));
  return new Problem(response.status, said);
}

export async function get(path, options) {
  return (await ask(path, options)).json();
}

export async function send(method, path, body, headers) {
  return (await ask(path, { method, body, headers })).json();
}

/** A path under /api/v1 from its parts, of which none can become more than one. */
export function path(parts, query = {}) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) search.set(key, value);
  }
  const text = parts.map(encodeURIComponent).join("/");
  return search.size ? `${text}?${search}` : text;
}

/** Reads an answer to its end, as it comes. One that falls silent did not come to its end. */
async function read(response, signal, onLine) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let heard = Date.now();
  let isSilent = false;
  const watchdog = setInterval(() => {
    if (Date.now() - heard <= SILENCE) return;
    isSilent = true;
    reader.cancel().catch(() => {});
  }, 5000);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (isSilent) throw new Unreached(`fedqd has said nothing for ${SILENCE / 1000} s`);
      if (done) break;
      heard = Date.now();
      // What has no end yet is only put together once it has: a line may be megabytes in many pieces.
      const text = decoder.decode(value, { stream: true });
      const last = text.lastIndexOf("\n");
      if (last < 0) {
        rest += text;
        continue;
      }
      const whole = rest + text.slice(0, last);
      rest = text.slice(last + 1);
      for (const line of whole.split("\n")) onLine(line);
    }
    if (rest) onLine(rest + decoder.decode());
  } finally {
    clearInterval(watchdog);
    if (signal.aborted) reader.cancel().catch(() => {});
  }
}

/** All lines of an answer that ends. */
export async function lines(path, onLine) {
  const response = await ask(path, { accept: "application/x-ndjson" });
  await read(response, new AbortController().signal, onLine);
}

/** Streams that are open or wanted, for whoever shows how they are. */
export const links = store(new Map());

/**
 * Follows a stream until it is told to stop, and asks again whenever it ends.
 *
 * `open` makes the request's path and headers anew each time; `line` takes each line; `begun` is told when an answer
 * begins; `over` says behind each answer whether nothing more is to come, of one that broke off with the error; `done` is
 * told once that is so; `failed` takes what no repetition will mend.
 */
export function follow({ open, line, begun = () => {}, over = () => false, done = () => {}, failed }) {
  const id = Symbol("link");
  let aborted = null;
  let wake = () => {};
  let stopped = false;
  const show = (state) => {
    const all = new Map(links.get());
    if (state === null) all.delete(id);
    else all.set(id, { ...state, now: () => wake() });
    links.set(all);
  };
  const pause = (ms) =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  const run = async () => {
    let retry = FIRST_RETRY;
    while (!stopped) {
      if (session.get().state !== "in") {
        await until(session, ({ state }) => state === "in", (stop) => (wake = stop));
        continue;
      }
      if (document.hidden) {
        await seen((stop) => (wake = stop));
        continue;
      }
      aborted = new AbortController();
      const { signal } = aborted;
      const unwatch = whenUnseen(() => aborted.abort());
      let error = null;
      let begin = Infinity;
      try {
        const { path, headers, accept } = open();
        const response = await ask(path, { headers, accept, signal });
        show({ state: "live" });
        begun();
        begin = Date.now();
        await read(response, signal, line);
      } catch (caught) {
        const isTold = caught instanceof Problem || caught instanceof Unreached;
        // What a broken connection throws is no more than a TypeError.
        if (!isTold && caught.name !== "TypeError" && !signal.aborted) console.error(caught);
        error = isTold ? caught : new Unreached("the connection broke");
      } finally {
        unwatch();
      }
      if (stopped) break;
      if (error instanceof Problem && error.status !== 401 && error.status !== 429 && error.status < 500) {
        show(null);
        failed(error);
        return;
      }
      if (over(error)) {
        done();
        break;
      }
      if (signal.aborted || (error instanceof Problem && error.status === 401)) continue;
      if (LASTED < Date.now() - begin) {
        retry = FIRST_RETRY;
        // The server ends each stream now and then.
        if (error === null) continue;
      }
      show({ state: "broken", error, until: Date.now() + retry });
      await pause(retry);
      retry = Math.min(LAST_RETRY, retry * 2);
    }
    show(null);
  };
  show({ state: "opening" });
  run();
  return () => {
    stopped = true;
    aborted?.abort();
    wake();
    show(null);
  };
}

function until(store, holds, stoppable) {
  return new Promise((resolve) => {
    const unlisten = store.listen((value) => holds(value) && done());
    const done = () => {
      unlisten();
      resolve();
    };
    stoppable(done);
  });
}

function seen(stoppable) {
  return new Promise((resolve) => {
    const done = () => {
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    const look = () => !document.hidden && done();
    document.addEventListener("visibilitychange", look);
    stoppable(done);
  });
}

function whenUnseen(act) {
  let timer = 0;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(act, UNSEEN);
  };
  document.addEventListener("visibilitychange", look);
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
  };
}
