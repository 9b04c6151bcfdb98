"""What the explorer reads beside the report's own inputs, and what it is told about the run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapscope.files import sha256_tree
from gapscope.params import Params, StageParams
from gapscope.params_observers import RegistrySae
from gapscope.report.explorer.neuronpedia import neuronpedia_page
from gapscope.report.inputs import ArtifactPaths


@dataclass(frozen=True)
class ExplorerPaths:
    """Where a run's artifacts lie; None for a part that this run does not have.

    Attributes:
        artifacts: what the report reads.
        sae: directory of SAEs, one an observer: their decoder directions give a concept's neighbours.
        changes: directory of pairs of subjects compared, one table an observer.
        validity: the metrics file of the validity stage.
        variants: directory of the accepted and rejected variants.
        robustness: directory written by evaluate.
    """

    artifacts: ArtifactPaths
    sae: Path | None = None
    changes: Path | None = None
    validity: Path | None = None
    variants: Path | None = None
    robustness: Path | None = None

    def digest(self) -> str:
        """A sha256 of every file of the run that lies in these places, so that a page says what it was made from."""
        digest = hashlib.sha256()
        places = [getattr(self.artifacts, name) for name in ("items", "activations", "coverage", "performance", "clusters", "scores")]
        for place in [*places, self.sae, self.changes, self.validity, self.variants, self.robustness]:
            known = place is not None and place.exists()
            digest.update(f"{sha256_tree(place) if known and place is not None else '-'}\n".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class About:
    """What the parameters say of a run.

    Attributes:
        observers, models: slugs and names.
        neuronpedia: by observer, the page on Neuronpedia below which its concepts have theirs, where that is known.
    """

    seed: int
    min_n_eff: float
    alpha: float
    confidence: float
    observers: Mapping[str, str]
    models: Mapping[str, str]
    neuronpedia: Mapping[str, str] = field(default_factory=dict)

    def shown(self) -> dict[str, Any]:
        """The part that the page states in words."""
        return {"seed": self.seed, "min_n_eff": self.min_n_eff, "alpha": self.alpha, "confidence": self.confidence}


def about_run(params: StageParams) -> About:
    """What the parameters say; without a params.yaml whatever lies in the directories is shown by its slug."""
    rules = params.performance
    numbers = (params.seed, rules.min_n_eff, rules.alpha, rules.confidence)
    if not isinstance(params, Params):
        return About(*numbers, {}, {})
    pages = {
        slug: page
        for slug, observer in params.observers.items()
        if isinstance(observer.sae, RegistrySae) and (page := neuronpedia_page(observer.sae.release, observer.sae.id)) is not None
    }
    observers, models = ({slug: entry.name for slug, entry in part.items()} for part in (params.observers, params.models))
    return About(*numbers, observers, models, pages)


def run_paths(data: Path, metrics: Path) -> ExplorerPaths:
    """The places of a run as the stages lay them out, below ``data`` and ``metrics``; None for what is not there."""
    names = ("items", "activations", "coverage", "performance", "clusters", "scores")
    optional = (data / "sae", data / "changes", metrics / "validity.json", data / "variants", data / "robustness")
    return ExplorerPaths(ArtifactPaths(*(data / name for name in names)), *(path if path.exists() else None for path in optional))
