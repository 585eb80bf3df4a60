"""The base models of this server."""

from __future__ import annotations

from typing import Any

from arena_runner.server import catalogue
from arena_runner.server.api.arena.door import Sent, Viewer
from arena_runner.server.api.arena.door import router as new_router
from arena_runner.server.api.door import TheWorld
from arena_runner.server.catalogue import Model
from arena_runner.server.world import World

router = new_router()


class ModelName(Sent):
    """Which model."""

    model_name: str


@router.get("/models")
def listed(world: TheWorld, _caller: Viewer) -> list[dict[str, Any]]:
    """The models of this machine, and the names this server takes for one of them."""
    here = {model.name: model for model in catalogue.models(world.home.models)}
    names = {name: name for name in here}
    names |= {name: other for name, other in world.settings.models.map.items() if other in here}
    return [_short(name, here[other]) for name, other in names.items()]


@router.post("/models/info")
def info(world: TheWorld, _caller: Viewer, body: ModelName) -> dict[str, Any]:
    """One model in more detail."""
    model = catalogue.model(world.home.models, _mapped(world, body.model_name))
    shapes = {name: list(shape) for name, shape in sorted(model.shapes.items())}
    return {**_short(body.model_name, model), "modules": model.modules, "parameters": shapes}


def _mapped(world: World, name: str) -> str:
    return world.settings.models.map.get(name, name)


def _short(name: str, model: Model) -> dict[str, Any]:
    return {
        "model_name": name,
        "num_params": model.parameters,
        "lora_info": {"target_modules": model.modules},
        "max_context_length": model.context,
        "served_by": model.name,
    }
