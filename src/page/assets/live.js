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

/**
 * The rows of a list, kept up to date by its stream: `rows` by key in the order of the stream, `isKnown` once all were told.
 * What was known stays while the stream is broken; `error` is a refusal. `version` changes with the rows.
 */
export function useLive(path, keyOf) {
  const [, redraw] = useState(0);
  const state = useRef({ path: null, rows: new Map(), version: 0, isKnown: false, error: null });
  if (state.current.path !== path) {
    state.current = { path, rows: new Map(), version: 0, isKnown: false, error: null };
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
        } else {
          const key = keyOf(object);
          named?.add(key);
          current.rows.set(key, object);
        }
        current.version += 1;
        changed();
      },
      failed: (error) => {
        current.error = error;
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

/** An object, asked for again when `again` changes and every `every` milliseconds. What was known stays meanwhile. */
export function useObject(path, { again = 0, every = 0 } = {}) {
  const [, redraw] = useState(0);
  const state = useRef({ path: null });
  if (state.current.path !== path) {
    state.current = { path, object: null, error: null };
  }
  const { since } = useStore(session);
  const reload = useRef(() => {});
  useEffect(() => {
    if (path === null) return undefined;
    const current = state.current;
    const aborted = new AbortController();
    const load = async () => {
      try {
        current.object = await get(path, { signal: aborted.signal });
        current.error = null;
      } catch (error) {
        if (aborted.signal.aborted) return;
        if (error.status !== 401) current.error = error;
      }
      redraw((count) => count + 1);
    };
    reload.current = load;
    load();
    const timer = every ? setInterval(() => !document.hidden && session.get().state === "in" && load(), every) : 0;
    return () => {
      clearInterval(timer);
      aborted.abort();
    };
  }, [path, again, every, since]);
  return { ...state.current, reload: () => reload.current() };
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
