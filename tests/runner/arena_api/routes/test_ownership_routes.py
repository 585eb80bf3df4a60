"""Commands and repositories do not touch each other's resources."""

from __future__ import annotations

from arena_asks import P

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner, PutResource
from arena_runner.server.services import resources


def test_commands_change_nothing_that_a_repository_manages(world, http):
    spec = {"description": "", "labels": {}, "llm_based": True}
    body = PutResource(owner=Owner(stack="team"), spec=spec, fingerprint=fingerprint(spec, {}))
    resources.put(world, resources.Put(Address("project", "p"), body, None))

    answer = http.request("DELETE", f"{P}/projects/delete", json={"name": "p"})

    assert (answer.status_code, answer.json()["error_code"]) == (409, "owned-by-other")
    assert "'team'" in answer.json()["detail"]


def test_a_repository_cannot_take_the_commands_stack(http, submitted):
    spec = {"description": ""}
    body = PutResource(owner=Owner(stack="imperative"), spec=spec, fingerprint=fingerprint(spec, {}))

    answer = http.put("/api/v1/resources/project/p", json=body.model_dump(mode="json"))
    gone = http.delete("/api/v1/resources/experiment/exp?stack=imperative")

    assert [a.json()["code"] for a in (answer, gone)] == ["reserved-stack"] * 2
