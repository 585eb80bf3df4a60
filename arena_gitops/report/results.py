"""What has come of the runs that a merged pull request began: one comment, put in its own place as they end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arena_gitops.report.github import COMMENT_BYTES, NOTE_BYTES, Place, Section
from arena_gitops.report.notices import key_of
from arena_gitops.report.rows import URL, counted, message_of
from arena_gitops.report.untrusted import escaped
from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.wire import ResourceDocument

TABLE = "| experiment | state | steps | best | |\n|---|---|---|---|---|\n"


def results(documents: Sequence[ResourceDocument], place: Place, *, budget: int = COMMENT_BYTES) -> str:
    """The comment. No times and no job in it: what has not changed is not written again."""
    runs = [document.run for document in documents if document.run is not None]
    ended = sum(run.state.ended for run in runs)
    sign = "🏁" if ended == len(runs) else "⏳"
    head = f"{results_key(place)}\n### {sign} Results on {escaped(place.target)}\n\n"
    head += f"**{ended:,} of {counted(len(runs), 'run')} ended.**\n\n"
    served = Section(1, list(_served(documents)), title="Deployments")
    told = Section(0, list(_rows(documents)), before=TABLE, title="Runs")
    excess = len(head.encode()) + told.size + served.size + 2 * NOTE_BYTES - budget
    told = told.without(excess) if excess > 0 else told
    return head + "\n".join(filter(None, (told.render(), served.render())))


def results_key(place: Place) -> str:
    """The first line of such a comment: one per stack and target."""
    return key_of("results", place)


def _rows(documents: Sequence[ResourceDocument]) -> Iterator[str]:
    for document in documents:
        if (run := document.run) is not None:
            named = _linked(f"experiment/{document.name} v{document.version}", run.mlflow_url)
            reason = f" ({run.reason})" if run.reason else ""
            said = message_of(" ".join(run.message.split()))
            yield f"| {named} | {run.state}{reason} | {run.step:,} of {run.max_steps:,} | {_best(run)} | {said} |"


def _best(run: RunStatus) -> str:
    if run.best is None:
        return ""
    fitness = "" if run.best.fitness is None else f", fitness {run.best.fitness:.3f}"
    return f"{run.best.label}{fitness}"


def _served(documents: Sequence[ResourceDocument]) -> Iterator[str]:
    for document in documents:
        if (status := document.deployment) is not None:
            what = f" {status.checkpoint} of run {status.run_id}" if status.checkpoint else ""
            why = f": {message_of(' '.join(status.message.split()))}" if status.message else ""
            yield f"- deployment/{escaped(document.name)} {escaped(status.state)}{escaped(what)}{why}"


def _linked(text: str, url: str | None) -> str:
    return f"[{escaped(text)}]({url})" if url and URL.fullmatch(url) else escaped(text)
