"""How well an SAE stands for the activations that it reads: on held-out activations, and inside the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from gapscope.lm import LM, forward, pad_batch, pad_id, replaced_residual

CHUNK_ROWS = 2048


@dataclass(frozen=True)
class Reconstruction:
    """Figures of an SAE on activations that it was not trained on.

    Attributes:
        fvu: fraction of variance unexplained, sum |x - x'|^2 / sum |x - mean|^2, outliers left out.
        fvu_all: the same with outliers; a few tokens of enormous norm can make up most of the variance.
        l0: mean number of latents that fire on a token.
        dead_share: share of latents that fire on none of the ``n_tokens`` tokens.
        outlier_share: share of tokens left out.
    """

    fvu: float
    fvu_all: float
    l0: float
    dead_share: float
    n_tokens: int
    outlier_share: float


def measure(sae: Any, x: torch.Tensor, max_norm_ratio: float) -> Reconstruction:
    """Measure an SAELens SAE on activations (n, width); a row longer than ``max_norm_ratio`` medians is an outlier."""
    norms = torch.cat([rows.float().norm(dim=1) for rows in x.split(CHUNK_ROWS)])
    inlier = norms <= max_norm_ratio * norms.median()
    means = [_mean(x), _mean(x[inlier])]
    errors, totals = [0.0, 0.0], [0.0, 0.0]
    fired = torch.zeros(sae.cfg.d_sae, dtype=torch.float64)
    with torch.inference_mode():
        for rows, kept in zip(x.split(CHUNK_ROWS), inlier.split(CHUNK_ROWS), strict=True):
            wide = rows.to(sae.device).float()
            codes = sae.encode(wide)
            error = (wide - sae.decode(codes)).pow(2).sum(1).cpu().double()
            fired += (codes.cpu()[kept] > 0).sum(0)
            for place, selected in enumerate((torch.ones_like(kept), kept)):
                errors[place] += float(error[selected].sum())
                totals[place] += float((rows.double()[selected] - means[place]).pow(2).sum())
    n_tokens = int(inlier.sum())
    return Reconstruction(
        fvu=errors[1] / totals[1],
        fvu_all=errors[0] / totals[0],
        l0=float(fired.sum()) / n_tokens,
        dead_share=float((fired == 0).double().mean()),
        n_tokens=n_tokens,
        outlier_share=1 - n_tokens / len(x),
    )


def _mean(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x.shape[1], dtype=torch.float64)
    for rows in x.split(CHUNK_ROWS):
        total += rows.double().sum(0)
    return total / len(x)


def loss_recovered(lm: LM, sae: Any, layer: int, windows: list[list[int]]) -> float | None:
    """How much of the model's next-token loss survives when the SAE's reconstruction takes the activations' place.

    (loss with zeros - loss with the reconstruction) / (loss with zeros - loss as it is); 1 is perfect. First positions keep
    their own activations in both. None where the model does no better with its activations than without.
    """

    def swapped(zero: bool) -> float:
        def replace(hidden: torch.Tensor) -> torch.Tensor:
            new = torch.zeros_like(hidden) if zero else sae.decode(sae.encode(hidden.float())).to(hidden.dtype)
            new[:, 0] = hidden[:, 0]
            return new

        with replaced_residual(lm, layer, replace):
            return _loss(lm, windows)

    clean, reconstructed, zeroed = _loss(lm, windows), swapped(zero=False), swapped(zero=True)
    return (zeroed - reconstructed) / (zeroed - clean) if zeroed > clean else None


def _loss(lm: LM, windows: list[list[int]]) -> float:
    total, n = 0.0, 0
    for window in windows:
        ids, mask = pad_batch([window], pad_id(lm.tokenizer), lm.device)
        logits = forward(lm, ids, mask).logits[0, :-1].float()
        total += float(cross_entropy(logits, ids[0, 1:], reduction="sum"))
        n += len(window) - 1
    return total / n
