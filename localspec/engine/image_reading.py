"""The part of a step that reads images: forwards of their own, between those of tokens."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from localspec.engine.adapters import Adapters
from localspec.engine.images import ImageBackend, ImageRows, border
from localspec.engine.kv.admission import KvAdmission
from localspec.engine.session import Session
from localspec.errors import EngineError, NoRoom
from localspec.types import Backend

_log = logging.getLogger("localspec.engine")


class ImageReading:
    """Reads the images of sessions, a piece in each step. Engine's thread.

    Args:
        target: The model that reads them.
        room: Decides who goes on where cells are few.
        adapters: Sets those of each forward.
    """

    def __init__(self, target: Backend, room: KvAdmission, adapters: Adapters) -> None:
        self._target, self._room, self._adapters = target, room, adapters

    def held(self, slot: int, images: Sequence[ImageRows], length: int) -> int:
        """Cut a slot's text, of `length`, to whole pieces of these images; how much stays."""
        kept = border(images, length)
        return self._target.truncate(slot, kept) if kept < length else length

    def fitting(self) -> tuple[list[Session], int]:
        """The sessions that go on with tokens, and the draft nodes that there are cells for.

        Those that go on together have the same adapters, which are set. Where sessions wait for an
        image, the oldest of them has a piece of its image read first.

        Raises:
            NoRoom: the memory is as large as before, and the piece does not fit.
        """
        going, spare = self._room.fitting()
        waiting = [session for session in going if session.at_image]
        if not waiting:
            return self._adapters.turn(going), spare
        try:
            self._read(waiting[0])
        except NoRoom as error:
            if not self._room.shrank:
                raise
            _log.warning("%s", error)
        reading = [session for session in going if session not in waiting]
        return self._adapters.turn(reading), spare

    def _read(self, session: Session) -> None:
        image, target = session.image, self._target
        if image is None or not isinstance(target, ImageBackend):
            raise EngineError("This model reads no images.")
        rows = image.piece(session.cached)
        self._adapters.use(session.request.adapters)
        target.see(session.slot, image, rows)
        session.cached += len(rows)
