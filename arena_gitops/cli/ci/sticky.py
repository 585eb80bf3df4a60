"""The one comment of a stack and target in a pull request: found again by its marker and by who wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.session import Session
from arena_gitops.errors import AuthError
from arena_gitops.platforms.github import Comment, GitHub
from arena_gitops.report.github import Place
from arena_gitops.report.marker import Marker
from arena_gitops.report.notices import outdated


def open_github(session: Session, actions: Actions) -> GitHub:
    """GitHub's API with the job's token."""
    if actions.token is None:
        raise AuthError("GITHUB_TOKEN is not set: add `env: {GITHUB_TOKEN: ${{ github.token }}}` to the step")
    return session.using(GitHub(actions.api_url, actions.token, actions.repository))


def write(session: Session, actions: Actions, number: int, place: Place, body: str) -> None:
    """Write the comment, or put the new text in its place."""
    github = open_github(session, actions)
    found = ours(github, number, lambda old: is_about(Marker.find(old), place))
    _put(github, number, body, found)
    for old in found[:-1]:  # two jobs at a time have written one each
        if (folded := outdated(old.body or "")) != old.body:
            github.edit(old.id, folded)
    session.say(f"pull request #{number}: the comment is up to date")


def upsert(github: GitHub, number: int, body: str, same: Callable[[str], bool]) -> None:
    """One comment of ours, whatever happened before: anybody can paste a marker, so the author counts too."""
    _put(github, number, body, ours(github, number, same))


def _put(github: GitHub, number: int, body: str, found: Sequence[Comment]) -> None:
    if not found:
        github.post(number, body)
    elif found[-1].body != body:
        github.edit(found[-1].id, body)


def last_of_ours(github: GitHub, number: int, same: Callable[[str], bool]) -> Comment | None:
    """The newest comment that we wrote and that is the one."""
    found = ours(github, number, same)
    return found[-1] if found else None


def ours(github: GitHub, number: int, same: Callable[[str], bool]) -> list[Comment]:
    """Every comment that we wrote and that is about the same, the oldest first."""
    login = github.login()
    return [
        comment
        for comment in github.comments(number)
        if comment.user is not None and comment.user.login == login and same(comment.body or "")
    ]


def is_about(marker: Marker | None, place: Place) -> bool:
    """Whether a comment shows the plan of this stack and target."""
    return marker is not None and (marker.target, marker.root) == (place.target, place.root)
