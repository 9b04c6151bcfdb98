"""Loading SAEs, checking them against the observer, encoding, the canary.

What must hold:
- what is loaded from disk is what was saved, in fp32, with its thresholds and its own normalisation;
- transcoders, unknown architectures, absent metadata, foreign widths, layers out of range and damaged files are one-line errors;
- a code depends on its token alone: alone, in a batch and in another order it is the same;
- folding the decoder's norm changes which tokens fire nowhere;
- the canary passes a faithful SAE, refuses an unfaithful one and says what it measured.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sae_lens import JumpReLUTranscoder, JumpReLUTranscoderConfig, StandardSAE, StandardSAEConfig, TopKSAE, TopKSAEConfig
from sae_lens.saes.sae import SAEMetadata
from safetensors.torch import load_file, save_file
from tiny_sae import METADATA, random_jumprelu, save_tiny_sae

from gapscope.canary import require_canary, run_canary
from gapscope.errors import InputError
from gapscope.lm import LM, load_lm
from gapscope.sae import check_fits, checked, load_sae
from gapscope.sae_config import hook_layer


@pytest.fixture(scope="module")
def lm(tiny_lm_dir: Path) -> LM:
    return load_lm(tiny_lm_dir, device="cpu")


def activations(n: int = 40, width: int = 32, seed: int = 3) -> torch.Tensor:
    return 2 * torch.randn((n, width), generator=torch.Generator().manual_seed(seed))


def test_loads_what_was_saved(tiny_sae_dir: Path) -> None:
    sae, original = load_sae(tiny_sae_dir), random_jumprelu()
    assert (sae.id, sae.architecture, sae.d_in, sae.d_sae) == ("tiny/blocks.1.hook_resid_post/48", "jumprelu", 32, 48)
    assert (sae.layer, sae.prepend_bos, sae.context_size) == (1, True, 64)
    x = activations()
    pre = x @ original.W_enc + original.b_enc
    assert torch.allclose(sae.encode(x), torch.where(pre > 1.5, pre, 0), atol=1e-6)
    assert {tensor.dtype for tensor in sae.sae.state_dict().values()} == {torch.float32}


def test_half_precision_files_and_inputs_are_encoded_in_fp32(tmp_path: Path) -> None:
    random_jumprelu().to(torch.bfloat16).save_model(tmp_path)
    sae = load_sae(tmp_path)
    assert sae.sae.threshold.dtype == torch.float32
    assert sae.encode(activations().bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("kind", ["jumprelu", "topk", "standard"])
def test_a_code_depends_on_its_row_alone(kind: str) -> None:
    made = random_jumprelu()
    options = {"d_in": 32, "d_sae": 48, "metadata": SAEMetadata(**METADATA)}
    if kind == "topk":
        made = TopKSAE(TopKSAEConfig(k=5, **options))
    elif kind == "standard":
        made = StandardSAE(StandardSAEConfig(normalize_activations="layer_norm", **options))
    sae = checked(made, "made")
    x = activations()
    together = sae.encode(x)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(sae.encode(x[order]), together[order], rtol=1e-5, atol=1e-6)
    for row in range(0, len(x), 7):
        assert torch.allclose(sae.encode(x[row : row + 1])[0], together[row], rtol=1e-5, atol=1e-6)
    if kind == "topk":
        assert ((together > 0).sum(1) <= 5).all()


def test_folding_the_decoder_norm_keeps_firing() -> None:
    made = random_jumprelu()
    made.W_dec.data *= torch.linspace(0.2, 5, 48)[:, None]
    fired = checked(made, "made").encode(activations()) > 0
    made.fold_W_dec_norm()
    assert torch.equal(checked(made, "made").encode(activations()) > 0, fired)
    assert torch.allclose(made.W_dec.norm(dim=1), torch.ones(48), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "layer"),
    [("blocks.12.hook_resid_post", 12), ("blocks.12.hook_resid_pre", 11), ("model.layers.7", 7), ("transformer.h.3", 3)],
)
def test_hook_names(name: str, layer: int) -> None:
    assert hook_layer(name) == layer


@pytest.mark.parametrize("name", ["blocks.3.hook_mlp_out", "blocks.3.attn.hook_z", "blocks.hook_resid_post", "model.layers.7.mlp"])
def test_places_that_are_not_the_residual_stream(name: str) -> None:
    with pytest.raises(InputError, match="not the residual stream"):
        hook_layer(name)


def test_absent_metadata_is_an_error_and_not_false(tmp_path: Path) -> None:
    for name in ("prepend_bos", "hook_name", "model_name"):
        made = random_jumprelu()
        delattr(made.cfg.metadata, name)
        assert getattr(made.cfg.metadata, name) is None, "SAELens says nothing"
        with pytest.raises(InputError, match=f"{name}: the SAE's metadata does not say"):
            checked(made, tmp_path)
    assert checked(random_jumprelu(prepend_bos=False), tmp_path).prepend_bos is False


def test_refused_by_name(tmp_path: Path) -> None:
    transcoder = JumpReLUTranscoder(
        JumpReLUTranscoderConfig(d_in=32, d_out=32, d_sae=48, apply_b_dec_to_input=False, metadata=SAEMetadata(**METADATA))
    )
    transcoder.save_model(tmp_path)
    with pytest.raises(InputError, match="is a transcoder"):
        load_sae(tmp_path)
    save_tiny_sae(tmp_path)
    config = json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps(config | {"architecture": "batchtopk"}))
    with pytest.raises(InputError, match="unsupported SAE architecture 'batchtopk'"):
        load_sae(tmp_path)


def test_unfolded_scale_and_bad_weights_are_refused(tmp_path: Path) -> None:
    save_tiny_sae(tmp_path)
    config = json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps(config | {"normalize_activations": "expected_average_only_in"}))
    with pytest.raises(InputError, match="does not hold the scale"):
        load_sae(tmp_path)
    for name, value, message in (("W_enc", float("nan"), "NaN or infinite"), ("threshold", -1.0, "threshold is negative")):
        made = random_jumprelu()
        getattr(made, name).data.flatten()[0] = value
        with pytest.raises(InputError, match=message):
            checked(made, tmp_path)


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_sae(tmp_path)
    save_tiny_sae(tmp_path)
    weights = tmp_path / "sae_weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot load this SAE"):
        load_sae(tmp_path)
    save_file({name: tensor for name, tensor in load_file(_written(weights, whole)).items() if name != "b_enc"}, weights)
    with pytest.raises(InputError, match="cannot load this SAE"):
        load_sae(tmp_path)
    weights.unlink()
    with pytest.raises(InputError, match="no such file"):
        load_sae(tmp_path)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_width_and_layer_must_be_the_model_s(lm: LM) -> None:
    check_fits(lm, checked(random_jumprelu(), "made"), 1)
    with pytest.raises(InputError, match="reads 16 numbers a token, the model's residual stream has 32"):
        check_fits(lm, checked(random_jumprelu(width=16), "made"))
    with pytest.raises(InputError, match="layer 7 is out of range"):
        check_fits(lm, checked(random_jumprelu(hook_name="blocks.7.hook_resid_post"), "made"))
    with pytest.raises(InputError, match=r"the observer's layer is 2, the SAE .* reads layer 1"):
        check_fits(lm, checked(random_jumprelu(), "made"), 2)


def faithful_sae(width: int = 32) -> torch.nn.Module:
    """Reconstructs exactly: a latent for each direction of each axis."""
    made = random_jumprelu(d_sae=2 * width, threshold=0.0)
    eye = torch.eye(width)
    made.W_dec.data = torch.cat([eye, -eye])
    made.W_enc.data = made.W_dec.data.t().contiguous()
    made.b_enc.data = torch.zeros(2 * width)
    return made


def test_canary_passes_a_faithful_sae(lm: LM) -> None:
    sae = checked(faithful_sae(), "made")
    canary = run_canary(lm, sae)
    assert canary.fvu < 1e-10
    assert canary.l0 == pytest.approx(32, abs=0.01), "one of each pair fires"
    assert canary.not_seen == 0
    assert canary.n_tokens > 300
    require_canary(lm, sae, canary, 0.01)


def test_canary_refuses_another_scale(lm: LM) -> None:
    made = faithful_sae()
    made.W_dec.data *= 3
    sae = checked(made, "made")
    canary = run_canary(lm, sae)
    # x' = 3 x, so that the error is 4 |x|^2: by hand, relative to the variance around the mean it is at least 4.
    assert canary.fvu >= 4
    with pytest.raises(InputError, match=rf"leaves {canary.fvu:.3f} of the variance unexplained \(limit 0.5\) with 32.0 concepts"):
        require_canary(lm, sae, canary, 0.5)


def test_canary_refuses_an_sae_that_never_fires(lm: LM) -> None:
    sae = checked(random_jumprelu(threshold=1e9), "made")
    with pytest.raises(InputError, match=r"0\.0 concepts a token"):
        require_canary(lm, sae, run_canary(lm, sae), 1e9)
