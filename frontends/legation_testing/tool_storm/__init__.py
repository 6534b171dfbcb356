"""The storm of an author's own test: what befalls it, the world that it runs in, and its report."""

from __future__ import annotations

from .author_storm import CHOSEN, Chosen, StormOptions, storm, try_storm
from .model_faults import MODEL_FAULTS, ModelFault
from .report import StormEnds, ToolStormReport, ToolTally, WithinTally
from .world import StormWorld

__all__ = [
    "CHOSEN",
    "MODEL_FAULTS",
    "Chosen",
    "ModelFault",
    "StormEnds",
    "StormOptions",
    "StormWorld",
    "ToolStormReport",
    "ToolTally",
    "WithinTally",
    "storm",
    "try_storm",
]
