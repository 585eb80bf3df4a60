"""What commands by name remember between two calls, for each server apart: the project, the agent, its session.

`~/.config/arena-gitops/preferences.json`, beside the credentials. The published client's `~/.arena` is never read:
what it keeps there is not told apart by server.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from arena_gitops.cli.credentials import credentials_file
from arena_gitops.errors import ArenaError


class Preferences(BaseModel):
    """About one server."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    project: str | None = None
    agent: str | None = None
    sessions: dict[str, str] = Field(default_factory=dict)
    """deployment → the conversation that goes on"""


_FILE: TypeAdapter[dict[str, Preferences]] = TypeAdapter(dict[str, Preferences])


@dataclass(frozen=True, slots=True)
class Memory:
    """The preferences of one server."""

    path: Path
    key: str

    @classmethod
    def of(cls, environ: Mapping[str, str], key: str) -> Memory:
        """In the folder of this user's credentials."""
        return cls(credentials_file(environ).with_name("preferences.json"), key)

    def read(self) -> Preferences:
        """What is remembered; nothing is as good as a file that is not there."""
        return self._all().get(self.key, Preferences())

    def change(self, how: Callable[[Preferences], Preferences]) -> None:
        """Replace what is remembered; the file appears whole or not at all."""
        known = self._all()
        known[self.key] = how(known.get(self.key, Preferences()))
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = json.dumps({key: value.model_dump(mode="json") for key, value in known.items()}, indent=2)
        handle, partial = tempfile.mkstemp(dir=self.path.parent, prefix=".preferences-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        Path(partial).replace(self.path)

    def _all(self) -> dict[str, Preferences]:
        try:
            return _FILE.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValidationError as error:
            raise ArenaError(f"{self.path} cannot be read; delete it to start anew") from error
