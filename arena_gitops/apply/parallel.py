"""Several calls at a time, in threads that never keep a process alive.

`concurrent.futures` joins its threads when the interpreter ends, so that one server that does not answer would
hold up an interrupted command. These are daemon threads: who waits may leave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

from arena_gitops.errors import InterruptedByUserError

Item = TypeVar("Item")
Result = TypeVar("Result")

LOOK_EVERY_S = 0.05


def each(
    items: Iterable[Item], work: Callable[[Item], Result], *, at_most: int
) -> Iterator[tuple[Item, Result]]:
    """Results as they come. After an exception nothing new is begun; it is raised when the rest has ended."""
    todo = deque(items)
    done: SimpleQueue[tuple[Item, Result | None, BaseException | None]] = SimpleQueue()
    count = len(todo)

    def run() -> None:
        while todo:
            try:
                item = todo.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                done.put((item, work(item), None))
            except BaseException as error:  # noqa: BLE001  # raised again by whoever waits
                todo.clear()
                done.put((item, None, error))
                return

    threads = [Thread(target=run, daemon=True) for _ in range(min(at_most, count))]
    for thread in threads:
        thread.start()
    try:
        for _ in range(count):
            item, result, error = done.get()
            if error is not None:
                raise error
            yield item, result  # type: ignore[misc]  # without an error there is a result
    finally:
        todo.clear()
        for thread in threads:
            thread.join()


def while_patient(work: Callable[[], Result], stopping: Callable[[], bool], grace_s: float) -> Result:
    """Do it in a thread of its own; once asked to stop, wait no longer than `grace_s` for its end.

    Raises:
        InterruptedByUserError: It did not end in time. What it had begun may still arrive.
    """
    ended = Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  # raised again by whoever waits
            errors.append(error)
        finally:
            ended.set()

    Thread(target=run, daemon=True).start()
    left = None
    while not ended.wait(LOOK_EVERY_S):
        if left is None and stopping():
            left = round(grace_s / LOOK_EVERY_S)
        if left is not None and (left := left - 1) < 0:
            raise InterruptedByUserError(
                f"the platform did not answer within {grace_s:g} s: what was on its way may or may not be done; "
                "run the same command again to go on"
            )
    if errors:
        raise errors[0]
    return results[0]
