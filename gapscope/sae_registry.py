"""Published SAEs by their names in the SAELens registry: find the entry without a network, then fetch and check the SAE."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sae_lens
from sae_lens import SAE
from sae_lens.loading.pretrained_sae_loaders import NAMED_PRETRAINED_SAE_CONFIG_GETTERS, get_conversion_loader_name
from sae_lens.loading.pretrained_saes_directory import (
    get_config_overrides,
    get_norm_scaling_factor,
    get_pretrained_saes_directory,
)

from gapscope.errors import InputError
from gapscope.params_observers import RegistrySae
from gapscope.sae import LoadedSAE, checked
from gapscope.sae_config import check_config

PICKLED_LOADERS = ("connor_rob_hook_z", "deepseek_r1", "dictionary_learning_1", "goodfire", "qwen_scope")
"""SAELens's loaders for releases whose weights are a pickled torch file and nothing else."""

UNSAFE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
"""The environment variable by which torch would read such a file with all that a pickle can do."""


@dataclass(frozen=True)
class RegistryEntry:
    """What the registry holds of an SAE; reading it needs no network.

    Attributes:
        repo: the hub repository, and ``path`` the SAE's place in it.
        model: the model that the registry names; None for a repository that is not registered.
        loader: SAELens's name for the form of the files.
        norm_scaling_factor: by which activations are to be scaled, where the SAE expects that.
    """

    release: str
    id: str
    repo: str
    path: str
    model: str | None
    loader: str
    norm_scaling_factor: float | None

    @property
    def name(self) -> str:
        """Release and id."""
        return f"{self.release}/{self.id}"

    @property
    def pickled(self) -> bool:
        """Whether its weights are a pickled torch file."""
        return self.loader in PICKLED_LOADERS


def registry_entry(release: str, sae_id: str) -> RegistryEntry:
    """Find an SAE in the registry of the installed SAELens.

    Raises:
        InputError: there is no such release and it is no hub repository either, or it has no such SAE; the nearest names
            are given.
    """
    known = get_pretrained_saes_directory().get(release)
    if known is None and "/" in release:
        return RegistryEntry(release, sae_id, release, sae_id, None, "sae_lens", None)
    if known is None:
        raise InputError(
            f"the registry of SAELens {sae_lens.__version__} has no release {release!r}",
            field="sae.release",
            fix=_nearest(release, list(get_pretrained_saes_directory())),
        )
    if sae_id not in known.saes_map:
        raise InputError(f"release {release} has no SAE {sae_id!r}", field="sae.id", fix=_nearest(sae_id, list(known.saes_map)))
    factor = get_norm_scaling_factor(release, sae_id)
    return RegistryEntry(release, sae_id, known.repo_id, known.saes_map[sae_id], known.model, get_conversion_loader_name(release), factor)


def _nearest(name: str, names: list[str]) -> str:
    found = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:3]
    return f"{'nearest' if len(names) > 3 else 'it has'}: {', '.join(found)}"


def registry_config(entry: RegistryEntry) -> dict[str, Any]:
    """An SAE's configuration as its loader in SAELens gives it; some need a small file from the hub for it."""
    getter = NAMED_PRETRAINED_SAE_CONFIG_GETTERS[entry.loader]
    with _one_line(entry):
        config: dict[str, Any] = getter(entry.repo, entry.path, "cpu", False, get_config_overrides(entry.release, entry.id))
    return config


def load_registry_sae(source: RegistrySae, device: str = "cpu") -> LoadedSAE:
    """Fetch an SAE by its name in the registry.

    Raises:
        InputError: the registry does not know it, the hub cannot be reached, its weights are pickled and the parameters do
            not allow that, or anything that :func:`gapscope.sae_config.check_config` and :func:`gapscope.sae.checked` refuse.
    """
    entry = registry_entry(source.release, source.id)
    _check_pickled(entry, source.pickled)
    check_config(registry_config(entry), entry.name, prepend_bos=source.prepend_bos, norm_scaling_factor=entry.norm_scaling_factor)
    with _one_line(entry):
        sae = SAE.from_pretrained(entry.release, entry.id, device=device, dtype="float32")
    sae.cfg.metadata.registry_name = entry.name
    return checked(sae, entry.name, prepend_bos=source.prepend_bos)


@contextmanager
def _one_line(entry: RegistryEntry) -> Iterator[None]:
    """Turn what the hub's client, SAELens and its loaders raise (dozens of kinds) into one line."""
    try:
        yield
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        fix = "check the network, and whether the repository asks for a licence to be accepted"
        raise InputError(f"cannot fetch this SAE from {entry.repo}: {reason}", file=entry.name, fix=fix) from error


def _check_pickled(entry: RegistryEntry, allowed: bool) -> None:
    if not entry.pickled:
        return
    if not allowed:
        raise InputError(
            "its weights are published as a pickled torch file only",
            file=entry.name,
            field="pickled",
            fix="pickled: true under the observer's sae lets torch's reader of plain tensors open it",
        )
    if os.environ.get(UNSAFE, "0").lower() in ("1", "true", "y", "yes"):
        raise InputError(f"{UNSAFE} would let a pickled file run code", file=entry.name, fix="unset it")
