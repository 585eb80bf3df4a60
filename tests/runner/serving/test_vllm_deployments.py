"""Deployments by vLLM, through a real server and the real vLLM: chosen by file or tier, answered, killed, back."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import psutil
import pytest
from served_for_real import site
from tiny_models import make_tiny_model

from arena_gitops.spec.wire import DeploymentSpec, Tier
from arena_runner.server.places import chosen, place_of
from arena_runner.server.settings import ModelServers, Settings, TierFile

pytestmark = pytest.mark.timeout(900)
FIGURES = {"num_cpus": 2, "ram_gb": 4.0, "credits_per_node_hour": 1.0}


def vllm_of(home):
    """The process that generates, below the model server that the control plane started."""
    named = str(home / "processes")
    servers = [p for p in psutil.process_iter(["cmdline", "environ"]) if mine(p, home)]
    children = [c for server in servers for c in server.children() if "vllm" in " ".join(c.cmdline())]
    assert len(children) == 1, (named, servers)
    return children[0].pid


def mine(process, home):
    environ, command = process.info["environ"] or {}, process.info["cmdline"] or []
    return environ.get("ARENA_HOME") == str(home) and "--engine" in command and "vllm" in command


def test_a_tier_of_vllm_serves_promotes_and_comes_back_after_a_kill(tmp_path, adapter_writer, vllm_python):
    home = tmp_path / "home"
    shape = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = make_tiny_model(home / "models" / "tiny", **shape)
    for member in (0, 1):
        adapter_writer(model, tmp_path / f"m{member}", seed=member + 1)
    tiers = ({"id": "local"}, {"id": "fast", "engine": "vllm"})
    with site(home, tmp_path, tiers=tiers, variables={"ARENA_VLLM_PYTHON": vllm_python}) as ours:
        first, second = (ours.shows("quick", f"step_8/m{member}", "fast") for member in (0, 1))
        assert second != first

        ours.back_after("quick", lambda: os.kill(vllm_of(home), signal.SIGKILL))
        assert (ours.says("quick"), ours.says("quick@1")) == (second, first)
        assert ours.chat("quick").json()["system_fingerprint"].startswith("quick@2 step_8/m1 ")


def test_the_engine_is_the_files_else_the_tiers_else_the_servers():
    tiers = TierFile(tiers=(Tier(id="slow", **FIGURES), Tier(id="fast", engine="vllm", **FIGURES)))
    world = SimpleNamespace(settings=Settings(), tiers=tiers)

    def engine(**spec):
        asked = chosen(world, DeploymentSpec(experiment="x", **spec), acts=False)
        return place_of(world, SimpleNamespace(model={"id": "m"}, place=asked))

    assert (engine().engine, engine().key) == ("torch", "m")
    assert (engine(tier="fast").engine, engine(tier="fast").key) == ("vllm", "m by vllm")
    assert engine(tier="fast", engine="torch").key == "m"
    assert engine(tier="slow", engine="vllm").key == "m by vllm"
    world.settings = Settings(model_server=ModelServers(engine="vllm"))
    assert (engine().engine, engine().key, engine(engine="torch").key) == ("vllm", "m", "m by torch")


def test_a_policy_is_not_moved_by_an_engine():
    tiers = TierFile(tiers=(Tier(id="fast", engine="vllm", **FIGURES),))
    world = SimpleNamespace(settings=Settings(), tiers=tiers)
    assert chosen(world, DeploymentSpec(experiment="x"), acts=True) is None
