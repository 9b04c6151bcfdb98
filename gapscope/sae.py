"""Sparse autoencoders in SAELens's format: load, check against the observer, encode in fp32, try on fixed text.

What goes wrong silently elsewhere is an error here: a transcoder, another layer's or width's SAE, an activation scale that was
never folded in, a required field that reads as None. Last, the canary: reconstruction error on fixed text must be small.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sae_lens import SAE

from gapscope.canary import TEXTS
from gapscope.errors import InputError
from gapscope.files import read_json, require_file
from gapscope.lm import LM, check_layer, encode_text, pad_batch, pad_id, read_residual

ARCHITECTURES = ("jumprelu", "standard", "topk", "gated")
"""Those whose code of one token depends on that token alone and is zero where the concept does not fire."""

MAX_NORM_RATIO = 10.0
"""A token whose residual is longer than this many times the median is an attention sink, whatever its text."""

CHUNK_NUMBERS = 2**23
"""Codes computed at a time, so that a wide SAE needs no more memory than a narrow one."""

_BLOCKS = re.compile(r"blocks\.(\d+)\.hook_resid_(pre|post)")
_MODULE = re.compile(r"(?:[a-z_]+\.)*(?:layers|h)\.(\d+)")


@dataclass(frozen=True)
class LoadedSAE:
    """An SAE in evaluation mode and fp32, with what its metadata says of how to use it.

    Attributes:
        id: what the SAE calls itself: its registry name, or model, hook and width.
        layer: block after which it reads the residual stream; -1 for the stream before the first block.
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


def required(metadata: Any, name: str, file: Path | str | None = None) -> Any:
    """A field of an SAE's metadata. SAELens reads a missing one as None, which would pass for false: here it is an error."""
    value = metadata.to_dict().get(name)
    if value is None:
        raise InputError("the SAE's metadata does not say", file=file, field=name, fix=f"add it to metadata.{name} in cfg.json")
    return value


def hook_layer(hook_name: str, file: Path | str | None = None) -> int:
    """The block whose output a hook name means; ``blocks.0.hook_resid_pre`` is -1.

    Raises:
        InputError: it is not a place in the residual stream between blocks.
    """
    if match := _BLOCKS.fullmatch(hook_name):
        return int(match[1]) - (match[2] == "pre")
    if match := _MODULE.fullmatch(hook_name):
        return int(match[1])
    raise InputError(f"reads {hook_name!r}, not the residual stream", file=file, field="hook_name", fix="use a residual-stream SAE")


def load_sae(path: Path, device: str = "cpu") -> LoadedSAE:
    """Load an SAE from a directory in SAELens's format (cfg.json and sae_weights.safetensors).

    Raises:
        InputError: a file is missing or damaged, the architecture is not one of ARCHITECTURES (transcoders are not SAEs), or
            anything that :func:`checked` refuses.
    """
    cfg = read_json(path / "cfg.json")
    require_file(path / "sae_weights.safetensors")
    if not isinstance(cfg, dict):
        raise InputError("must be a JSON object", file=path / "cfg.json")
    _check_architecture(str(cfg.get("architecture", "standard")), path / "cfg.json")
    try:
        sae = SAE.load_from_disk(path, device=device, dtype="float32")
    except Exception as error:  # SAELens, torch and safetensors raise a dozen kinds for a damaged file
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"cannot load this SAE: {reason}", file=path) from error
    return checked(sae, path)


def load_registry_sae(release: str, sae_id: str, device: str = "cpu") -> LoadedSAE:
    """Fetch an SAE by its name in the SAELens registry; the only function here that uses a network.

    Raises:
        InputError: the registry does not know it, the hub cannot be reached, or anything that :func:`checked` refuses.
    """
    name = f"{release}/{sae_id}"
    try:
        sae = SAE.from_pretrained(release, sae_id, device=device, dtype="float32")
    except Exception as error:  # the hub's client, SAELens and its converters raise many kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"cannot fetch this SAE: {reason}", file=name, fix="check the name and the network") from error
    _check_architecture(sae.cfg.architecture(), name)
    return checked(sae, name, name)


def _check_architecture(architecture: str, file: Path | str) -> None:
    if "transcoder" in architecture:
        raise InputError(
            "is a transcoder: it predicts another place, its latents are no concepts of this one", file=file, field="architecture"
        )
    if architecture not in ARCHITECTURES:
        fix = f"use one of {', '.join(ARCHITECTURES)}; save a training SAE with save_inference_model"
        raise InputError(f"unsupported SAE architecture {architecture!r}", file=file, field="architecture", fix=fix)


def checked(sae: Any, file: Path | str, sae_id: str | None = None) -> LoadedSAE:
    """Wrap an SAELens SAE after checking widths, thresholds, k, normalisation, hook and metadata.

    Raises:
        InputError: one of them is absent or contradicts another, or a weight is not finite.
    """
    cfg = sae.cfg
    architecture = cfg.architecture()
    if tuple(sae.W_enc.shape) != (cfg.d_in, cfg.d_sae) or tuple(sae.W_dec.shape) != (cfg.d_sae, cfg.d_in):
        raise InputError(f"weights of shape {tuple(sae.W_enc.shape)}, configuration says {(cfg.d_in, cfg.d_sae)}", file=file)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in sae.state_dict().values()):
        raise InputError("a weight is NaN or infinite", file=file)
    if architecture == "jumprelu" and bool((sae.threshold < 0).any()):
        raise InputError("a threshold is negative", file=file, field="threshold")
    if architecture == "topk" and not 0 < cfg.k <= cfg.d_sae:
        raise InputError(f"k is {cfg.k} of {cfg.d_sae} latents", file=file, field="k")
    if cfg.normalize_activations == "expected_average_only_in":
        fix = "save it again with the scale folded into its weights"
        raise InputError("expects scaled activations and does not hold the scale", file=file, field="normalize_activations", fix=fix)
    if cfg.reshape_activations != "none":
        raise InputError("reads attention heads, not the residual stream", file=file, field="reshape_activations")
    hook_name = str(required(cfg.metadata, "hook_name", file))
    context = cfg.metadata.to_dict().get("context_size")
    return LoadedSAE(
        sae=sae.eval().requires_grad_(False),
        id=sae_id or f"{required(cfg.metadata, 'model_name', file)}/{hook_name}/{cfg.d_sae}",
        architecture=architecture,
        d_in=int(cfg.d_in),
        d_sae=int(cfg.d_sae),
        hook_name=hook_name,
        layer=hook_layer(hook_name, file),
        prepend_bos=bool(required(cfg.metadata, "prepend_bos", file)),
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


@dataclass(frozen=True)
class Canary:
    """How well an SAE reconstructs a model's activations on fixed text.

    Attributes:
        fvu: fraction of variance unexplained, sum |x - x'|^2 / sum |x - mean|^2, over tokens that are no outliers.
        l0: mean number of concepts that fire on a token.
        not_seen: share of concepts that fired on none of the tokens; on so little text that does not mean dead.
        n_tokens: tokens measured; begin-of-text and first positions are left out.
        norm_median: median length of the residual.
        outlier_share: share of tokens longer than MAX_NORM_RATIO times that.
    """

    fvu: float
    l0: float
    not_seen: float
    n_tokens: int
    norm_median: float
    outlier_share: float


def run_canary(lm: LM, sae: LoadedSAE, texts: tuple[str, ...] = TEXTS) -> Canary:
    """Measure the SAE on fixed text, read as the SAE expects it (begin-of-text token, context)."""
    parts: list[torch.Tensor] = []
    for text in texts:
        encoded = encode_text(lm, text, prepend_bos=sae.prepend_bos, max_tokens=min(sae.context_size or 512, 512))
        ids, mask = pad_batch([encoded.ids], pad_id(lm.tokenizer), lm.device)
        residual = read_residual(lm, ids, mask, sae.layer)[0].float()
        keep = [position > 0 and not special for position, special in enumerate(encoded.special)]
        parts.append(residual[torch.tensor(keep, device=residual.device)])
    x = torch.cat(parts)
    if len(x) == 0 or not bool(torch.isfinite(x).all()):
        raise InputError("the model's activations on fixed text are not finite", field="dtype", fix="use float32 or bfloat16")
    norms = x.norm(dim=1)
    median = float(norms.median())
    inliers = x[norms <= MAX_NORM_RATIO * median]
    fired = torch.zeros(sae.d_sae, device=x.device)
    error = 0.0
    for rows in inliers.split(sae.chunk()):
        fired += (sae.encode(rows) > 0).sum(0)
        error += float((rows - sae.reconstruct(rows)).pow(2).sum())
    return Canary(
        fvu=error / float((inliers - inliers.mean(0)).pow(2).sum()),
        l0=float(fired.sum()) / len(inliers),
        not_seen=float((fired == 0).float().mean()),
        n_tokens=len(inliers),
        norm_median=median,
        outlier_share=1 - len(inliers) / len(x),
    )


def require_canary(canary: Canary, sae: LoadedSAE, max_fvu: float) -> None:
    """Raise InputError when the reconstruction is worse than ``max_fvu``: the SAE does not fit what the model computes."""
    if not canary.fvu <= max_fvu or canary.l0 == 0:
        raise InputError(
            f"on {canary.n_tokens} tokens of fixed text the SAE {sae.id} leaves {canary.fvu:.3f} of the variance unexplained "
            f"(limit {max_fvu}) with {canary.l0:.1f} concepts a token",
            field="max_fvu",
            fix="check that SAE, model, layer and normalisation belong together",
        )
