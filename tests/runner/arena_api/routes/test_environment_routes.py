"""Environments by name and version: sent, checked, measured, copied, deleted."""

from __future__ import annotations

import json

import pytest
from archives import MERGE, tar_gz
from arena_asks import P

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner, PutResource
from arena_runner.server.services import environment_checks, resources

pytestmark = pytest.mark.one_database
E = f"{P}/environments"
GZIP = "application/gzip"
TWO = MERGE + "\n\nclass Other(MergeEnv):\n    pass\n\n\nclass Third(MergeEnv):\n    pass\n"


def send(http, files=None, name="merge-env", requirements=b"", config=b"", **fields):
    """`env validate NAME --source …`: both side files are always there, empty when they are not given."""
    data = {"name": name, "version": "v1", "multi_agent": "false", "language_based": "false", **fields}
    data.setdefault("do_rollouts", "false")
    archive = files if isinstance(files, bytes) else tar_gz({"merge.py": MERGE} if files is None else files)
    parts = {
        "file": ("merge.tar.gz", archive, GZIP),
        "env_config": ("env_config.yaml", config, "application/x-yaml"),
        "requirements": ("requirements.txt", requirements, "text/plain"),
    }
    return http.post(f"{E}/create-and-validate", data=data, files=parts)


def lines(answer):
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def flags(http, **query):
    return http.get(E, params={"name": "", "include_arena": "false", **query}).json()


@pytest.fixture
def valid(http):
    return lines(send(http))


def test_what_is_sent_is_checked_measured_and_listed(http, valid):
    last = valid[-1]

    assert (last["status"], last["detail"]["entrypoint"]) == ("completed", "merge:MergeEnv")
    assert last["detail"]["steps_per_second"] > 0
    checks = {line["detail"]["check"]: line["detail"]["result"] for line in valid if line["kind"] == "check"}
    assert checks["environment/merge-env library check"] == {"success": True, "warnings": []}
    assert flags(http) == {"merge-env": {"v1": {"validated": True, "profiled": True}}}


def test_the_same_files_are_the_same_environment_as_one_declared_in_a_repository(http, valid):
    state = http.get("/api/v1/state?stack=imperative").json()

    found = next(r for r in state["resources"] if r["kind"] == "environment")
    assert list(found["spec"]["files"]) == ["merge.py"]
    assert found["version"] == 1


def test_questions_with_empty_values_are_about_the_latest_version(http, valid):
    lines(send(http, {"merge.py": MERGE.replace("size=4", "size=5")}, version="v2"))

    assert http.get(f"{E}/exists?name=merge-env&version=").json()["version"] == "v2"
    assert http.get(f"{E}/exists?name=merge-env&version=v9").json() == {"exists": False}
    assert http.get(f"{E}/exists?name=nobody&version=").json() == {"exists": False}
    assert http.get(f"{E}/entrypoints?name=merge-env&version=").json() == ["merge:MergeEnv"]


def test_several_environments_in_one_archive_ask_for_a_choice(http):
    answer = send(http, {"merge.py": TWO})

    body = answer.json()
    assert (answer.status_code, body["error_code"]) == (422, "AMBIGUOUS_ENTRYPOINT")
    assert body["available_entrypoints"] == ["merge:Other", "merge:Third"]
    assert flags(http) == {}
    assert (
        lines(send(http, {"merge.py": TWO}, entrypoint="Third"))[-1]["detail"]["entrypoint"] == "merge:Third"
    )


def test_a_folder_around_everything_and_side_files_are_no_part_of_the_code(http):
    files = {
        "merge-env/merge.py": MERGE,
        "merge-env/env_config.yaml": "size: 7\n",
        "merge-env/.env": "TOKEN=x",
    }

    sent = lines(send(http, files))

    assert "Box(0.0, 1.0, (7,)" in sent[-1]["detail"]["observation_space"]
    assert any(line["message"] == "left out of the archive: merge-env/.env" for line in sent)


def test_a_side_file_that_is_sent_both_ways_is_no_part_of_the_code_either(http):
    files = {"merge.py": MERGE, "env_config.yaml": "size: 7\n"}
    lines(send(http, files, config=b"size: 7\n"))
    lines(send(http, files, config=b"size: 8\n", name="other"))
    found = {r["name"]: r["spec"] for r in http.get("/api/v1/state?stack=imperative").json()["resources"]}
    assert (list(found["merge-env"]["files"]), found["merge-env"]["env_config"]) == (
        ["merge.py"],
        {"size": 7},
    )
    assert sorted(found["other"]["files"]) == ["env_config.yaml", "merge.py"]
    assert found["other"]["env_config"] == {"size": 8}


def test_a_wrong_environment_ends_in_failed_and_may_be_sent_again(http):
    broken = MERGE.replace("self.left = 10", "self.left = 1 / 0")

    last = lines(send(http, {"merge.py": broken}))[-1]

    assert last["status"] == "failed"
    assert "merge.py:13: ZeroDivisionError" in last["message"]
    assert flags(http) == {"merge-env": {"v1": {"validated": False, "profiled": False}}}
    assert lines(send(http))[-1]["status"] == "completed"


def test_a_valid_version_is_not_replaced(http, valid):
    again = lines(send(http))
    other = send(http, {"merge.py": MERGE + "\n# more\n"})

    assert again[-1]["status"] == "completed"
    assert (other.status_code, other.json()["error_code"]) == (409, "exists")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"files": b"no archive"}, "not a tar.gz archive"),
        ({"files": {"notes.txt": "x"}}, "there is no environment in it"),
        ({"entrypoint": "nowhere:Env"}, "found: merge:MergeEnv"),
        ({"requirements": b"-r other.txt\n"}, "requirements.txt: '-r other.txt' is not understood"),
        ({"config": b"- 1\n"}, "env_config: expected a mapping"),
        ({"config": b"{a: [\n"}, "env_config: "),
        ({"name": "!!!"}, "is no name"),
    ],
)
def test_what_cannot_be_checked_is_refused_before_anything_is_kept(http, more, said):
    answer = send(http, **more)

    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert not {"[", "]"} & set(answer.json()["detail"])
    assert flags(http) == {}


def test_a_version_is_checked_again_and_profiled(http, valid):
    again = lines(
        http.post(f"{E}/validate", json={"name": "merge-env", "version": None, "do_rollouts": True})
    )
    figures = lines(http.post(f"{E}/profile", json={"name": "merge-env", "version": None}))[-1]["detail"]

    assert again[-1]["detail"]["episodes"] == 100
    assert all(isinstance(value, float) for value in figures.values())


def test_what_is_not_valid_is_not_profiled(http):
    send(http, {"merge.py": MERGE.replace("self.left = 10", "self.left = 1 / 0")})

    last = lines(http.post(f"{E}/profile", json={"name": "merge-env", "version": "v1"}))[-1]

    assert (last["status"], last["detail"]["error_code"]) == ("failed", "not-validated")


def test_a_stream_ends_in_failed_when_the_server_itself_fails(http, monkeypatch):
    def broken(*_args, **_more):
        yield from ()
        raise KeyError("a bug")

    monkeypatch.setattr(environment_checks, "validate", broken)

    last = lines(send(http))[-1]

    assert (last["status"], last["detail"]["error_code"]) == ("failed", "internal")
    assert "a bug" not in last["message"]


def test_a_copy_has_the_same_content_and_a_deleted_version_is_gone(http, valid):
    body = {"name": "merge-env", "new_version_name": "v2", "version": None}

    made = http.post(f"{E}/duplicate", json=body).json()
    again = http.post(f"{E}/duplicate", json=body)
    gone = http.request("DELETE", f"{E}/delete", json={"name": "merge-env", "version": "v1"}).json()

    assert (made["source_version"], again.status_code, gone["version"]) == ("v1", 409, "v1")
    assert flags(http) == {"merge-env": {"v2": {"validated": True, "profiled": True}}}
    http.request("DELETE", f"{E}/delete", json={"name": "merge-env", "version": None})
    assert flags(http) == {}


def test_registered_ids_are_listed_when_they_are_asked_for(http):
    pytest.importorskip("gymnasium")

    assert flags(http, include_arena="true")["CartPole-v1"] == {"v1": {"validated": True, "profiled": False}}


@pytest.mark.parametrize("route", ["validate", "profile"])
def test_an_unknown_environment_is_said_with_what_there_is(http, valid, route):
    answer = http.post(f"{E}/{route}", json={"name": "nobody", "version": None})

    assert answer.status_code == 404
    assert answer.json()["detail"] == "environment 'nobody' not found on this server; there are: merge-env"


def test_an_environment_of_a_repository_is_checked_here_and_changed_only_there(world, http):
    spec = {
        "description": "",
        "labels": {},
        "address": "environment/merge",
        "files": {"merge.py": world.blobs.put(MERGE.encode())},
        "entrypoint": "merge:MergeEnv",
    }
    body = PutResource(owner=Owner(stack="team"), spec=spec, fingerprint=fingerprint(spec, {}))
    resources.put(world, resources.Put(Address("environment", "merge"), body, None))

    checked = lines(http.post(f"{E}/validate", json={"name": "merge", "version": None}))
    gone = http.request("DELETE", f"{E}/delete", json={"name": "merge", "version": None})

    assert checked[-1]["status"] == "completed"
    assert flags(http) == {"merge": {"v1": {"validated": True, "profiled": True}}}
    assert (gone.status_code, gone.json()["error_code"]) == (409, "owned-by-other")
