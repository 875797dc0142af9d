// What views are made of: objects that are asked for, and lists that are followed.

import { useEffect, useRef, useState } from "./preact.js";
import { follow, get, session } from "./http.js";

export function useStore(store) {
  const [value, set] = useState(store.get());
  useEffect(() => {
    set(store.get());
    return store.listen(set);
  }, [store]);
  return value;
}

/** Redraws at most so often, however fast events come. */
const PACE = 100;
/** From one request for the same object to the next, however fast events come. */
const APART = 2000;

/** What can be done about an object that nobody asks for. */
const NOTHING = { reload: () => {}, want: () => {} };

/** Whether what was known is there no more, or not for this person. */
function isGone({ status }) {
  return status === 403 || status === 404;
}

/**
 * The rows of a list, kept up to date by its stream: `rows` by key in the order of the stream, `isKnown` once all were told.
 * What was known stays while the stream is broken; `error` is a refusal. `gone` has the keys of those that the stream told
 * the end of. `version` changes with the rows.
 */
export function useLive(path, keyOf) {
  const [, redraw] = useState(0);
  const state = useRef({});
  if (state.current.path !== path) {
    state.current = { path, rows: new Map(), gone: new Set(), version: 0, isKnown: false, error: null };
  }
  const { since } = useStore(session);
  useEffect(() => {
    if (path === null) return undefined;
    const current = state.current;
    let timer = 0;
    const changed = () => {
      timer ||= setTimeout(() => {
        timer = 0;
        redraw((count) => count + 1);
      }, PACE);
    };
    // What is not named until the stream says that this was all went meanwhile.
    let named = null;
    const stop = follow({
      open: () => ({ path: path + (path.includes("?") ? "&" : "?") + "watch=true", accept: "application/x-ndjson" }),
      begun: () => {
        named = new Set();
        current.error = null;
      },
      line: (line) => {
        if (line === "") return;
        const { type, object } = JSON.parse(line);
        if (type === "SYNCED") {
          for (const key of current.rows.keys()) if (!named.has(key)) current.rows.delete(key);
          named = null;
          current.isKnown = true;
        } else if (type === "DELETED") {
          current.rows.delete(keyOf(object));
          current.gone.add(keyOf(object));
        } else {
          const key = keyOf(object);
          named?.add(key);
          current.rows.set(key, object);
          current.gone.delete(key);
        }
        current.version += 1;
        changed();
      },
      failed: (error) => {
        current.error = error;
        if (isGone(error)) {
          current.rows.clear();
          current.isKnown = false;
          current.version += 1;
        }
        changed();
      },
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [path, since]);
  return state.current;
}

/**
 * An object, asked for again when `again` changes and every `every` milliseconds. What was known stays meanwhile, also
 * beside an `error`, unless that says that the object is gone.
 */
export function useObject(path, { again = 0, every = 0, patience } = {}) {
  const [, redraw] = useState(0);
  const state = useRef({ path: null });
  if (state.current.path !== path) {
    state.current = { path, object: null, error: null };
  }
  const { since } = useStore(session);
  const act = useRef(NOTHING);
  const asked = useRef(again);
  useEffect(() => {
    if (path === null) return undefined;
    const current = state.current;
    const aborted = new AbortController();
    let [isLoading, isWanted, begun, timer] = [false, false, 0, 0];
    const load = async () => {
      clearTimeout(timer);
      [isLoading, isWanted, begun, timer] = [true, false, Date.now(), 0];
      try {
        current.object = await get(path, { signal: aborted.signal, patience });
        current.error = null;
      } catch (error) {
        if (aborted.signal.aborted) return;
        if (error.status !== 401) current.error = error;
        if (isGone(error)) current.object = null;
      }
      isLoading = false;
      redraw((count) => count + 1);
      if (isWanted && !aborted.signal.aborted) want();
    };
    // A request that is on its way comes to its end: events may come faster than answers do.
    const want = () => {
      if (isLoading) isWanted = true;
      else timer ||= setTimeout(load, Math.max(0, begun + APART - Date.now()));
    };
    const reload = () => (isLoading ? want() : load());
    act.current = { reload, want };
    asked.current = again;
    load();
    return () => {
      clearTimeout(timer);
      aborted.abort();
      act.current = NOTHING;
    };
  }, [path, since]);
  useEffect(() => {
    if (asked.current === again) return;
    asked.current = again;
    act.current.want();
  }, [again]);
  useEffect(() => {
    if (!path || !every) return undefined;
    const timer = setInterval(() => !document.hidden && session.get().state === "in" && act.current.want(), every);
    return () => clearInterval(timer);
  }, [path, every, since]);
  return { ...state.current, reload: () => act.current.reload() };
}

/** Pages of a list, as many as are asked for. */
export function usePages(pathOf) {
  const first = pathOf(undefined);
  const [, redraw] = useState(0);
  const state = useRef({ first: null });
  const { since } = useStore(session);
  if (state.current.first !== first) {
    state.current = { first, items: [], next: undefined, isBegun: false, isLoading: false, error: null };
  }
  const load = async () => {
    const current = state.current;
    if (current.isLoading || (current.isBegun && current.next === undefined)) return;
    current.isLoading = true;
    redraw((count) => count + 1);
    try {
      const page = await get(pathOf(current.next));
      current.items = current.items.concat(page.items);
      current.next = page.continue;
      current.isBegun = true;
      current.error = null;
    } catch (error) {
      if (error.status !== 401) current.error = error;
    }
    current.isLoading = false;
    redraw((count) => count + 1);
  };
  useEffect(() => {
    if (!state.current.isBegun) load();
  }, [first, since]);
  const current = state.current;
  const restart = () => {
    state.current = { first, items: [], next: undefined, isBegun: false, isLoading: false, error: null };
    return load();
  };
  return { ...current, restart, hasMore: current.isBegun && current.next !== undefined, more: load };
}
