"""The routes of k8s-cli's server on FastAPI, with models of the same fields and no cluster behind them.

Asks it all of exchanges.json and prints them with the answers that it gave.
"""

import json
import sys
from typing import Annotated, Optional

from fastapi import APIRouter, FastAPI, Header, HTTPException
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field

User = Annotated[str, Header(alias="x-user")]


class Resources(BaseModel):
    cpus: Optional[str] = None
    memory: Optional[str] = None
    accelerators: Optional[str] = None
    instance_type: Optional[str] = None
    use_spot: Optional[bool] = None
    disk_size: Optional[int] = None
    ports: Optional[list[int]] = None
    image_id: Optional[str] = None


class Task(BaseModel):
    name: Optional[str] = None
    num_nodes: int = Field(default=1, ge=1)
    workdir: Optional[str] = None
    resources: Optional[Resources] = None
    envs: Optional[dict[str, str]] = None
    file_mounts: Optional[dict[str, str]] = None
    volumes: Optional[dict[str, str]] = None
    setup: Optional[str] = None
    run: str


class Volume(BaseModel):
    name: str
    size: str
    storage_class: Optional[str] = None
    access_modes: list[str] = ["ReadWriteOnce"]


tasks = APIRouter(prefix="/tasks")
volumes = APIRouter(prefix="/volumes")


def unknown(what: str, name: str):
    raise HTTPException(status_code=404, detail=f"{what} {name} not found")


@tasks.post("/submit")
def submit(task: Task, user: User):
    return {}


@tasks.post("/stop")
def stop_all(user: User, all_users: bool = False):
    whose = " for all users" if all_users else ""
    return {"count": 0, "status": "stopped", "message": f"Stopped 0 tasks{whose}"}


@tasks.post("/{task}/stop")
def stop(task: str, user: User):
    unknown("Task", task)


@tasks.get("")
def list_tasks(user: User, all_users: bool = False):
    return {"tasks": []}


@tasks.get("/{task}")
def get_task(task: str, user: User):
    unknown("Task", task)


@tasks.get("/{task}/logs")
def logs(task: str, user: User):
    unknown("Task", task)


@volumes.post("/create")
def create_volume(volume: Volume, user: User):
    return {}


@volumes.get("")
def list_volumes(user: User, all_users: bool = False):
    return {"volumes": []}


@volumes.delete("/{volume}")
def delete_volume(volume: str, user: User):
    unknown("Volume", volume)


@volumes.get("/{volume}")
def get_volume(volume: str, user: User):
    unknown("Volume", volume)


app = FastAPI()
app.include_router(tasks)
app.include_router(volumes)


@app.get("/")
def health():
    return {"status": "ok", "service": "k8s-cli-api"}


def answered(exchange: dict) -> dict:
    method, path = exchange["ask"].split(" ", 1)
    headers = {"content-type": exchange.get("type", "application/json")}
    if exchange.get("user", True):
        headers["x-user"] = "root"
    with TestClient(app, base_url="http://localhost:8750", follow_redirects=False) as client:
        answer = client.request(method, path, content=exchange.get("body", "").encode(), headers=headers)
    asked = {key: exchange[key] for key in ("ask", "user", "type", "body") if key in exchange}
    told = {"status": answer.status_code}
    if "location" in answer.headers:
        told["location"] = answer.headers["location"]
    if answer.text:
        told["answer"] = answer.json()
    return asked | told


lines = [json.dumps(answered(exchange), ensure_ascii=False) for exchange in json.load(sys.stdin)]
print("[\n" + ",\n".join(lines) + "\n]")
