"""Sparse autoencoders in SAELens's format: load, check against the observer, encode in fp32.

What goes wrong silently elsewhere is an error here: a transcoder, another layer's or width's SAE, an activation scale that was
never folded in, a required field that reads as None.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sae_lens import SAE

from gapscope.errors import InputError, reason_of
from gapscope.files import read_json, require_file
from gapscope.lm import LM, check_layer
from gapscope.sae_config import SCALED, check_config, hook_layer

logger = logging.getLogger(__name__)

MAX_NORM_RATIO = 10.0
"""A token whose residual is longer than this many times the median is an attention sink, whatever its text."""

CHUNK_NUMBERS = 2**23
"""Codes computed at a time, so that a wide SAE needs no more memory than a narrow one."""


@dataclass(frozen=True)
class LoadedSAE:
    """An SAE in evaluation mode and fp32, with what its metadata says of how to use it.

    Attributes:
        id: what the SAE calls itself: its registry name, or model, hook and width.
        layer: block after which it reads the residual stream.
        prepend_bos: whether it was trained on sequences that begin with a begin-of-text token.
        context_size: longest sequence it was trained on, where it says so.
    """

    sae: Any
    id: str
    architecture: str
    d_in: int
    d_sae: int
    hook_name: str
    layer: int
    prepend_bos: bool
    context_size: int | None

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Codes (n, d_sae) of activations (n, d_in), fp32; a row's code depends on that row alone."""
        with torch.inference_mode():
            codes: torch.Tensor = self.sae.encode(x.float())
        return codes

    def reconstruct(self, x: torch.Tensor) -> torch.Tensor:
        """Reconstruction (n, d_in) of activations (n, d_in), fp32."""
        with torch.inference_mode():
            out: torch.Tensor = self.sae.decode(self.sae.encode(x.float()))
        return out

    def chunk(self) -> int:
        """How many rows to encode at a time."""
        return max(64, CHUNK_NUMBERS // self.d_sae)


def load_sae(path: Path, device: str = "cpu", *, prepend_bos: bool | None = None, norm_scaling_factor: float | None = None) -> LoadedSAE:
    """Load an SAE from a directory in SAELens's format (cfg.json and sae_weights.safetensors).

    Args:
        prepend_bos: what holds instead of what the SAE's configuration says.
        norm_scaling_factor: the factor by which the SAE expects activations to be scaled, if it does; it is folded in.

    Raises:
        InputError: a file is missing or damaged, or anything that :func:`gapscope.sae_config.check_config` and
            :func:`checked` refuse.
    """
    file = path / "cfg.json"
    config = read_json(file)
    require_file(path / "sae_weights.safetensors")
    if not isinstance(config, dict):
        raise InputError("must be a JSON object", file=file)
    check_config(config, file, prepend_bos=prepend_bos, norm_scaling_factor=norm_scaling_factor)
    try:
        sae = SAE.load_from_disk(path, device=device, dtype="float32")
    except Exception as error:  # SAELens, torch and safetensors raise a dozen kinds for a damaged file
        raise InputError(f"cannot load this SAE: {reason_of(error)}", file=path) from error
    if norm_scaling_factor is not None:
        if sae.cfg.normalize_activations != SCALED:
            what = f"is given, and the SAE expects {sae.cfg.normalize_activations!r}, not {SCALED}"
            raise InputError(what, file=file, field="norm_scaling_factor", fix="leave it out")
        sae.fold_activation_norm_scaling_factor(norm_scaling_factor)
    return checked(sae, path, prepend_bos=prepend_bos)


def checked(sae: Any, file: Path | str, *, prepend_bos: bool | None = None) -> LoadedSAE:
    """Wrap an SAELens SAE after checking its configuration, widths, thresholds, k and weights.

    Args:
        file: what is named in errors.
        prepend_bos: what holds instead of what the SAE's configuration says.

    Raises:
        InputError: one of them is absent or contradicts another, or a weight is not finite.
    """
    cfg = sae.cfg
    check_config(cfg.to_dict(), file, prepend_bos=prepend_bos)
    if tuple(sae.W_enc.shape) != (cfg.d_in, cfg.d_sae) or tuple(sae.W_dec.shape) != (cfg.d_sae, cfg.d_in):
        raise InputError(f"weights of shape {tuple(sae.W_enc.shape)}, configuration says {(cfg.d_in, cfg.d_sae)}", file=file)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in sae.state_dict().values()):
        raise InputError("a weight is NaN or infinite", file=file)
    architecture = cfg.architecture()
    if architecture == "jumprelu" and bool((sae.threshold < 0).any()):
        raise InputError("a threshold is negative", file=file, field="threshold")
    if architecture == "topk" and not 0 < cfg.k <= cfg.d_sae:
        raise InputError(f"k is {cfg.k} of {cfg.d_sae} latents", file=file, field="k")
    metadata = cfg.metadata.to_dict()
    stated = metadata.get("prepend_bos")
    if prepend_bos is not None and prepend_bos != stated:
        logger.warning("%s: the SAE says prepend_bos %s, the parameters say %s, which is used", file, stated, prepend_bos)
        cfg.metadata.prepend_bos = stated = prepend_bos
    for weight in sae.parameters():
        weight.data = weight.data.contiguous()  # loaders transpose without copying, and safetensors saves no such view
    context = metadata.get("context_size")
    return LoadedSAE(
        sae=sae.eval().requires_grad_(False),
        id=metadata.get("registry_name") or f"{metadata['model_name']}/{metadata['hook_name']}/{cfg.d_sae}",
        architecture=architecture,
        d_in=int(cfg.d_in),
        d_sae=int(cfg.d_sae),
        hook_name=str(metadata["hook_name"]),
        layer=hook_layer(str(metadata["hook_name"]), file),
        prepend_bos=bool(stated),
        context_size=None if context is None else int(context),
    )


def check_fits(lm: LM, sae: LoadedSAE, layer: int | None = None) -> None:
    """Raise InputError unless the SAE's width and layer exist in the model, and the layer is the one asked for, if any."""
    if sae.d_in != lm.width:
        fix = "use an SAE of this model"
        raise InputError(
            f"the SAE {sae.id} reads {sae.d_in} numbers a token, the model's residual stream has {lm.width}", field="d_in", fix=fix
        )
    check_layer(lm, sae.layer)
    if layer is not None and layer != sae.layer:
        fix = "set the observer's layer to the SAE's, or use an SAE of that layer"
        raise InputError(f"the observer's layer is {layer}, the SAE {sae.id} reads layer {sae.layer}", field="layer", fix=fix)
