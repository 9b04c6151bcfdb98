"""Where Neuronpedia shows the concepts of a published SAE, by the registry that the installed SAELens carries."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import yaml

from gapscope.files import read_text

PAGE = "https://www.neuronpedia.org/"


def neuronpedia_page(release: str, sae_id: str) -> str | None:
    """The page below which every concept has its own, or None where the registry names none (or SAELens is not installed)."""
    found = importlib.util.find_spec("sae_lens")
    if found is None or found.origin is None:
        return None
    text = read_text(Path(found.origin).parent / "pretrained_saes.yaml")
    registry = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for entry in (registry.get(release) or {}).get("saes", []):
        name = str(entry.get("neuronpedia") or "")
        if entry.get("id") == sae_id and re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            return PAGE + name
    return None
