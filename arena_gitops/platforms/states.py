"""The answer to `GET state`, read piece by piece: ten thousand resources are tens of megabytes of JSON.

One resource at a time is taken off the stream, and its parts are those of an earlier one where they are equal, so
that what is kept is a small part of what was sent. What stands around the resources is validated as a whole.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from sys import intern
from typing import Any, NoReturn

from pydantic import ConfigDict

from arena_gitops.spec.alike import Alike
from arena_gitops.spec.wire import ResourceDocument, StateDocument

_BEGIN = '"resources":['
"""Within a JSON text it begins the list: in a string the quotes would be escaped."""


class _Envelope(ResourceDocument):
    """A document without its spec, which is JSON already and any mapping will do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: None = None  # type: ignore[assignment]  # put back once the rest is validated


def read_state(chunks: Iterable[bytes]) -> StateDocument:
    """Read an answer; raises pydantic's ValidationError, or ValueError, where it is no state."""
    text = _Text(chunks)
    head = text.until(_BEGIN)
    if head is None:
        return StateDocument.model_validate_json(text.rest())
    resources = tuple(_resources(text))
    around = StateDocument.model_validate_json(f"{head}{_BEGIN}{text.rest()}")
    return around.model_copy(update={"resources": resources})


def _resources(text: _Text) -> Iterator[ResourceDocument]:
    alike = Alike()
    for raw in text.items():
        spec = raw.pop("spec", None)
        if not isinstance(spec, dict):
            ResourceDocument.model_validate({**raw, "spec": spec})  # says what is wrong
        envelope = _Envelope.model_validate(raw)
        fields = {name: getattr(envelope, name) for name in type(envelope).model_fields}
        fields |= {"spec": _shared(alike, spec), "owner": alike.one("owner", envelope.owner)}
        fields["provenance"] = alike.one("provenance", envelope.provenance)
        yield ResourceDocument.model_construct(None, **fields)


def _shared(alike: Alike, spec: dict[str, Any]) -> dict[str, Any]:
    shared = {intern(name): part for name, part in alike.shared(spec).items()}
    for name in ("manifest", "inputs"):
        if isinstance(whole := shared.get(name), dict):
            parts = {intern(key): part for key, part in alike.shared(whole, f"{name}.").items()}
            shared[name] = alike.one(name, parts) if name == "inputs" else parts
    return shared


class _Text:
    """A text that arrives in pieces, and is forgotten as it is read."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._here = ""
        self._at = 0
        self._scan = json.JSONDecoder(parse_constant=_no_number).raw_decode

    def until(self, mark: str) -> str | None:
        """What comes before a mark, with it taken off; None where there is none."""
        while (found := self._here.find(mark, self._at)) < 0:
            if not self._more():
                return None
        before, self._at = self._here[self._at : found], found + len(mark)
        return before

    def items(self) -> Iterator[dict[str, Any]]:
        """Objects of a list, up to its end, which stays."""
        while self._peek() != "]":
            if self._here[self._at] == ",":
                self._at += 1
                self._peek()
            item = self._item()
            if not isinstance(item, dict):
                raise ValueError(  # noqa: TRY004 - of an answer, not of an argument
                    f"a resource is an object, not {type(item).__name__}"
                )
            yield item

    def rest(self) -> str:
        """Everything that is left."""
        while self._more():
            pass
        return self._here[self._at :]

    def _peek(self) -> str:
        while True:
            while self._at < len(self._here) and self._here[self._at].isspace():
                self._at += 1
            if self._at < len(self._here):
                return self._here[self._at]
            if not self._more():
                raise ValueError("the answer ends in the middle of its resources")

    def _item(self) -> Any:
        while True:
            try:
                item, self._at = self._scan(self._here, self._at)
            except json.JSONDecodeError:
                wanted = 2 * (
                    len(self._here) - self._at
                )  # twice as much, so that a long one is not read often
                if not self._more():
                    raise
                while len(self._here) < wanted and self._more():
                    pass
            else:
                return item

    def _more(self) -> bool:
        piece = next(self._chunks, None)
        if piece is None:
            return False
        self._here, self._at = self._here[self._at :] + self._decode(piece), 0
        return True


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")
