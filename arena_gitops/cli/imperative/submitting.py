"""`arena experiments submit`: a manifest, checked here with places and on the server with data, then started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from arena_gitops.cli import options
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.imperative import manifests
from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.following import Trained, check_completed, follow
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.imperative.stream import teller
from arena_gitops.cli.session import Session
from arena_gitops.errors import PlatformError, UsageError
from arena_gitops.platforms.arena_api import Submission
from arena_gitops.platforms.arena_rows import Submitted
from arena_gitops.platforms.multipart import FilePart


@explained(
    "arena experiments submit gsm8k_grpo.yaml --reward-file reward.py --project 'GSM8K Tutorial'",
    "arena experiments submit grpo.yaml --reward-file reward.py --experiment-name v2 --wait --timeout 2h",
    one=Submitted,
)
@click.command()
@click.argument("manifest", metavar="MANIFEST|-")
@click.option("--resource-id", metavar="TIER", help="Where to train; see arena resources list.")
@click.option("--num-nodes", type=click.IntRange(min=1), help="How many machines.")
@click.option(
    "--project",
    metavar="NAME",
    shell_complete=names("project"),
    help="Which project. Default: that of arena projects set-default, if any.",
)
@click.option("--experiment-name", metavar="NAME", help="How to call it. Default: the server makes a name.")
@click.option(
    "--reward-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A Python file with reward(question, answer, completion).",
)
@click.option("--completion", metavar="TEXT", help="A sample that the reward shall score before the start.")
@click.option("--wait/--no-wait", default=False, show_default=True, help="Follow the run until it has ended.")
@click.option("--timeout", type=Duration(), help="With --wait: how long, for instance 90m; then exit code 9.")
@options.target
@options.json
@click.pass_obj
def submit(session: Session, /, *, manifest: str, target: str | None, **given: Any) -> None:
    """Check a manifest and start what it describes.

    Problems of the manifest are told with line and column before anything is sent; then the server checks the
    dataset and the reward and says what it finds. Returns once the experiment is queued, unless --wait is given;
    with --wait the exit code is 10 when the run does not complete. The same submission again starts
    nothing twice, unless the first has stopped or failed.
    """
    if given["completion"] is not None and given["reward_file"] is None:
        raise UsageError("--completion is scored by the reward: give --reward-file")
    if given["timeout"] is not None and not given["wait"]:
        raise UsageError("--timeout is for --wait")
    found = manifests.read(manifest)
    place = open_place(session, target)
    reward: Path | None = given["reward_file"]
    wanted = Submission(
        manifest=found.raw,
        resource_id=given["resource_id"],
        num_nodes=given["num_nodes"],
        project=given["project"] or place.memory.read().project,
        experiment_name=given["experiment_name"],
        reward=FilePart("reward_file", reward.name, reward.read_bytes(), "text/x-python") if reward else None,
        completion=given["completion"],
    )
    done = place.api.submit(wanted, teller(session))
    if not given["wait"]:
        _tell(session, done)
        return
    if done.run_id is None:
        raise PlatformError(f"the server did not say which run trains {done.experiment_name}")
    session.say(f"experiment {done.experiment_name}: {done.status}, run {done.run_id}")
    ended = follow(place, Trained(done.experiment_name, done.run_id), timeout_s=given["timeout"])
    _tell(session, done.model_copy(update={"status": str(ended.state)}))
    check_completed(ended)


def _tell(session: Session, done: Submitted) -> None:
    if session.json:
        session.emit(done.model_dump_json())
    else:
        click.echo(f"experiment {done.experiment_name}: {done.status}, run {done.run_id}")
