"""Brings rows of the hub that commands asked for, one dataset after the other; see `services.imports`."""

from __future__ import annotations

from arena_runner.server.controllers.loop import Controller
from arena_runner.server.services import imports


class ImportsController(Controller):
    """An import that was cut short is found pending again, and begun anew."""

    def run(self) -> None:
        """The loop, on a clean floor."""
        imports.sweep(self.world)
        super().run()

    def reconcile(self) -> None:
        """Bring the oldest; the next look brings the next."""
        with self.world.store.read() as session:
            waiting = imports.pending(session)
        for row in waiting:
            if self.stopping:
                return
            imports.bring(self.world, row)
