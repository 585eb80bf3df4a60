"""A worker's events: first a line in a local file, then the server, in order, however long that takes.

The loop never waits for the server. A background thread uploads what an event's digests name and then posts the
events; another keeps the lease alive. A server that is away costs nothing but memory; a server that says the job is
somebody else's ends everything quietly. Repeats are harmless: an event is its number.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from arena_gitops.spec.job import CheckpointSaved, JobEvent, Log, ResumeStateSaved
from arena_gitops.spec.wire import EventBatch, EventReceipt
from arena_runner.ports import Files, Stop
from arena_runner.server_link import FencedError, ServerLink, UnreachableError

BATCH = 200
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 30.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One event and the files it names."""

    event: JobEvent
    files: Mapping[str, Path]


class Journal:
    """Ports of a run that a server follows; a context manager around the segment."""

    def __init__(
        self,
        path: Path,
        link: ServerLink,
        *,
        fence: int,
        heartbeat_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        self._link = link
        self._fence = fence
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._pending: deque[Entry] = deque()
        self._news = threading.Condition()
        self._folder = path.parent
        self._seq = 0
        self._chosen = 0
        self._stop: Stop | None = None
        self._cap: int | None = None
        self._closing = threading.Event()
        self._broken: Exception | None = None
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("events", self._send_all), ("heartbeat", self._beat))
        ]

    def __enter__(self) -> Self:
        """Begin to report."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reporting at once; `drain` first to have everything reported."""
        self._closing.set()
        with self._news:
            self._news.notify_all()
        for thread in self._threads:
            thread.join(timeout=5)
        self._file.close()

    def emit(self, event: JobEvent, files: Files | None = None) -> None:
        """Number the event, write it down, and leave the rest to the background."""
        with self._news:
            self._seq += 1
            event = event.model_copy(update={"seq": self._seq, "ts": self._clock()})
            paths = {digest: str(path) for digest, path in (files or {}).items()}
            self._file.write(json.dumps({"event": event.model_dump(mode="json"), "files": paths}) + "\n")
            self._file.flush()
            self._pending.append(Entry(event, dict(files or {})))
            self._news.notify_all()

    def stop(self) -> Stop | None:
        """What the server, or this process's owner, wants; raises if reporting has become impossible."""
        if self._broken is not None:
            raise self._broken
        return self._stop

    def cap(self) -> int | None:
        """The fewest steps that the server has said are asked for: what was let go once stays let go."""
        return self._cap

    def ask_to_stop(self, why: Stop) -> None:
        """End the run at the end of the iteration; the first reason stands."""
        self._stop = self._stop or why

    def drain(self, patience_s: float) -> bool:
        """Wait until everything is reported; False when the server stayed away or the job is not ours any more."""
        deadline = time.monotonic() + patience_s
        with self._news:
            while self._pending and not self._over():
                if not self._news.wait(timeout=max(0.0, deadline - time.monotonic())):
                    return False
            return not self._pending

    def _over(self) -> bool:
        return self._closing.is_set() or self._stop is Stop.FENCED or self._broken is not None

    def _send_all(self) -> None:
        """The background thread: oldest events first, until the end."""
        wait = FIRST_WAIT_S
        while not self._over():
            with self._news:
                batch = self._batch()
                if not batch:
                    self._news.wait()
                    continue
            try:
                if self._report(self._uploaded(batch)):
                    wait = FIRST_WAIT_S
                    continue
            except UnreachableError:
                pass  # wait, as after an answer that took nothing
            except FencedError:
                self._fenced()
            except Exception as error:  # noqa: BLE001 - handed to the loop, which ends the process with it
                self._break(error)
            self._closing.wait(0 if self._over() else wait)
            wait = min(2 * wait, LONGEST_WAIT_S)

    def _batch(self) -> list[Entry]:
        """The next events; one that has files to upload ends its batch, so that news before it are not held up."""
        batch: list[Entry] = []
        for entry in self._pending:
            if entry.files and batch:
                break
            batch.append(entry)
            if entry.files or len(batch) == BATCH:
                break
        return batch

    def _uploaded(self, batch: list[Entry]) -> list[JobEvent]:
        """The events once what they name is on the server."""
        return [self._one_uploaded(entry) for entry in batch]

    def _one_uploaded(self, entry: Entry) -> JobEvent:
        event = entry.event
        if isinstance(event, ResumeStateSaved):
            return self._resume_state(event)
        self._upload(entry.files)
        return event

    def _resume_state(self, event: ResumeStateSaved) -> JobEvent:
        """Of the resume states that wait only the newest is worth its bytes; it is sent ahead of its event.

        Every upload picks the newest anew, so a slow line loses few iterations and a fast loop is never waited for.
        """
        while event.seq > self._chosen:
            with self._news:
                newest = [entry for entry in self._pending if isinstance(entry.event, ResumeStateSaved)][-1]
            try:
                self._upload(newest.files)
            except FileNotFoundError:  # the loop went on and keeps newer ones only
                continue
            self._chosen = newest.event.seq
        if event.seq == self._chosen:
            return event
        message = f"resume state {event.state.iteration} was superseded before it could be uploaded"
        return Log(seq=event.seq, ts=event.ts, level="debug", message=message)

    def _upload(self, files: Files) -> None:
        """Send files under a second name, so that the loop may remove its own meanwhile."""
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".outbox-") as outbox:
            for digest, path in files.items():
                os.link(path, Path(outbox) / digest)
            for digest in files:
                self._link.put(digest, Path(outbox) / digest)

    def _report(self, events: list[JobEvent]) -> bool:
        """Post events; whether the server took any."""
        receipt = self._link.report(EventBatch(fence=self._fence, events=tuple(events)))
        with self._news:
            before = len(self._pending)
            while self._pending and self._pending[0].event.seq <= receipt.accepted_seq:
                _forget_export(self._pending.popleft())
            self._news.notify_all()
            taken = before > len(self._pending)  # the loop cannot have added any meanwhile
        self._obey(receipt)
        return taken

    def _beat(self) -> None:
        """The other thread: an empty batch now and then, also while an upload takes long or the model loads."""
        while not self._closing.wait(self._heartbeat_s) and not self._over():
            try:
                self._obey(self._link.report(EventBatch(fence=self._fence)))
            except UnreachableError:
                continue
            except FencedError:
                self._fenced()
            except Exception as error:  # noqa: BLE001 - handed to the loop, which ends the process with it
                self._break(error)

    def _obey(self, receipt: EventReceipt) -> None:
        if receipt.directive == "stop":
            self.ask_to_stop(Stop.ASKED)
        if receipt.max_steps is not None:
            self._cap = min(receipt.max_steps, self._cap or receipt.max_steps)

    def _fenced(self) -> None:
        with self._news:
            self._stop = Stop.FENCED
            self._news.notify_all()

    def _break(self, error: Exception) -> None:
        with self._news:
            self._broken = error
            self._news.notify_all()


def _forget_export(entry: Entry) -> None:
    """An export that the server has is not kept twice; a run may make hundreds."""
    if isinstance(entry.event, CheckpointSaved):
        for path in entry.files.values():
            path.unlink(missing_ok=True)
