"""A serving host on "another machine": a process with a home and a token of its own, reached over loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from dataclasses import replace

import pytest
from real_server import token_of
from served_for_real import site, until
from starlette.testclient import TestClient
from tiny_models import make_tiny_model

from arena_gitops import __version__
from arena_gitops.spec.job import ModelRef
from arena_gitops.spec.wire import Tier
from arena_runner.server.auth import Role
from arena_runner.server.hosts import LOST_S
from arena_runner.server.places import Place
from arena_runner.server.services import tokens
from arena_runner.server.settings import TierFile

pytestmark = pytest.mark.timeout(900)
HOSTED = Tier(id="gpu", num_cpus=2, ram_gb=4.0, credits_per_node_hour=1.0, serving="pull")


@pytest.fixture(scope="module")
def place(tmp_path_factory, adapter_writer):
    """A server whose tier `gpu` is served by hosts; nobody is there yet."""
    root = tmp_path_factory.mktemp("hosts")
    make_tiny_model(root / "home" / "models" / "tiny")
    for member in (0, 1):
        adapter_writer(root / "home" / "models" / "tiny", root / f"m{member}", seed=member + 1)
    tiers = ({"id": "local"}, {"id": "gpu", "serving": "pull"})
    with site(root / "home", root, tiers=tiers) as made:
        yield types.SimpleNamespace(site=made, root=root)


def start_host(place, home, *how):
    """`arena-runner serve --server …`, in an environment that knows of the server by its address only."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARENA_")}
    kept |= {"ARENA_WORKER_TOKEN": token_of(place.site.server, "worker"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "arena_runner.cli", "serve", "--server", place.site.server.url]
    command += ["--tier", "gpu", "--home", str(home), "--dtype", "float32", *how]
    home.mkdir(exist_ok=True)
    with (home / "host.log").open("ab") as log:
        return subprocess.Popen(command, env=kept, stdout=log, stderr=log)


def model_server_of(home):
    return json.loads(next((home / "processes").glob("hosted-*.json")).read_text())["pid"]


def test_a_host_serves_what_it_gets_through_the_server_and_is_missed_when_it_goes(place):
    ours, home = place.site, place.root / "host"
    ours.put("deployment", "far", experiment="trained", checkpoint="step_8/m0", tier="gpu")
    alone = until(lambda: (s := ours.status("far"))["message"].startswith("no serving host") and s)
    assert (alone["state"], alone["message"]) == ("pending", "no serving host for tier gpu")
    assert ours.chat("far").status_code == 503

    host = start_host(place, home)
    try:
        ours.serves("far", "step_8/m0")
        first = ours.says("far")
        assert ours.chat("far").json()["system_fingerprint"].startswith("far@1 step_8/m0 ")
        assert not list((ours.server.home / "processes").glob("model-*.json"))  # the server runs none itself
        base = next((home / "models-of-server").glob("*/tiny/config.json"))
        assert base.read_bytes() == (ours.server.home / "models" / "tiny" / "config.json").read_bytes()
        assert len(list((home / "adapters").iterdir())) == 2

        second = ours.shows("far", "step_8/m1", "gpu")
        assert second != first

        ours.back_after("far", lambda: os.kill(model_server_of(home), signal.SIGKILL))
        assert ours.says("far") == second
    finally:
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 0, (home / "host.log").read_text()
    gone = until(lambda: (s := ours.status("far"))["state"] == "pending" and s)
    assert gone["message"] == "no serving host for tier gpu"
    assert ours.chat("far").headers["retry-after"]

    behind_nat = start_host(place, home, "--dial")
    try:
        ours.serves("far", "step_8/m1")
        assert ours.says("far") == second
        assert ours.shows("far", "step_8/m0", "gpu") == first
        assert f"dials {ours.server.url}" in (home / "host.log").read_text()
    finally:
        behind_nat.send_signal(signal.SIGTERM)
        assert behind_nat.wait(60) == 0, (home / "host.log").read_text()


@pytest.fixture
def hosted(plane):
    """A control plane with a tier of hosts, a client, and what a host says by default."""
    world = replace(plane.world, tiers=TierFile(tiers=(*plane.world.tiers.tiers, HOSTED)))
    from arena_runner.server.app import create_app

    def report(token, **more):
        said = {"host_id": "h1", "hostname": "box", "tier": "gpu", "version": __version__}
        said |= {"url": "http://10.0.0.7:9000", **more}
        headers = {"Authorization": f"Bearer {token}"}
        return client.post("/api/v1/workers/hosts", json=said, headers=headers)

    with TestClient(create_app(world)) as client:
        made = types.SimpleNamespace(world=world, report=report, client=client)
        made.token = tokens.create(world, Role.WORKER, name="rig", tier="gpu")[0]
        yield made


def code(answer):
    return answer.status_code, answer.json()["code"]


def test_who_may_be_a_host(hosted):
    assert hosted.report(hosted.token).json()["models"] == []
    elsewhere = tokens.create(hosted.world, Role.WORKER, name="other", tier="local")[0]
    assert code(hosted.report(elsewhere)) == (403, "forbidden")
    anybody = tokens.create(hosted.world, Role.WORKER, name="any")[0]
    assert code(hosted.report(anybody)) == (403, "forbidden")  # the name is another token's
    assert code(hosted.report(anybody, host_id="h2", tier="local")) == (422, "local-tier")
    assert code(hosted.report(anybody, host_id="h2", tier="gqu")) == (422, "unknown-tier")
    assert code(hosted.report(anybody, host_id="h2", version="0.0.1")) == (426, "wrong-version")


def test_who_may_hold_a_line_open(hosted):
    def line(token, path):
        headers = {"Authorization": f"Bearer {token}"}
        return hosted.client.request(*path, headers=headers)

    assert code(line(hosted.token, ("GET", "/api/v1/workers/hosts/h1/line"))) == (404, "not-found")
    hosted.report(hosted.token, url=None)
    anybody = tokens.create(hosted.world, Role.WORKER, name="any")[0]
    assert code(line(anybody, ("GET", "/api/v1/workers/hosts/h1/line"))) == (403, "forbidden")
    assert code(line(anybody, ("POST", "/api/v1/workers/hosts/h1/line/x"))) == (403, "forbidden")
    assert code(line(hosted.token, ("POST", "/api/v1/workers/hosts/h1/line/x"))) == (404, "not-found")
    hosted.world.links.hosts.want([Place(ModelRef(id="tiny"), "torch", "gpu")], hosted.world.clock())
    assert hosted.world.links.hosts.find("tiny on gpu") is None  # it has opened no connection yet


def test_a_hosts_token_opens_what_it_should_serve_and_nothing_else(hosted):
    model = hosted.world.home.models / "tiny"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text("{}")
    headers = {"Authorization": f"Bearer {hosted.token}"}
    blob = hosted.world.blobs.put(b"an adapter")

    def answers():
        paths = ("/api/v1/models/tiny@main/", f"/api/v1/blobs/{blob}")
        return [hosted.client.get(path, headers=headers).status_code for path in paths]

    hosted.report(hosted.token)
    assert answers() == [409, 409]
    hosted.world.links.hosts.want([Place(ModelRef(id="tiny"), "torch", "gpu")], hosted.world.clock())
    assert [m["key"] for m in hosted.report(hosted.token).json()["models"]] == ["tiny on gpu"]
    assert answers() == [200, 409]


def test_a_place_stays_with_its_host_and_moves_when_that_is_lost(hosted):
    hosts, now = hosted.world.links.hosts, hosted.world.clock()
    places = [Place(ModelRef(id=name), "torch", "gpu") for name in "ab"]
    hosted.report(hosted.token)
    hosts.want(places, now)
    hosted.report(hosted.token, host_id="h2")
    hosts.want(places, now)
    assert [len(hosts.orders(name)) for name in ("h1", "h2")] == [2, 0]
    hosts.heard(hosts.of("h2").report, hosts.of("h2").token_id, now + 2 * LOST_S)
    hosts.want(places, now + 2 * LOST_S)
    assert [len(hosts.orders(name)) for name in ("h1", "h2")] == [0, 2]
