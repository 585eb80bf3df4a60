"""`arena agent`: what is deployed, and a prompt to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import click

from arena_gitops.cli import options
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import open_server, open_stack


@click.group(no_args_is_help=True)
def agent() -> None:
    """List and use what is deployed."""


@agent.command("list")
@options.target
@options.namespace
@options.json
@click.pass_obj
def list_deployments(session: Session, target: str | None, namespace: str) -> None:
    """List the deployments of this stack."""
    from arena_gitops.cli.outcome import of_deployment

    stack = open_stack(session, target, namespace)
    observed = stack.platform.observe(stack.owner)
    found = {
        address.name: document.deployment
        for address, document in sorted(observed.resources.items())
        if document.deployment is not None
    }
    if session.json:
        session.emit(json.dumps([{"name": n, **s.model_dump(mode="json")} for n, s in found.items()]))
        return
    for name, status in found.items():
        click.echo(of_deployment(name, status))
    if not found:
        session.say(f"stack {stack.owner.stack} has no deployment here")


@agent.command()
@click.argument("name")
@click.option("--prompt", required=True, help="What to say to it; - reads standard input.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), help="Length limit of the answer, in tokens.")
@click.option("--temperature", type=click.FloatRange(min=0), help="0 is greedy: always the likeliest token.")
@options.target
@options.json
@click.pass_obj
def generate(
    session: Session,
    *,
    name: str,
    prompt: str,
    max_new_tokens: int | None,
    temperature: float | None,
    target: str | None,
) -> None:
    """Send a prompt to deployment NAME and print the answer as it is written."""
    text = sys.stdin.read() if prompt == "-" else prompt
    chunks = open_server(session, target).generate_stream(name, text, _params(max_new_tokens, temperature))
    if session.json:
        answer = "".join(chunks)
        session.emit(
            json.dumps({"deployment": name, "prompt": text, "completion": answer}, ensure_ascii=False)
        )
    else:
        _stream(chunks)


def _params(max_new_tokens: int | None, temperature: float | None) -> dict[str, float | bool]:
    params: dict[str, float | bool] = {}
    if max_new_tokens is not None:
        params["max_new_tokens"] = max_new_tokens
    if temperature is not None:
        params["temperature"] = temperature
        params["do_sample"] = temperature > 0
    return params


def _stream(chunks: Iterator[str]) -> None:
    ended = True
    for chunk in chunks:
        click.echo(chunk, nl=False)
        sys.stdout.flush()
        ended = chunk.endswith("\n")
    if not ended:
        click.echo()
