"""Turn sampled tokens into text piece by piece, never splitting a character, holding back what may be a stop string."""

from __future__ import annotations

from typing import Any

UNFINISHED = "\ufffd"
"""what a tokenizer decodes half a character to"""
LONGEST_CHARACTER = 8
"""tokens; after so many the bytes are broken for good and are let through"""


class Detokeniser:
    """Collects one completion's tokens. `text` is all that was emitted so far."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._ids: list[int] = []
        self._start = 0  # of the window that is decoded: a few tokens before the first one not yet emitted
        self._read = 0
        self._held = ""
        self.text = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """Take one token; the text that is now certain."""
        self._ids.append(token)
        before = self._decode(self._start, self._read)
        now = self._decode(self._start, len(self._ids))
        # A tokenizer that splits characters shows the half one as U+FFFD: wait for the rest.
        if now.endswith(UNFINISHED) and len(self._ids) - self._read < LONGEST_CHARACTER:
            return ""
        self._start, self._read = self._read, len(self._ids)
        return self._emit(now[len(before) :], last=False)

    def finish(self) -> str:
        """The completion is over; whatever was held back."""
        rest = self._decode(self._start, len(self._ids))[len(self._decode(self._start, self._read)) :]
        return self._emit(rest, last=True)

    def _decode(self, start: int, stop: int) -> str:
        ids = self._ids[start:stop]
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _emit(self, new: str, *, last: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        found = [at for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            text, self._held = text[: min(found)], ""
        else:
            keep = 0 if last else self._undecided(text)
            text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        self.text += text
        return text

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        ends = (
            size
            for stop in self._stop
            for size in range(1, len(stop))
            if size <= len(text) and text.endswith(stop[:size])
        )
        return max(ends, default=0)
