// Which view is shown stands behind the `#` of the address, so that it can be shared and works under any prefix.

import { useEffect, useState } from "./preact.js";

function read() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, query: Object.fromEntries(new URLSearchParams(search)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function to(parts, query = {}) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) search.set(key, value);
  return `#/${parts.map(encodeURIComponent).join("/")}${search.size ? `?${search}` : ""}`;
}

export function useRoute() {
  const [route, set] = useState(read);
  useEffect(() => {
    const changed = () => set(read());
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Another state of the same view: no step of the history. */
export function refine(parts, query) {
  history.replaceState(null, "", to(parts, query));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
