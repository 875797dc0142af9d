"""Reads answers with the generated client, as it would from fedqd."""

import json

import httpx

from fedq import AuthenticatedClient
from fedq.api.claims import edit_claim
from fedq.api.clusters import list_clusters
from fedq.models import ClaimSpec, ClusterList, Problem
from fedq.models.cluster_watch_change import ClusterWatchChange
from fedq.models.cluster_watch_change_type import ClusterWatchChangeType
from fedq.models.code import Code
from fedq.models.watch_synced import WatchSynced

CLUSTER = {
    "name": "east", "state": "Ready", "cordoned": False, "source": "kubeconfig", "flavors": [],
    "nodes": {"total": 12, "usable": 10}, "capacity": {"gpu": "80"}, "foreign": {},
    "lastSeen": "2026-08-01T09:30:00.000Z",
}


def answer(request: httpx.Request) -> httpx.Response:
    assert request.headers["authorization"] == "Bearer secret"
    if request.method == "PUT":
        assert request.headers["if-match"] == '"7.0"'
        assert json.loads(request.content) == {"clusterName": "east"}
        problem = {"status": 412, "title": "Precondition Failed", "code": "conflict", "detail": "it was changed"}
        return httpx.Response(412, json=problem, headers={"content-type": "application/problem+json"})
    page = {"items": [CLUSTER]}
    if "continue" not in request.url.params:
        page["continue"] = "east"
    return httpx.Response(200, json=page)


client = AuthenticatedClient("http://fedqd", "secret", httpx_args={"transport": httpx.MockTransport(answer)})
seen, next_page = 0, {}
while True:
    page = list_clusters.sync(client=client, limit=1, **next_page)
    assert isinstance(page, ClusterList)
    seen += sum(cluster.nodes.usable for cluster in page.items)
    assert page.items[0].last_seen.year == 2026
    if not page.continue_:
        break
    next_page = {"continue_": page.continue_}
assert seen == 20, seen

refused = edit_claim.sync("east-resource-claim", client=client, body=ClaimSpec("east"), if_match='"7.0"')
assert isinstance(refused, Problem) and refused.code == Code.CONFLICT, refused

change = ClusterWatchChange.from_dict({"type": "DELETED", "object": CLUSTER})
assert change.type_ == ClusterWatchChangeType.DELETED and change.object_.name == "east"
WatchSynced.from_dict({"type": "SYNCED"})
