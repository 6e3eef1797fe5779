"""A stand-in for AWX's REST API: keeps what the modules of awx.awx send, and refuses what AWX refuses."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.unit.awx.data import CHECKOUT
from tests.unit.awx.rules import credential_type_mistakes, survey_mistakes

Json = dict[str, Any]

TOKEN = "token-of-a-test"
PATH = re.compile(r"/api/v2/(?P<kind>\w+)/(?:(?P<number>\d+)/(?:(?P<relation>\w+)/)?)?")
TEMPLATES = ("job_templates", "workflow_job_templates")
NODES = "workflow_job_template_nodes"
APPROVALS = "workflow_approval_templates"
SYNCS = "project_updates"
# Fields of new objects that modules rely on. AWX stores a null that it does not accept as its own default.
DEFAULTS: dict[str, Json] = {
    "projects": {"scm_revision": "", "summary_fields": {}, "default_environment": None},
    "inventories": {"kind": "", "host_filter": None},
    "execution_environments": {"pull": "", "credential": None},
    "job_templates": {"project": None, "inventory": None, "execution_environment": None},
    "workflow_job_templates": {"inventory": None},
    "inventory_sources": {"inventory": None, "source_project": None, "execution_environment": None},
}
NOTIFICATIONS = tuple(f"notification_templates_{event}" for event in ("started", "success", "error"))
LISTS = {
    "job_templates": ("credentials", "labels", "instance_groups", *NOTIFICATIONS),
    "workflow_job_templates": ("labels", *NOTIFICATIONS, "notification_templates_approvals"),
    NODES: ("success_nodes", "failure_nodes", "always_nodes"),
    "roles": ("teams",),
}
# The roles that AWX creates with each object.
ROLES = {
    "job_templates": ("execute", "read", "admin"),
    "workflow_job_templates": ("execute", "approval", "read", "admin"),
}
# What a node of a workflow says of its job has to be asked for when the job's template is launched.
PROMPTS = {
    "job_type": "job_type",
    "job_tags": "tags",
    "skip_tags": "skip_tags",
    "limit": "limit",
    "forks": "forks",
    "diff_mode": "diff_mode",
}
# Fields that refer to another object.
USES = (
    "project",
    "inventory",
    "execution_environment",
    "source_project",
    "default_environment",
    "unified_job_template",
)
# Names that are unique in all of AWX, not only in an organization.
UNIQUE = ("execution_environments", "organizations", "credential_types", "teams", "instance_groups")


class Refused(Exception):
    pass


class Awx:
    """What is in it, by kind of object and number."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        # Workflow and step that AWX would have started first, had somebody launched it after one of the writes.
        self.started: set[tuple[str, str]] = set()
        self._objects: dict[str, dict[int, Json]] = {}
        self._surveys: dict[int, Json] = {}
        self._related: dict[tuple[int, str], list[int]] = {}
        self._number = 0
        # The commit of the project's branch, and how many of its next synchronizations fail.
        self.revision = "1" * 40
        self.failing_syncs = 0
        self.add("organizations", {"name": "Default"})

    def add(self, kind: str, fields: Json) -> Json:
        self._number += 1
        url = f"/api/v2/{kind}/{self._number}/"
        related = {"survey_spec": f"{url}survey_spec/"} if kind in TEMPLATES else {}
        thing: Json = {"id": self._number, "type": kind.removesuffix("s"), "url": url, "related": related}
        # Labels are the only named objects without a description.
        thing |= {"description": ""} if kind != "labels" else {}
        thing |= DEFAULTS.get(kind, {})
        self._objects.setdefault(kind, {})[self._number] = thing
        if kind in ROLES:
            roles = {f"{role}_role": {"id": self.add("roles", {})["id"]} for role in ROLES[kind]}
            thing["summary_fields"] = {"object_roles": roles}
        if kind == "projects":
            thing["related"]["update"] = f"{url}update/"
            self._set(thing, fields)
            # AWX begins to synchronize a new project at once.
            return {**thing, "summary_fields": {"current_update": {"id": self._sync(thing)["id"]}}}
        return self._set(thing, fields)

    def _sync(self, project: Json) -> Json:
        """Synchronize a project, and return the job."""
        failed = self.failing_syncs > 0
        self.failing_syncs -= failed
        if not failed:
            project["scm_revision"] = self.revision
        return self.add(
            SYNCS,
            {
                "name": project["name"],
                "project": project["id"],
                "status": "failed" if failed else "successful",
                "failed": failed,
                "finished": "2026-01-01T00:00:00Z",
                "event_processing_finished": True,
                "scm_revision": project["scm_revision"],
            },
        )

    def get(self, number: int) -> Json:
        return next(things[number] for things in self._objects.values() if number in things)

    def all(self, kind: str, organization: str = "Default") -> dict[str, Json]:
        """Objects of a kind in an organization, or in none, by their names."""
        things = self._objects.get(kind, {}).values()
        return {thing["name"]: thing for thing in things if self._organization(thing) in (organization, None)}

    def everything(self, kind: str) -> list[Json]:
        return list(self._objects.get(kind, {}).values())

    def in_organization(self, kind: str, organization: str) -> list[Json]:
        return [thing for thing in self.everything(kind) if self._organization(thing) == organization]

    def _organization(self, thing: Json) -> str | None:
        number = thing.get("organization")
        return str(self.get(number)["name"]) if number else None

    def nodes_of(self, workflow: Json) -> dict[str, Json]:
        things = self._objects.get(NODES, {}).values()
        return {thing["identifier"]: thing for thing in things if thing["workflow_job_template"] == workflow["id"]}

    def roots(self, workflow: Json) -> list[str]:
        """The steps that AWX starts first. It starts none at all as long as one of them has no job."""
        nodes = self.nodes_of(workflow)
        children = {number for node in nodes.values() for kind in LISTS[NODES] for number in self._ids(node, kind)}
        roots = {name: node for name, node in nodes.items() if node["id"] not in children}
        return sorted(roots) if all("unified_job_template" in node for node in roots.values()) else []

    def _ids(self, thing: Json, relation: str) -> list[int]:
        return self._related.get((thing["id"], relation), [])

    def _shown(self, thing: Json) -> Json:
        """Nodes show the numbers of the nodes that follow."""
        if not thing["url"].startswith(f"/api/v2/{NODES}/"):
            return thing
        workflow = {"workflow_job_template": {"name": self.get(thing["workflow_job_template"])["name"]}}
        followers = {relation: list(self._ids(thing, relation)) for relation in LISTS[NODES]}
        return {**thing, "summary_fields": workflow, **followers}

    def _delete(self, kind: str, thing: Json) -> tuple[int, Json]:
        del self._objects[kind][thing["id"]]
        if kind == "workflow_job_templates":
            for node in self.nodes_of(thing).values():
                self._delete(NODES, node)
        for schedule in list(self._objects.get("schedules", {}).values()):
            if schedule["unified_job_template"] == thing["id"]:
                self._delete("schedules", schedule)
        # AWX deletes what others use, and takes it away from them.
        for other in (other for things in self._objects.values() for other in things.values()):
            for field in USES:
                if other.get(field) == thing["id"]:
                    other[field] = None
        for numbers in self._related.values():
            numbers[:] = [number for number in numbers if number != thing["id"]]
        return 204, {}

    def survey(self, template: Json) -> Json:
        return self._surveys.get(template["id"], {})

    def related(self, thing: Json, relation: str) -> list[Json]:
        return [self.get(number) for number in self._ids(thing, relation)]

    def answer(self, method: str, address: str, body: Json) -> tuple[int, Json]:
        """Status and content of the answer to a request."""
        url = urlsplit(address)
        place = PATH.fullmatch(url.path)
        if place is None:
            return 404, {}
        if method != "GET":
            self.writes.append(f"{method} {url.path}")
        answer = self._answer(method, place, url.query, body)
        if method != "GET":
            workflows = self.all(TEMPLATES[1])
            self.started |= {(name, step) for name, workflow in workflows.items() for step in self.roots(workflow)}
        return answer

    def _answer(self, method: str, place: re.Match[str], query: str, body: Json) -> tuple[int, Json]:
        try:
            if place["relation"]:
                return self._answer_of_relation(method, place["kind"], int(place["number"]), place["relation"], body)
            if place["number"]:
                thing = self.get(int(place["number"]))
                if method == "DELETE":
                    return self._delete(place["kind"], thing)
                return 200, self._shown(thing) if method == "GET" else self._checked(place["kind"], thing, body)
            if method == "GET":
                things = self._filtered(place["kind"], dict(parse_qsl(query)))
                return 200, _page([self._shown(thing) for thing in things])
            return 201, self._checked(place["kind"], None, body)
        except Refused as refusal:
            return 400, {"error": str(refusal)}

    def _answer_of_relation(self, method: str, kind: str, number: int, relation: str, body: Json) -> tuple[int, Json]:
        thing = self.get(number)
        if relation == "survey_spec" and kind in TEMPLATES:
            if method == "GET":
                return 200, self.survey(thing)
            _refuse(survey_mistakes(body))
            self._surveys[number] = body
            return 200, {}
        if relation == "update" and kind == "projects" and method == "POST":
            return 202, self._sync(thing)
        if relation == "stdout" and kind == SYNCS:
            return 200, {"content": "fatal: repository not found" if thing["failed"] else "ok"}
        if relation == "create_approval_template" and kind == NODES:
            approval = self.add(APPROVALS, _of_approval(body))
            self._set(thing, {"unified_job_template": approval["id"]})
            return 201, approval
        if relation not in LISTS.get(kind, ()):
            return 404, {}
        if method == "GET":
            return 200, _page(self.related(thing, relation))
        numbers = self._related.setdefault((number, relation), [])
        if body.get("disassociate"):
            numbers.remove(body["id"])
        elif kind == NODES and any(body["id"] in self._ids(thing, other) for other in LISTS[kind] if other != relation):
            raise Refused("Relationship not allowed.")
        elif body["id"] not in numbers:
            numbers.append(body["id"])
        return 204, {}

    def _checked(self, kind: str, thing: Json | None, fields: Json) -> Json:
        """A new object, or one that has changed, if AWX accepts it."""
        if kind == "credential_types":
            _refuse(credential_type_mistakes({**(thing or {}), **fields}))
        if kind == "job_templates" and "playbook" in fields:
            # AWX judges the name by the files of the last synchronization that succeeded.
            project = self.get(fields.get("project") or (thing or {})["project"])
            if not (project["scm_revision"] and (CHECKOUT / fields["playbook"]).is_file()):
                raise Refused("Playbook not found for project.")
        if (
            kind == "execution_environments"
            and thing
            and fields.get("organization") not in (None, thing["organization"])
        ):
            raise Refused("Cannot change the organization of an execution environment")
        if (
            kind in UNIQUE
            and not thing
            and fields["name"] in {one["name"] for one in self._objects.get(kind, {}).values()}
        ):
            raise Refused(f"{kind} with this name already exists.")
        if kind == NODES and (target := fields.get("unified_job_template")):
            template = self.get(target)
            for field, prompt in PROMPTS.items():
                if field in fields and not template.get(f"ask_{prompt}_on_launch"):
                    raise Refused(f"Field is not configured to prompt on launch: {field}")
        if kind == APPROVALS:
            fields = _of_approval(fields)
        return self._set(thing, fields) if thing else self.add(kind, fields)

    def _set(self, thing: Json, fields: Json) -> Json:
        thing |= {key: value for key, value in fields.items() if value is not None or key not in thing}
        if thing.get("unified_job_template"):
            thing["related"]["unified_job_template"] = self.get(thing["unified_job_template"])["url"]
        return thing

    def _filtered(self, kind: str, filters: dict[str, str]) -> list[Json]:
        newest_first = filters.get("order_by") == "-id"
        kinds = (*TEMPLATES, APPROVALS) if kind == "unified_job_templates" else (kind,)
        things = [thing for one in kinds for thing in self._objects.get(one, {}).values()]
        filters = {
            key: value for key, value in filters.items() if key not in ("order_by", "page_size", "page", "format")
        }
        either = {key.removeprefix("or__"): value for key, value in filters.items() if key.startswith("or__")}
        found = [
            thing
            for thing in things
            if all(self._matches(thing, key, value) for key, value in filters.items() if not key.startswith("or__"))
            and (not either or any(self._matches(thing, key, value) for key, value in either.items()))
        ]
        return found[::-1] if newest_first else found

    def _matches(self, thing: Json, path: str, value: str) -> bool:
        """Whether a field, or a field of a related object, has the value or one of the values."""
        name, _, rest = path.partition("__")
        if rest == "in":
            if not value:
                raise Refused("cannot provide empty value for __in")
            return str(thing.get(name)) in value.split(",")
        if rest:
            number = thing.get(name)
            return bool(number) and self._matches(self.get(number), rest, value)
        return str(thing.get(name)) == value


def _of_approval(fields: Json) -> Json:
    return {key: fields[key] for key in ("name", "description", "timeout") if key in fields}


def _refuse(mistakes: Iterator[str]) -> None:
    if found := list(mistakes):
        raise Refused("; ".join(found))


def _page(things: list[Json]) -> Json:
    return {"count": len(things), "next": None, "results": things}


@contextlib.contextmanager
def served(awx: Awx) -> Iterator[str]:
    """Its address, as long as it is served."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            if self.headers.get("Authorization") == f"Bearer {TOKEN}":
                status, content = awx.answer(self.command, self.path, body)
            else:
                status, content = 401, {}
            answer = b"" if status == 204 else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
