"""`arena agent`: serve an experiment under its name, and talk to it."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator

import click
from pydantic import BaseModel, ConfigDict

from arena_gitops.cli import options
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.imperative import agents, consent, rollout, tables
from arena_gitops.cli.imperative.agents import Which
from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import Place, open_place
from arena_gitops.cli.imperative.sessions import sessions
from arena_gitops.cli.session import Session
from arena_gitops.errors import UsageError
from arena_gitops.platforms.arena_rows import Deployment

COLUMNS: tables.Columns[Deployment] = {
    "NAME": lambda row: row.name,
    "STATUS": lambda row: row.status,
    "SERVES": lambda row: row.serves,
    "RULE": lambda row: row.checkpoint,
    "EXPERIMENT": lambda row: row.experiment_name,
    "PROJECT": lambda row: row.project_name,
    "REVISION": lambda row: row.revision,
    "MANAGED BY": lambda row: row.managed_by,
    "URL": lambda row: row.url,
    "MESSAGE": lambda row: row.message,
}


class Answer(BaseModel):
    """A prompt and what came of it."""

    model_config = ConfigDict(frozen=True)

    deployment: str
    prompt: str
    completion: str
    session_id: str | None


@click.group(no_args_is_help=True)
def agent() -> None:
    """Deploy, list and use what is served."""


agent.add_command(sessions)


@explained("arena agent list", "arena agent list --name gsm8k-grpo-v1 --json", rows=Deployment)
@agent.command("list")
@click.option("--name", shell_complete=names("deployment"), help="Only the deployment of this name.")
@click.option("--experiment-name", shell_complete=names("experiment"), help="Only those of this experiment.")
@click.option("--project-name", shell_complete=names("project"), help="Only those of this project.")
@options.target
@options.json
@click.pass_obj
def list_(
    session: Session,
    *,
    name: str | None,
    experiment_name: str | None,
    project_name: str | None,
    target: str | None,
) -> None:
    """List what the server serves, whoever deployed it; arena status shows that of a repository."""
    found = open_place(session, target).api.deployments(name, experiment_name, project_name)
    tables.show(session, found, COLUMNS, empty="no such deployment here")


@explained(
    "arena agent deploy gsm8k-grpo-v1",
    "arena agent deploy gsm8k-grpo-v1 --checkpoint step_500 --wait --timeout 5m",
    one=Deployment,
)
@agent.command()
@click.argument("experiment_name", shell_complete=names("experiment"))
@click.option("--checkpoint", metavar="RULE", help="best, step_N, step_N/mK or @alias. Default: best.")
@click.option(
    "--memory-scope",
    type=click.Choice(["user", "organization"]),
    help="Who shares its conversations; decided at the first deploy. Default: each user has their own.",
)
@click.option("--wait/--no-wait", default=False, show_default=True, help="Until it serves what it should.")
@click.option("--timeout", type=Duration(), help="With --wait: how long, for instance 90s; then exit code 9.")
@options.target
@options.json
@click.pass_obj
def deploy(
    session: Session,
    *,
    experiment_name: str,
    checkpoint: str | None,
    memory_scope: str | None,
    wait: bool,
    timeout: float | None,
    target: str | None,
) -> None:
    """Serve an experiment under its own name; again, with another checkpoint, to change what it serves.

    Returns at once unless --wait is given: a model has to be loaded, and a run may have to end first. What served
    before goes on until then. With --wait the exit code is 7 when it cannot be served.
    """
    if timeout is not None and not wait:
        raise UsageError("--timeout is for --wait")
    place = open_place(session, target)
    row = place.api.deploy(experiment_name, checkpoint, memory_scope)
    if wait:
        row = rollout.until_served(session, place.api, row, timeout_s=timeout)
    if session.json:
        session.emit(row.model_dump_json())
        return
    click.echo(rollout.line(row))


@explained("arena agent undeploy gsm8k-grpo-v1 --yes", one=consent.Deleted)
@agent.command()
@click.argument("deployment_name", shell_complete=names("deployment"))
@consent.yes
@options.target
@options.json
@click.pass_obj
def undeploy(session: Session, *, deployment_name: str, yes: bool, target: str | None) -> None:
    """Stop serving; the experiment and its checkpoints stay. What a repository declares is changed there."""
    consent.ask(session, f"Stop serving {deployment_name}", given=yes)
    open_place(session, target).api.undeploy(deployment_name)
    consent.deleted(session, "deployment", deployment_name)


@explained("arena agent run gsm8k-grpo-v1 && arena agent generate --prompt hello", one=Deployment)
@agent.command()
@agents.which(required=True)
@options.target
@options.json
@click.pass_obj
def run(session: Session, *, which: Which, target: str | None) -> None:
    """Make a deployment the active agent: the one that later commands use when none is named."""
    place = open_place(session, target)
    row = agents.look_up(place, which)
    chosen = agents.identity(row)
    place.memory.change(lambda before: before.model_copy(update={"agent": chosen}))
    if session.json:
        session.emit(row.model_dump_json())
    else:
        session.say(f"active agent: {row.name} ({row.status})")


@explained(
    'arena agent generate gsm8k-grpo-v1 --prompt "What is 3 + 4?"',
    "arena agent generate --prompt - --max-new-tokens 200 --temperature 0 < question.txt",
    "arena agent generate --new-session --prompt 'My name is Ada.'",
    one=Answer,
)
@agent.command()
@agents.which(required=False)
@click.option("--prompt", required=True, help="What to say to it; - reads standard input.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), help="Length limit of the answer, in tokens.")
@click.option("--temperature", type=click.FloatRange(min=0), help="0 is greedy: always the likeliest token.")
@click.option("--session-id", metavar="ID", help="The conversation to go on with, this once.")
@click.option("--new-session", is_flag=True, help="Begin a conversation; later prompts go on with it.")
@options.target
@options.json
@click.pass_obj
def generate(
    session: Session,
    *,
    which: Which,
    prompt: str,
    max_new_tokens: int | None,
    temperature: float | None,
    session_id: str | None,
    new_session: bool,
    target: str | None,
) -> None:
    """Send a prompt to a deployment and print the answer as it is written.

    Without DEPLOYMENT_NAME it is the active agent (arena agent run). A prompt stands for itself unless there is a
    conversation: of --session-id, or begun by --new-session, or chosen by arena agent sessions resume.
    """
    if session_id and new_session:
        raise UsageError("give --session-id or --new-session, not both")
    text = sys.stdin.read() if prompt == "-" else prompt
    place = open_place(session, target)
    talk = session_id or (str(uuid.uuid4()) if new_session else _going_on(place, which))
    params = _params(max_new_tokens, temperature)
    name, chunks = agents.at(place, which, lambda name: (name, _begun(place, name, text, params, talk)))
    if new_session:
        agents.remember(place, name, talk)
    if session.json:
        answer = Answer(deployment=name, prompt=text, completion="".join(chunks), session_id=talk)
        session.emit(answer.model_dump_json())
    else:
        _stream(chunks)


def _going_on(place: Place, which: Which) -> str | None:
    known = place.memory.read()
    return known.sessions.get(which.name or known.agent or "")


def _begun(
    place: Place, name: str, prompt: str, params: dict[str, float | bool], talk: str | None
) -> Iterator[str]:
    """The answer, once its first piece is there: a refusal comes before it."""
    chunks = place.native.generate_stream(name, prompt, params, talk)
    first = next(chunks, "")

    def whole() -> Iterator[str]:
        yield first
        yield from chunks

    return whole()


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
