"""What an SAE's configuration must say before it is used, in SAELens's format of before and after its version 6.

SAELens fills in what is missing: 100 for a k, yes for a begin-of-text token, ReLU for an activation that it does not know. Here
a missing field is an error that names it, and whatever would be read wrongly is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapscope.errors import InputError

ARCHITECTURES = ("jumprelu", "standard", "topk", "gated")
"""Those whose code of one token depends on that token alone and is zero where the concept does not fire."""

NORMALISATIONS = ("none", "layer_norm", "constant_norm_rescale")
"""What SAELens does to each activation as it reads it, and undoes in the reconstruction."""

SCALED = "expected_average_only_in"
"""All activations times one factor, by which their mean norm becomes sqrt(width). The factor must be folded into the weights."""

OLD_NAMES = {"hook_point": "hook_name", "activation_fn_str": "activation_fn"}

_BLOCKS = re.compile(r"blocks\.(\d+)\.hook_resid_(pre|post)")
_MODULE = re.compile(r"(?:(?:model|transformer|language_model|text_model|gpt_neox|decoder)\.)*(?:layers|h)\.(\d+)(?:\.output)?")


def hook_layer(hook_name: str, file: Path | str | None = None) -> int:
    """The block whose output a hook name means.

    ``blocks.N.hook_resid_post`` and a module's name (``model.layers.N``) are the output of block N, and
    ``blocks.N.hook_resid_pre`` is that of block N - 1.

    Raises:
        InputError: it is not a place in the residual stream after a block.
    """
    if match := _BLOCKS.fullmatch(hook_name):
        layer = int(match[1]) - (match[2] == "pre")
        if layer < 0:
            raise InputError(f"reads {hook_name!r}, the embeddings before the first block", file=file, field="hook_name")
        return layer
    if match := _MODULE.fullmatch(hook_name):
        return int(match[1])
    fix = "use a residual-stream SAE"
    raise InputError(f"reads {hook_name!r}, not the residual stream after a block", file=file, field="hook_name", fix=fix)


def fields_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of a configuration in one mapping, the metadata's among them, under today's names."""
    metadata = config.get("metadata")
    fields: dict[str, Any] = {}
    for name, value in [*config.items(), *(metadata.items() if isinstance(metadata, Mapping) else [])]:
        fields.setdefault(OLD_NAMES.get(str(name), str(name)), value)
    arguments = fields.get("activation_fn_kwargs")
    if isinstance(arguments, Mapping) and arguments.get("k") is not None:
        fields.setdefault("k", arguments["k"])
    return fields


def check_config(
    config: Mapping[str, Any], file: Path | str, *, prepend_bos: bool | None = None, norm_scaling_factor: float | None = None
) -> None:
    """Check an SAE's configuration as it was written, before SAELens completes it.

    Args:
        file: what is named in errors.
        prepend_bos: what the parameters say, where they do; the configuration need not say it then.
        norm_scaling_factor: the factor of :data:`SCALED`, where it is known.

    Raises:
        InputError: a required field is missing; the architecture, the place that is read or the normalisation is one that
            cannot be used.
    """
    fields = fields_of(config)
    architecture = _architecture(fields, file)
    needed = ["model_name", "hook_name", "d_in", "d_sae"]
    needed += ["k"] if architecture == "topk" else []
    needed += ["prepend_bos"] if prepend_bos is None else []
    for name in needed:
        if fields.get(name) is None:
            fix = "say it in the parameters, under the observer's sae" if name == "prepend_bos" else "add it to the SAE's configuration"
            raise InputError("the SAE's metadata does not say", file=file, field=name, fix=fix)
    layer = hook_layer(str(fields["hook_name"]), file)
    module = fields.get("hf_hook_name")
    if module is not None and hook_layer(str(module), file) != layer:
        raise InputError(f"is {module!r}, and hook_name is {fields['hook_name']!r}: two places", file=file, field="hf_hook_name")
    if fields.get("reshape_activations") not in (None, "none"):
        raise InputError("reads attention heads, not the residual stream", file=file, field="reshape_activations")
    _check_normalisation(fields.get("normalize_activations"), norm_scaling_factor, file)


def _architecture(fields: Mapping[str, Any], file: Path | str) -> str:
    architecture = str(fields.get("architecture") or "standard")
    several = "crosscoder" in architecture or isinstance(fields.get("hook_name"), (list, tuple))
    if several or "clt" in architecture.split("_"):
        raise InputError("is a crosscoder: its latents belong to several places at once", file=file, field="architecture")
    if "transcoder" in architecture or fields.get("hook_name_out") is not None or fields.get("d_out") is not None:
        what = "is a transcoder: it predicts another place, its latents are no concepts of this one"
        raise InputError(what, file=file, field="architecture")
    activation = fields.get("activation_fn")
    if architecture == "standard" and activation == "topk":
        architecture = "topk"
    if architecture not in ARCHITECTURES:
        fix = f"use one of {', '.join(ARCHITECTURES)}; save a training SAE with save_inference_model"
        raise InputError(f"unsupported SAE architecture {architecture!r}", file=file, field="architecture", fix=fix)
    if activation not in (None, "relu") and architecture != "topk":
        raise InputError(f"is {activation!r}, which would be read as relu", file=file, field="activation_fn")
    return architecture


def _check_normalisation(stated: Any, factor: float | None, file: Path | str) -> None:
    # Before version 6 it was yes or no, and yes meant one factor for all activations.
    kind = SCALED if stated is True else "none" if stated in (None, False) else str(stated)
    if kind == SCALED and factor is None:
        what = "expects scaled activations and does not hold the scale"
        fix = "give norm_scaling_factor under the observer's sae, or save it again with the scale folded into its weights"
        raise InputError(what, file=file, field="normalize_activations", fix=fix)
    if kind not in (*NORMALISATIONS, SCALED):
        fix = f"fold it into the weights and save it again; {', '.join(NORMALISATIONS)} are applied as they are"
        raise InputError(f"is {kind!r}, which SAELens does not apply", file=file, field="normalize_activations", fix=fix)
