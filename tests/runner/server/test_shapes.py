"""Shapes of base models at hand: every folder under its name, and under the names exchanged for it."""

import json
from dataclasses import replace

from arena_runner.server.services import shapes
from arena_runner.server.settings import Models, Settings

CONFIG = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 99,
}


def put(world, name, text):
    folder = world.home.models / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(text)


def test_models_answer_to_their_folder_and_to_what_they_stand_for(world):
    put(world, "small", json.dumps(CONFIG))
    put(world, "org/other", json.dumps({**CONFIG, "hidden_size": 32}))
    put(world, "broken", "{")
    put(world, "vision", json.dumps({"hidden_size": 3}))
    world = replace(world, settings=Settings(models=Models(map={"Qwen/huge": "small", "a/b": "absent"})))
    found = {facts.id: facts for facts in shapes.at_hand(world)}
    assert sorted(found) == ["Qwen/huge", "org/other", "small"]
    assert found["Qwen/huge"].hidden == found["small"].hidden == 64
    assert (found["small"].kv_heads, found["small"].head_dim) == (4, 16)
