"""The canary lets a right pairing pass, and refuses a wrong one and says what is wrong with it.

The SAEs here know one model's activations on the canary's text by heart: they have a latent for each token, and on an activation
the one latent fires (TopK, k = 1) whose token's activation is nearest. What they were made from they reconstruct exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import TopKSAE, TopKSAEConfig
from sae_lens.saes.sae import SAEMetadata
from tiny_lm import save_tiny_lm
from tiny_sae import METADATA, random_jumprelu

from gapscope.canary import diagnose, read_texts, require_canary, run_canary
from gapscope.errors import InputError
from gapscope.lm import LM, load_lm
from gapscope.sae import LoadedSAE, check_fits, checked

LIMIT = 0.1
ROOT_WIDTH = 32**0.5


@pytest.fixture(scope="module")
def lm(tiny_lm_dir: Path) -> LM:
    return load_lm(tiny_lm_dir, device="cpu")


def as_they_are(x: torch.Tensor) -> torch.Tensor:
    return x


def rescaled(x: torch.Tensor) -> torch.Tensor:
    return ROOT_WIDTH * x / x.norm(dim=1, keepdim=True)


def layer_normed(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return ROOT_WIDTH * x / x.norm(dim=1).mean()


def by_heart(
    lm: LM,
    layer: int,
    transform: Callable[[torch.Tensor], torch.Tensor] = as_they_are,
    bos: bool = True,
    says: str = "none",
    **metadata: Any,
) -> LoadedSAE:
    """An SAE that knows the activations after ``layer``; it says what ``says`` and ``metadata`` say of itself."""
    x = transform(read_texts(lm, checked(random_jumprelu(), "made"), [layer], prepend_bos=bos)[0])
    described = METADATA | {"hook_name": f"blocks.{layer}.hook_resid_post", "prepend_bos": bos} | metadata
    sae = TopKSAE(TopKSAEConfig(d_in=32, d_sae=len(x), k=1, normalize_activations=says, metadata=SAEMetadata(**described)))
    # x . x_i - |x_i|^2 / 2 is greatest where x_i is nearest; at x_i itself it is |x_i|^2 / 2, which the decoder undoes.
    half = x.pow(2).sum(1) / 2
    sae.W_enc.data, sae.b_enc.data, sae.W_dec.data = x.t().contiguous(), -half, x / half[:, None]
    return checked(sae, "made")


def refusal(lm: LM, sae: LoadedSAE) -> str:
    with pytest.raises(InputError) as caught:
        require_canary(lm, sae, run_canary(lm, sae), LIMIT)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_right_pairing_passes(lm: LM, layer: int) -> None:
    sae = by_heart(lm, layer)
    check_fits(lm, sae, layer)
    canary = run_canary(lm, sae)
    require_canary(lm, sae, canary, LIMIT)
    assert canary.fvu < 1e-6
    assert canary.l0 == pytest.approx(1)


@pytest.mark.parametrize(("transform", "says"), [(rescaled, "constant_norm_rescale"), (layer_normed, "layer_norm")])
def test_right_normalisation_passes(lm: LM, transform: Callable[[torch.Tensor], torch.Tensor], says: str) -> None:
    sae = by_heart(lm, 1, transform, says=says)
    require_canary(lm, sae, run_canary(lm, sae), LIMIT)


@pytest.mark.parametrize(("made_from", "says"), [(2, 1), (0, 2), (1, 0)])
def test_wrong_layer(lm: LM, made_from: int, says: int) -> None:
    message = refusal(lm, by_heart(lm, made_from, hook_name=f"blocks.{says}.hook_resid_post"))
    assert f"; after block {made_from} it leaves 0.000 (it is an SAE of layer {made_from}: correct its hook_name" in message


@pytest.mark.parametrize(
    ("transform", "says", "right"),
    [
        (rescaled, "none", "constant_norm_rescale"),
        (layer_normed, "none", "layer_norm"),
        (scaled, "none", "expected_average_only_in"),
        (as_they_are, "layer_norm", "none"),
        (as_they_are, "constant_norm_rescale", "none"),
    ],
)
def test_wrong_normalisation(lm: LM, transform: Callable[[torch.Tensor], torch.Tensor], says: str, right: str) -> None:
    message = refusal(lm, by_heart(lm, 1, transform, says=says))
    assert f"; with normalize_activations '{right}' it leaves 0.0" in message
    assert f"(correct normalize_activations, which says '{says}')" in message


@pytest.mark.parametrize("made_with", [True, False])
def test_wrong_begin_of_text(lm: LM, made_with: bool) -> None:
    sae = by_heart(lm, 2, bos=made_with, prepend_bos=not made_with)
    what, fix = diagnose(lm, sae, LIMIT)
    assert what == f"{'with' if made_with else 'without'} a begin-of-text token it leaves 0.000"
    assert fix == f"set prepend_bos: {str(made_with).lower()} under the observer's sae"


def test_wrong_model(lm: LM, tmp_path: Path) -> None:
    other = load_lm(save_tiny_lm(tmp_path, seed=1), device="cpu")
    sae = by_heart(other, 1, model_name="other-tiny")
    require_canary(other, sae, run_canary(other, sae), LIMIT)
    message = refusal(lm, sae)
    assert "so does it at every other layer and on every other scale, of which the best leaves 0." in message
    assert (
        "it is not of this model, or its files are not its own (use the model that it was made for, which it calls 'other-tiny')" in message
    )


def test_wrong_width(lm: LM) -> None:
    with pytest.raises(InputError, match=r"d_in: the SAE .* reads 16 numbers a token, the model's residual stream has 32"):
        check_fits(lm, checked(random_jumprelu(width=16), "made"))
