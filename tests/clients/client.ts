// A client made of the types alone: pages of clusters, an edit that may meet a conflict, a followed list.
import type { components, operations, paths } from "./fedq";

type Cluster = components["schemas"]["Cluster"];
type Problem = components["schemas"]["Problem"];
type Page = paths["/api/v1/clusters"]["get"]["responses"][200]["content"]["application/json"];
type Edit = operations["edit_claim"];
type Event = components["schemas"]["ClusterWatchEvent"];

export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

export class Fedq {
  constructor(
    private readonly server: string,
    private readonly token: string,
  ) {}

  private async send(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json", ...init.headers };
    const response = await fetch(this.server + path, { ...init, headers });
    if (!response.ok) throw new Refused((await response.json()) as Problem);
    return response;
  }

  async clusters(limit: number): Promise<Cluster[]> {
    const all: Cluster[] = [];
    const query: NonNullable<operations["list_clusters"]["parameters"]["query"]> = { limit };
    for (;;) {
      const text = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)]));
      const page = (await (await this.send(`/api/v1/clusters?${text}`)).json()) as Page;
      all.push(...page.items);
      if (page.continue === undefined) return all;
      query.continue = page.continue;
    }
  }

  /** False: somebody was faster. */
  async edit(
    claim: Edit["parameters"]["path"]["claim"],
    etag: Edit["parameters"]["header"]["If-Match"],
    spec: Edit["requestBody"]["content"]["application/json"],
  ): Promise<boolean> {
    try {
      await this.send(`/api/v1/claims/${claim}`, {
        method: "PUT",
        headers: { "if-match": etag },
        body: JSON.stringify(spec),
      });
      return true;
    } catch (error) {
      if (error instanceof Refused && error.problem.code === "conflict") return false;
      throw error;
    }
  }
}

/** What one line of a stream does to the clusters that are known. */
export function follow(known: Map<string, Cluster>, line: string): "synced" | number {
  const event = JSON.parse(line) as Event;
  if (event.type === "SYNCED") return "synced";
  const cluster = event.object;
  if (event.type === "DELETED") known.delete(cluster.name);
  else known.set(cluster.name, cluster);
  return cluster.nodes.usable;
}
