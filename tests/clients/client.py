"""What a program does with the generated client: pages, an edit that meets a conflict, a task, its log, a followed list.

FEDQ_SERVER and FEDQ_TOKEN say where fedqd is; FEDQ_CUT, where it is reached by connections that break.
"""

import json
import os
import time

import httpx

from fedq import AuthenticatedClient
from fedq.api.claims import edit_claim, get_claim
from fedq.api.clusters import list_clusters
from fedq.api.tasks import get_task, submit_task
from fedq.models import ClaimDetail, ClaimSpec, ClusterList, Problem, SubmitTask, Submitted, TaskDetail
from fedq.models.code import Code
from fedq.models.log_line import LogLine
from fedq.models.task import Task
from fedq.models.task_watch_change import TaskWatchChange
from fedq.models.task_watch_change_type import TaskWatchChangeType
from fedq.models.watch_synced import WatchSynced

CLAIM = "tokyo-resource-claim"
# Where fedqd itself runs it: what MultiKueue dispatches leaves no log behind.
CLUSTER = "oregon"
OVER = {"succeeded", "failed", "stopped"}


def connected(server: str) -> AuthenticatedClient:
    return AuthenticatedClient(server, os.environ["FEDQ_TOKEN"], timeout=httpx.Timeout(60.0))


def clusters_by_pages(client: AuthenticatedClient) -> list[str]:
    names, pages, place = [], 0, {}
    while True:
        page = list_clusters.sync(client=client, limit=1, **place)
        assert isinstance(page, ClusterList), page
        names += [cluster.name for cluster in page.items]
        pages += 1
        if not page.continue_:
            assert pages == 3, pages
            return names
        place = {"continue_": page.continue_}


def read(client: AuthenticatedClient) -> tuple[str, ClaimDetail]:
    answer = get_claim.sync_detailed(CLAIM, client=client)
    assert isinstance(answer.parsed, ClaimDetail), answer
    return answer.headers["ETag"], answer.parsed


def edit(client: AuthenticatedClient) -> None:
    """Takes a GPU from a queue, on what is there: whoever was faster is not overwritten."""
    stale, _ = read(client)
    while True:
        etag, claim = read(client)
        wanted: ClaimSpec = claim.spec
        gpus = wanted.resource_assignments[0].resources.additional_properties
        gpus["gpu"] = str(int(gpus["gpu"]) - 1)
        answer = edit_claim.sync(CLAIM, client=client, body=wanted, if_match=etag)
        if not isinstance(answer, Problem):
            break
        assert answer.code == Code.CONFLICT, answer
    refused = edit_claim.sync_detailed(CLAIM, client=client, body=wanted, if_match=stale)
    assert refused.status_code == 412 and isinstance(refused.parsed, Problem), refused
    assert refused.parsed.code == Code.CONFLICT, refused.parsed


class Followed:
    """The tasks there are, as a stream tells of them; it goes on where its connection breaks."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.connections = 0

    def until(self, client: AuthenticatedClient, holds) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self.connections += 1
            try:
                if self.one_connection(client, holds):
                    return
            except httpx.TransportError:
                pass
        raise AssertionError(f"waited in vain, over {self.connections} connections: {self.tasks}")

    def one_connection(self, client: AuthenticatedClient, holds) -> bool:
        # A stream begins with all that is there: what it does not name by SYNCED went meanwhile.
        begun: set[str] | None = set()
        with client.get_httpx_client().stream("GET", "/api/v1/tasks", params={"watch": "true"}) as response:
            response.raise_for_status()
            for line in filter(str.strip, response.iter_lines()):
                event = json.loads(line)
                if event["type"] == "SYNCED":
                    WatchSynced.from_dict(event)
                    self.tasks = {name: task for name, task in self.tasks.items() if name in begun}
                    begun = None
                else:
                    change = TaskWatchChange.from_dict(event)
                    if change.type_ == TaskWatchChangeType.DELETED:
                        self.tasks.pop(change.object_.id, None)
                        continue
                    self.tasks[change.object_.id] = change.object_
                    if begun is not None:
                        begun.add(change.object_.id)
                if begun is None and holds(self.tasks):
                    return True
        return False


def log(client: AuthenticatedClient, task: str) -> list[str]:
    with client.get_httpx_client().stream("GET", f"/api/v1/tasks/{task}/logs") as response:
        response.raise_for_status()
        lines = [json.loads(line) for line in response.iter_lines() if line.strip()]
    return [LogLine.from_dict(line).line for line in lines if line["type"] == "LINE"]


client = connected(os.environ["FEDQ_SERVER"])
assert clusters_by_pages(client) == ["frankfurt", "oregon", "tokyo"]
edit(client)

task = "resources: {accelerators: A100:1}\nrun: echo hello\n"
submitted = submit_task.sync(client=client, body=SubmitTask(file=task, name="from-python", cluster=CLUSTER))
assert isinstance(submitted, Submitted), submitted
followed = Followed()
followed.until(
    connected(os.environ["FEDQ_CUT"]),
    lambda tasks: submitted.id in tasks and tasks[submitted.id].phase in OVER,
)
assert followed.connections > 1, "no connection broke"
done = get_task.sync(submitted.id, client=client)
assert isinstance(done, TaskDetail) and done.phase == "succeeded", done
lines = log(client, submitted.id)
assert any(line.startswith("hello") for line in lines), lines
print(f"task {submitted.id} succeeded, followed over {followed.connections} connections")
