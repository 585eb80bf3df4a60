"""`arena models`: base models of the server, and what kinds can be trained at all."""

from __future__ import annotations

import click
from pydantic import BaseModel, ConfigDict, Field

from arena_gitops.cli import options
from arena_gitops.cli.imperative import tables
from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.session import Session
from arena_gitops.platforms.arena_rows import Model, ModelInfo
from arena_gitops.spec.algorithms import ALGORITHMS

COLUMNS: tables.Columns[Model] = {
    "NAME": lambda row: row.model_name,
    "PARAMETERS": lambda row: row.num_params,
    "CONTEXT": lambda row: row.max_context_length,
    "LORA TARGETS": lambda row: ", ".join(row.lora_info.get("target_modules", ())),
    "SERVED BY": lambda row: row.served_by,
}


@click.group(no_args_is_help=True)
def models() -> None:
    """Show the base models of the server."""


@explained("arena models list", rows=Model)
@models.command("list")
@options.target
@options.json
@click.pass_obj
def list_(session: Session, target: str | None) -> None:
    """List the models that are on the server, and the names it takes for one of them."""
    empty = "no model is on this server yet; a run fetches the one that its manifest names"
    tables.show(session, open_place(session, target).api.models(), COLUMNS, empty=empty)


@explained("arena models info smollm2-135m-instruct", one=ModelInfo)
@models.command()
@click.argument("model_name", shell_complete=names("model"))
@options.target
@options.json
@click.pass_obj
def info(session: Session, *, model_name: str, target: str | None) -> None:
    """Show one model: its size, its layers, and what an adapter can be put on."""
    model = open_place(session, target).api.model(model_name)
    if session.json:
        session.emit(model.model_dump_json())
        return
    facts = {heading.lower(): value(model) for heading, value in COLUMNS.items()}
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {tables.cell(value)}")
    shapes = model.parameters if isinstance(model.parameters, dict) else {}
    for name, shape in shapes.items():
        click.echo(f"  {name}  {'x'.join(map(str, shape))}")


class Supported(BaseModel):
    """What can be trained, whatever the server."""

    model_config = ConfigDict(frozen=True)

    kind: str = "causal language models that transformers loads"
    weights: tuple[str, ...] = ("safetensors",)
    adapters: str = "LoRA on linear layers"
    tested: tuple[str, ...] = ("llama", "qwen2", "mistral", "gemma2")
    """`model_type` of the architectures that the project's own tests train and serve"""
    algorithms: tuple[str, ...] = Field(default_factory=lambda: tuple(sorted(ALGORITHMS)))


@explained("arena models supported", one=Supported)
@models.command()
@options.json
@click.pass_obj
def supported(session: Session) -> None:
    """Say what this version trains; asks no server.

    There is no list of models: any of the kind works, from the server's models folder or from the hub.
    """
    found = Supported()
    if session.json:
        session.emit(found.model_dump_json())
        return
    click.echo(f"{found.kind}, weights as {', '.join(found.weights)}, with {found.adapters}")
    click.echo(f"tested: {', '.join(found.tested)}")
    click.echo(f"algorithms: {', '.join(found.algorithms)}")
