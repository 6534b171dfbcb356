"""The context of a run, made for each function that is given it.

All that does not change while a run goes on stands in the input of the run at the top, from its
start: so the members of a team are given the same, and so is whoever goes on with it elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from attrs import field

from ..access.decide import name_of
from ..http.bodies.media_types import clean_name, decode_content
from ..http.messages import compact_json
from ..store.run_rows import ClaimedRun
from ..tools import ContextParameter, Misfit, Run, RunFile, read_given
from ..values import define

__all__ = ["Given", "name_user"]

_NOBODY: Final = "~nobody:"
_KINDS: Final = ("files", "images", "audio", "videos")


@define(eq=False)
class Given:
    """All that came with a run; `asked` is the input of the run at the top."""

    asked: Mapping[str, Any] = field(factory=dict[str, Any])
    _files: tuple[RunFile, ...] | None = field(default=None, init=False)

    @property
    def dependencies(self) -> dict[str, Any]:
        """A copy of the dependencies."""
        return _copy(self.asked.get("dependencies"))

    @property
    def metadata(self) -> dict[str, Any]:
        """A copy of the metadata."""
        return _copy(self.asked.get("metadata"))

    @property
    def files(self) -> tuple[RunFile, ...]:
        """The files, pictures and recordings, decoded once."""
        if self._files is None:
            sent = (item for kind in _KINDS for item in self.asked.get(kind, ()))
            self._files = tuple(map(_file, sent))
        return self._files

    def context(
        self, parameter: ContextParameter, run: ClaimedRun, state: Mapping[str, Any], now_us: int
    ) -> Run[Any, Any] | Misfit:
        """Return the context of `run`, whose function has `parameter`; `state` is the session's."""
        dependencies = read_given(parameter.dependencies, "dependencies", self.dependencies)
        if isinstance(dependencies, Misfit):
            return dependencies
        own = read_given(parameter.state, "state", state)
        if isinstance(own, Misfit):
            return own
        return Run(
            user_id=name_user(run.owner),
            session_id=run.session_id,
            run_id=run.run_id,
            agent=run.component_id,
            dependencies=dependencies,
            metadata=self.metadata,
            state=own,
            files=self.files,
            claims=_copy(self.asked.get("claims")),
            now=datetime.fromtimestamp(now_us / 1_000_000, UTC),
        )


def name_user(owner: str) -> str | None:
    """Return the name of the caller; None where the run is nobody's."""
    return None if not owner or owner.startswith(_NOBODY) else name_of(owner)


def _copy(given: Mapping[str, Any] | None) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(compact_json(given)) if given else {}
    return copy


def _file(item: Mapping[str, Any]) -> RunFile:
    name, media_type = item.get("filename") or item.get("name"), item.get("mime_type")
    content = decode_content(item)
    return RunFile(clean_name(name), str(media_type or ""), b"" if content is None else content)
