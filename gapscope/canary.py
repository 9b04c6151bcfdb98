"""Try an SAE on fixed text before anything is computed with it, and say what is wrong with a pairing that does not fit.

The text must stay as it is: canary figures of two runs are comparable only on the same text. It was written for gapscope.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gapscope.errors import InputError
from gapscope.lm import LM, encode_text, pad_batch, pad_id, read_residuals
from gapscope.sae import MAX_NORM_RATIO, LoadedSAE
from gapscope.sae_config import NORMALISATIONS, SCALED

logger = logging.getLogger(__name__)

PROBE_TOKENS = 256
"""Tokens on which other layers and scales are tried when an SAE has failed."""

TEXTS = (
    "The ferry leaves the north pier at half past seven and reaches the island before the shops open. Most of its passengers are "
    "teachers, nurses and builders who live on the mainland, where rents are lower. In winter the crossing can be rough, and the "
    "captain sometimes waits for the tide to turn. Nobody complains much. They drink tea from paper cups, read the news on their "
    "phones, and talk about football or the price of heating oil.",
    "A cell copies its DNA before it divides. An enzyme unwinds the double helix, and each strand serves as a template for a new "
    "one. Errors are rare, about one in a billion bases after repair, because the polymerase checks each base that it adds. When "
    "the repair machinery itself is damaged, mutations build up and the risk of cancer rises. Several drugs make use of this: they "
    "block a second repair pathway, so that only the tumour cells die.",
    "Question: A shop sells pencils in boxes of 12 and pens in boxes of 8. Maria buys 5 boxes of pencils and 3 boxes of pens. How "
    "many more pencils than pens does she have? Answer: She has 5 x 12 = 60 pencils and 3 x 8 = 24 pens, so she has 36 more pencils.",
    "The court held that the lease could not be ended without written notice. Although the tenant had paid late in March and again "
    "in June, the landlord had accepted both payments without protest, and so had waived the right to rely on them. The appeal was "
    "dismissed with costs. Two of the judges agreed; the third would have sent the case back for a new hearing on damages.",
    "When Amara found the letter it was already yellow at the edges. Her grandmother had never spoken of a brother, yet here was his "
    "name, in ink, beneath a drawing of a harbour. She read it twice, folded it along the old crease, and put it back behind the "
    'mirror. That evening, over soup, she asked whether anyone in the family had ever gone to sea. The spoon stopped. "Who told '
    'you?" said her grandmother.',
    "def moving_average(values, width):\n    total = sum(values[:width])\n    result = [total / width]\n    for new, old in "
    "zip(values[width:], values):\n        total += new - old\n        result.append(total / width)\n    return result\n",
    "Robin did not study for the exam because Robin felt sure of the material. How would Robin feel when the results came in lower "
    "than expected? Most people would be disappointed, some would be angry with themselves, and a few would ask the teacher for a "
    "second chance. To pour syrup without a mess, warm the jar in hot water first, then tilt it slowly over the bowl.",
    "Inflation slowed to 2.1% in August from 2.6% in July, the statistics office said on Tuesday, mainly because petrol and food "
    'became cheaper. The central bank is expected to keep its main rate unchanged next week. "We are close to the target, but '
    'services are still rising at more than four per cent a year," said an economist at a savings bank in Lyon.',
    "Patients aged 40 to 75 with type 2 diabetes were assigned at random to metformin alone or to metformin with the new agent. "
    "After 24 weeks, mean HbA1c had fallen by 0.4 and 1.1 percentage points (P<0.001). Nausea was more common in the second group "
    "(18% against 7%). Blood pressure, weight and kidney function did not differ. Does the new agent improve control of glucose?",
    "The city was founded by Greek settlers in the sixth century BC, taken by Rome in 123 BC, and rebuilt under Augustus. Its "
    "theatre, which seated some 9,000 people, was quarried for stone in the Middle Ages. Excavation began in 1904. Today the ruins "
    "lie between a motorway, an olive grove and a school, and are open to visitors from April to October.",
)


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
    """Measure the SAE on fixed text, read as the SAE expects it (begin-of-text token, context).

    Raises:
        InputError: an activation is not finite.
    """
    x = read_texts(lm, sae, [sae.layer], texts)[0]
    if len(x) == 0 or not bool(torch.isfinite(x).all()):
        raise InputError("the model's activations on fixed text are not finite", field="dtype", fix="use float32 or bfloat16")
    norms = x.norm(dim=1)
    inliers = _inliers(x)
    fired = torch.zeros(sae.d_sae, device=x.device)
    for rows in inliers.split(sae.chunk()):
        fired += (sae.encode(rows) > 0).sum(0)
    return Canary(
        fvu=unexplained(sae.reconstruct, inliers, sae.chunk()),
        l0=float(fired.sum()) / len(inliers),
        not_seen=float((fired == 0).float().mean()),
        n_tokens=len(inliers),
        norm_median=float(norms.median()),
        outlier_share=1 - len(inliers) / len(x),
    )


def read_texts(
    lm: LM, sae: LoadedSAE, layers: Sequence[int], texts: tuple[str, ...] = TEXTS, *, prepend_bos: bool | None = None
) -> list[torch.Tensor]:
    """Activations (tokens, width), fp32, after each of the layers; first positions and special tokens are left out."""
    bos = sae.prepend_bos if prepend_bos is None else prepend_bos
    parts: list[list[torch.Tensor]] = [[] for _layer in layers]
    for text in texts:
        encoded = encode_text(lm, text, prepend_bos=bos, max_tokens=min(sae.context_size or 512, 512))
        ids, mask = pad_batch([encoded.ids], pad_id(lm.tokenizer), lm.device)
        keep = [position > 0 and not special for position, special in enumerate(encoded.special)]
        for part, residual in zip(parts, read_residuals(lm, ids, mask, layers), strict=True):
            part.append(residual[0].float()[torch.tensor(keep, device=residual.device)])
    return [torch.cat(part) for part in parts]


def _inliers(x: torch.Tensor) -> torch.Tensor:
    norms = x.norm(dim=1)
    return x[norms <= MAX_NORM_RATIO * norms.median()]


def unexplained(reconstruct: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, chunk: int) -> float:
    """Fraction of the variance of x (tokens, width) that a reconstruction leaves unexplained."""
    error = sum(float((rows - reconstruct(rows)).pow(2).sum()) for rows in x.split(chunk))
    return error / float((x - x.mean(0)).pow(2).sum())


def require_canary(lm: LM, sae: LoadedSAE, canary: Canary, max_fvu: float) -> None:
    """Raise InputError when the reconstruction is worse than ``max_fvu``, saying which pairing would have fitted, if any did."""
    if canary.fvu <= max_fvu and canary.l0 > 0:
        return
    logger.info("the SAE does not fit; trying other layers and scales to see why")
    found = (
        f"on {canary.n_tokens} tokens of fixed text the SAE {sae.id} leaves {canary.fvu:.3f} of the variance unexplained "
        f"(limit {max_fvu}) with {canary.l0:.1f} concepts a token"
    )
    diagnosis, fix = diagnose(lm, sae, max_fvu)
    raise InputError(f"{found}; {diagnosis}", field="max_fvu", fix=fix)


def diagnose(lm: LM, sae: LoadedSAE, max_fvu: float) -> tuple[str, str]:
    """What is wrong with a pairing that failed, and what to do: the SAE tried at other layers, on other scales, with and
    without a begin-of-text token, one change at a time.
    """
    tries = sorted(_tries(lm, sae), key=lambda one: one[0])
    if tries and tries[0][0] <= max_fvu:
        return f"{tries[0][1]} it leaves {tries[0][0]:.3f}", tries[0][2]
    best = f", of which the best leaves {tries[0][0]:.3f}" if tries else ""
    model = sae.sae.cfg.metadata.model_name
    what = f"so does it at every other layer and on every other scale{best}: it is not of this model, or its files are not its own"
    return what, f"use the model that it was made for, which it calls {model!r}"


def _tries(lm: LM, sae: LoadedSAE) -> Iterator[tuple[float, str, str]]:
    """For each change: the variance left unexplained, the change in words, and what to do about it."""
    residuals = [_probe(x) for x in read_texts(lm, sae, range(lm.n_layers))]
    for layer, x in enumerate(residuals):
        if layer != sae.layer and x is not None:
            fix = f"it is an SAE of layer {layer}: correct its hook_name, or take the one of layer {sae.layer}"
            yield unexplained(sae.reconstruct, x, sae.chunk()), f"after block {layer}", fix
    own = residuals[sae.layer]
    if own is not None:
        bare = _without_normalisation(sae.sae)
        for kind in (*NORMALISATIONS, SCALED):
            if kind != sae.sae.cfg.normalize_activations:
                fix = f"correct normalize_activations, which says {sae.sae.cfg.normalize_activations!r}"
                yield unexplained(_normalised(bare, kind, own), own, sae.chunk()), f"with normalize_activations {kind!r}", fix
    if lm.tokenizer.bos_token_id is not None:
        other = _probe(read_texts(lm, sae, [sae.layer], prepend_bos=not sae.prepend_bos)[0])
        if other is not None:
            how = "without" if sae.prepend_bos else "with"
            fix = f"set prepend_bos: {str(not sae.prepend_bos).lower()} under the observer's sae"
            yield unexplained(sae.reconstruct, other, sae.chunk()), f"{how} a begin-of-text token", fix


def _probe(x: torch.Tensor) -> torch.Tensor | None:
    """About PROBE_TOKENS tokens spread over the text, or nothing where they are not finite."""
    if len(x) == 0 or not bool(torch.isfinite(x).all()):
        return None
    return _inliers(x)[:: max(1, len(x) // PROBE_TOKENS)]


def _without_normalisation(sae: Any) -> Any:
    bare = copy.copy(sae)
    bare.run_time_activation_norm_fn_in = bare.run_time_activation_norm_fn_out = lambda x: x
    return bare


def _normalised(bare: Any, kind: str, all_rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The reconstruction by an SAE without a normalisation of its own, of activations normalised in SAELens's manner."""
    root = all_rows.shape[1] ** 0.5
    mean_norm = all_rows.norm(dim=1).mean()

    def reconstruct(x: torch.Tensor) -> torch.Tensor:
        shift, scale = torch.zeros_like(x[:, :1]), torch.ones_like(x[:, :1])
        if kind == "layer_norm":
            shift, scale = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        elif kind == "constant_norm_rescale":
            scale = x.norm(dim=1, keepdim=True) / root
        elif kind == SCALED:
            scale = scale * mean_norm / root
        with torch.inference_mode():
            out: torch.Tensor = bare.decode(bare.encode((x - shift) / scale)) * scale + shift
        return out

    return reconstruct
