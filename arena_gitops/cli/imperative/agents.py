"""Which deployment a command talks to, and which conversation goes on there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.memory import Preferences
from arena_gitops.cli.imperative.place import Place
from arena_gitops.errors import AuthError, PlatformRejectedError, Rejection, UsageError
from arena_gitops.platforms.arena_rows import Deployment

Command = TypeVar("Command", bound=Callable[..., Any])
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Which:
    """The deployment that was asked for."""

    name: str | None
    experiment: str | None = None
    project: str | None = None


def which(*, required: bool) -> Callable[[Command], Command]:
    """`[DEPLOYMENT_NAME] [--experiment-name] [--project-name]`, as one `Which`."""

    def add(command: Command) -> Command:
        def together(**given: Any) -> Any:
            asked = Which(
                given.pop("deployment_name"), given.pop("experiment_name"), given.pop("project_name")
            )
            return command(which=asked, **given)

        together.__doc__ = command.__doc__
        together.__name__ = command.__name__
        together.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]  # click's own
        wrapped: Any = together
        for option in (
            click.option(
                "--refresh", is_flag=True, hidden=True, expose_value=False
            ),  # nothing is cached here
            click.option("--project-name", metavar="NAME", help="Only a deployment of this project."),
            click.option("--experiment-name", metavar="NAME", help="Only a deployment of this experiment."),
            click.argument("deployment_name", required=required, shell_complete=names("deployment")),
        ):
            wrapped = option(wrapped)
        return wrapped  # type: ignore[no-any-return]  # click's decorators give what they got

    return add


def named(place: Place, which: Which) -> str:
    """The name to talk to: as given, else of the active agent; looked up only if the options ask for it."""
    name = which.name or place.memory.read().agent
    if which.experiment or which.project:
        return identity(look_up(place, Which(which.name, which.experiment, which.project)))
    if name is None:
        raise UsageError("name a deployment, or set one by arena agent run NAME; arena agent list shows them")
    return name


def look_up(place: Place, which: Which) -> Deployment:
    """The one deployment that fits."""
    found = place.api.deployments(which.name, which.experiment, which.project)
    if not found:
        about = which.name or which.experiment or which.project
        raise PlatformRejectedError(Rejection(404, "not-found", f"there is no deployment {about!r} here"))
    if len(found) > 1:
        several = ", ".join(row.name for row in found)
        raise UsageError(f"several deployments fit: {several}; name one")
    return found[0]


def identity(row: Deployment) -> str:
    """Its name in addresses: what people write may have capitals and spaces."""
    return row.id or row.name


def at(place: Place, which: Which, ask: Callable[[str], Answer]) -> Answer:
    """Ask the deployment; by the name as it was given, and if nobody has that, by the one it stands for.

    So a token that may only infer needs nothing else, and `My Agent` is found as `my-agent`.
    """
    name = named(place, which)
    try:
        return ask(name)
    except PlatformRejectedError as error:
        if error.rejection.status != 404:
            raise
        try:
            found = place.api.deployments(name)
        except AuthError:  # one that may only infer may not look
            raise error from None
        if len(found) != 1 or identity(found[0]) == name:
            raise
        return ask(identity(found[0]))


def remember(place: Place, deployment: str, session: str | None) -> None:
    """Go on with a conversation in later prompts, or (None) with none."""

    def change(before: Preferences) -> Preferences:
        kept = {name: value for name, value in before.sessions.items() if name != deployment}
        return before.model_copy(update={"sessions": kept | ({deployment: session} if session else {})})

    place.memory.change(change)
