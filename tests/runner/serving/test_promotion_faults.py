"""Eleven faults at promotion, made in the model server below what the proof reads: each refused by the control plane."""

from __future__ import annotations

import json
import shutil
import threading
import time
import types

import pytest
import torch
import uvicorn

from arena_runner.adapters import Population
from arena_runner.checkpoint import file_digest
from arena_runner.lora import AdaptedLinear
from arena_runner.peft_format import read, save
from arena_runner.server import probe
from arena_runner.server.model_servers import AdapterLine, RolloutError
from arena_runner.server.proofs import Proofs
from arena_runner.server.world import ModelServer
from arena_runner.serving.app import create_app
from arena_runner.serving.scheduler import Scheduler
from arena_runner.serving.shelf import Shelf

OLD, NEW = "chat.r1", "chat.r2"
SIZES = ("large", "one step at lr 5e-6")
SITE = "model.layers.1.self_attn.v_proj"


@pytest.fixture(scope="module")
def line(tiny_base):
    """The control plane's line to a model server in this process, where faults can be made below it."""
    scheduler = Scheduler(tiny_base, rows=8)
    scheduler.start()
    config = uvicorn.Config(
        create_app(scheduler, "t"), log_config=None, access_log=False, lifespan="off", port=0
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    made = AdapterLine(ModelServer(f"http://127.0.0.1:{port}", "t"))
    made.shelf = scheduler.shelf
    yield made
    made.close()
    server.should_exit = True
    thread.join(20)
    scheduler.stop()
    scheduler.shelf.clear()


@pytest.fixture(params=SIZES)
def revisions(request, adapters, tmp_path):
    """Two exports: what serves now, and what it became by a long way, or by one optimizer step."""
    folder = adapters["a@1"][0]
    tensors, config = read(folder)
    generator = torch.Generator().manual_seed(5)
    drawn = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in tensors.items()}
    far = request.param == "large"
    moved = {
        name: t + (0.3 * drawn[name] if far else 5e-6 * drawn[name].sign()) for name, t in tensors.items()
    }
    shutil.copytree(folder, tmp_path / "old")
    save(tmp_path / "new", moved, config)
    return types.SimpleNamespace(old=tmp_path / "old", new=tmp_path / "new")


def promote(line, name, folder):
    """What the deployments controller does before traffic moves (`DeploymentsController._load_and_probe`)."""
    line.load(name, {f.name: (f, file_digest(f)) for f in folder.iterdir()}, None)
    line.prove(name, None)


@pytest.fixture
def served(line, revisions):
    """The old revision, promoted."""
    promote(line, OLD, revisions.old)
    yield line
    for name in (OLD, NEW):
        line.unload(name)
    while line.loaded():
        time.sleep(0.01)


def refused(match="does not|do not|are not the weights|not loaded|not what"):
    return pytest.raises(RolloutError, match=match)


def in_the_place(change):
    """Something happens to what lies in the newest adapter's place after every loading."""
    populate = Shelf._populate

    def broken(self, items):
        population = populate(self, items)
        names = [item.about.name for item in items]
        if NEW in names:
            with torch.no_grad():
                change(population, population.span(names.index(NEW)), names)
        return population

    return broken


def each(population, span):
    for name, module in population._modules.items():
        yield name, module.a.rounded[span], module.b.rounded[span]


def base_served(population, span, _names):
    for _, _, b in each(population, span):
        b.zero_()


def one_module_missing(population, span, _names):
    for name, _, b in each(population, span):
        if name == SITE:
            b.zero_()


def transposed(population, span, _names):
    for _, a, _ in each(population, span):
        a.copy_(a.T.reshape(a.shape).clone())


def half_loaded(population, span, _names):
    for name, _, b in each(population, span):
        if ".layers.0." in name:
            b.zero_()


def dtype(population, span, _names):
    for _, a, b in each(population, span):
        a.copy_(a.bfloat16())
        b.copy_(b.bfloat16())


def wrong_step(population, span, names):
    """What lies there are the revision's before."""
    before = population.span(names.index(OLD))
    for module in population._modules.values():
        module.a.rounded[span] = module.a.rounded[before]
        module.b.rounded[span] = module.b.rounded[before]


@pytest.mark.parametrize(
    "fault", [base_served, one_module_missing, transposed, half_loaded, dtype, wrong_step]
)
def test_what_lies_wrong_in_the_model_is_not_promoted(served, revisions, fault, monkeypatch):
    monkeypatch.setattr(Shelf, "_populate", in_the_place(fault))

    with refused(f"422: what the engine holds under {NEW}"):
        promote(served, NEW, revisions.new)


def test_an_adapter_that_was_not_loaded_is_not_promoted(served, revisions, monkeypatch):
    monkeypatch.setattr(Shelf, "add", lambda _self, _new: None)

    with refused("404: adapter chat.r2 is not loaded"):
        promote(served, NEW, revisions.new)


def test_a_wrong_alpha_is_not_promoted(served, revisions, monkeypatch):
    rows = Population.rows

    def stretched(self, members, **more):
        mine = rows(self, members, **more)
        return mine and types.SimpleNamespace(span=mine.span, gate=mine.gate * 2, dropout=None)

    monkeypatch.setattr(Population, "rows", stretched)
    with refused("422"):
        promote(served, NEW, revisions.new)


@pytest.mark.parametrize("name", ["wrong member", "alias not moved"])
def test_a_name_that_leads_to_another_adapter_is_not_promoted(served, revisions, name, monkeypatch):
    """The place before, or the one that this deployment served until now: here they are the same place."""
    member = Shelf._member
    elsewhere = OLD if name == "alias not moved" else served.loaded().__iter__().__next__()
    monkeypatch.setattr(
        Shelf, "_member", lambda self, asked: member(self, elsewhere if asked == NEW else asked)
    )

    with refused("they are those of chat.r1"):
        promote(served, NEW, revisions.new)


def test_keys_of_an_earlier_adapter_are_not_promoted(line, adapters, monkeypatch):
    """Stale cache: a prompt's keys and values are kept over a change of adapters; seen by the path half."""
    from arena_runner.serving.cache import PromptLayout

    seen, attend = {}, PromptLayout.attend

    def stale(self, layer, heads):
        k, v = seen.setdefault((layer, *heads.k.shape), (heads.k.clone(), heads.v.clone()))
        return attend(self, layer, heads._replace(k=k, v=v))

    monkeypatch.setattr(PromptLayout, "attend", stale)
    try:
        with refused("422"):
            promote(line, "stale@1", adapters["b@1"][0])  # a shape whose path was not shown yet
    finally:
        line.unload("stale@1")


@pytest.mark.parametrize("layers", [{1}, {0, 1, 2, 3}])
def test_layers_that_are_served_without_their_adapter_are_not_promoted(line, adapters, layers, monkeypatch):
    """The right weights lie there, and answers do not look at them: seen by the path half."""
    forward = AdaptedLinear.forward
    monkeypatch.setattr(
        AdaptedLinear, "forward", lambda self, x: self.base(x) if self.salt in layers else forward(self, x)
    )
    try:
        with refused("alone is not served as it should be|does not answer by them"):
            promote(line, "deaf@1", adapters["c@1"][0])
    finally:
        line.unload("deaf@1")


@pytest.mark.parametrize("fault", [base_served, one_module_missing, wrong_step])
def test_what_goes_wrong_in_the_model_after_the_proof_is_not_gone_back_to(served, revisions, fault):
    """A switch to what was proved before repeats the digest half (`switching.at_once`)."""
    promote(served, NEW, revisions.new)
    assert served.prove(NEW, None, again=True)["layers"] == 0
    shelf = served.shelf
    with torch.no_grad():
        fault(shelf._population, shelf._population.span(shelf._members[NEW]), list(shelf._members))

    with refused(f"422: what the engine holds under {NEW}"):
        served.prove(NEW, None, again=True)


def test_what_was_never_proved_is_proved_whole_however_it_is_asked_for(line, adapters, monkeypatch):
    monkeypatch.setattr(AdaptedLinear, "forward", lambda self, x: self.base(x))
    folder = adapters["c@1"][0]
    try:
        line.load("new@1", {f.name: (f, file_digest(f)) for f in folder.iterdir()}, None)
        with refused("alone is not served as it should be|does not answer by them"):
            line.prove("new@1", None, again=True)
    finally:
        line.unload("new@1")


def test_a_proof_holds_in_one_life_of_one_model_server_and_while_the_adapter_is_there():
    proofs, old, new = Proofs(), ModelServer("http://a", "1"), ModelServer("http://a", "2")
    proofs.note(old, NEW)
    assert proofs.holds(old, NEW)
    assert not any(proofs.holds(server, name) for server, name in ((new, NEW), (None, NEW), (old, OLD)))
    proofs.forget_but((old, new))
    assert proofs.holds(old, NEW)
    proofs.drop(old, NEW)
    assert not proofs.holds(old, NEW)


def test_the_trainers_own_digest_is_asked_for(served, adapters):
    with refused("the trainer recorded sha256:0000"):
        served.prove(OLD, "sha256:" + "0" * 64)
    assert served.prove(OLD, adapters["a@1"][1])["layers"] == 0


def test_the_controllers_probe_asks_for_the_proof(served, tmp_path):
    """`probe` hands on what the trainer wrote beside the adapter."""
    note = tmp_path / "note"
    note.write_text(json.dumps({"adapter_digest": "sha256:" + "1" * 64}))
    blobs = types.SimpleNamespace(existing=lambda _digest: note)
    revision = types.SimpleNamespace(
        files={probe.NOTE: "x"}, adapter=OLD, checkpoint="step_1/m0", model={"id": "tiny-llama"}
    )
    with refused("the trainer recorded sha256:1111"):
        probe.probe(types.SimpleNamespace(blobs=blobs), served, revision)
