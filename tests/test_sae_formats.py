"""Every architecture from disk, in files written by SAELens's own classes; what a configuration leaves out or gets wrong.

What must hold:
- codes equal SAELens's own to 1e-5, for every architecture and normalisation; a text alone has the codes that it has in a batch;
- one factor for all activations is folded in when it is given, and needed when it is expected;
- a required field that is missing is an error that names it, also in files older than SAELens 6;
- transcoders, crosscoders, and places that are no residual stream after a block are refused by name;
- the parameters' prepend_bos goes before the SAE's, and stays in what is saved.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sae_lens import (
    SAE,
    BatchTopKTrainingSAE,
    BatchTopKTrainingSAEConfig,
    GatedSAE,
    GatedSAEConfig,
    JumpReLUSAE,
    JumpReLUSAEConfig,
    MatryoshkaBatchTopKTrainingSAE,
    MatryoshkaBatchTopKTrainingSAEConfig,
    StandardSAE,
    StandardSAEConfig,
    TopKSAE,
    TopKSAEConfig,
)
from sae_lens.saes.sae import SAEMetadata, TrainStepInput
from tiny_sae import METADATA, random_jumprelu, save_tiny_sae

from gapscope.competency.reading import Policy, Reader, sparse_codes, text_means
from gapscope.errors import InputError
from gapscope.lm import LM, load_lm
from gapscope.sae import load_sae
from gapscope.sae_config import check_config, hook_layer

D_IN, D_SAE = 32, 48
TEXTS = ["The dog ran.", "Which of these did the hammer stand next to, the saw or the wall?", "</s> 日本"]

KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "standard": (StandardSAE, StandardSAEConfig, {}),
    "standard_layer_norm": (StandardSAE, StandardSAEConfig, {"normalize_activations": "layer_norm"}),
    "standard_rescaled": (StandardSAE, StandardSAEConfig, {"normalize_activations": "constant_norm_rescale"}),
    "standard_raw_input": (StandardSAE, StandardSAEConfig, {"apply_b_dec_to_input": False}),
    "topk": (TopKSAE, TopKSAEConfig, {"k": 5}),
    "topk_by_norm": (TopKSAE, TopKSAEConfig, {"k": 5, "rescale_acts_by_decoder_norm": True}),
    "jumprelu": (JumpReLUSAE, JumpReLUSAEConfig, {}),
    "gated": (GatedSAE, GatedSAEConfig, {}),
}
TRAINED: dict[str, tuple[Any, Any]] = {
    "batchtopk": (BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig(d_in=D_IN, d_sae=D_SAE, k=5)),
    "matryoshka": (
        MatryoshkaBatchTopKTrainingSAE,
        MatryoshkaBatchTopKTrainingSAEConfig(d_in=D_IN, d_sae=D_SAE, k=5, matryoshka_widths=[16, D_SAE]),
    ),
}


def activations(n: int = 40, seed: int = 3) -> torch.Tensor:
    return 2 * torch.randn((n, D_IN), generator=torch.Generator().manual_seed(seed))


def saved(kind: str, path: Path) -> Path:
    """Random weights of one architecture, saved by its own class; of a training class, after one step, for inference."""
    torch.manual_seed(0)
    if kind in TRAINED:
        cls, config = TRAINED[kind]
        config.metadata = SAEMetadata(**METADATA)
        sae = cls(config)
        sae.training_forward_pass(
            TrainStepInput(sae_in=activations(), coefficients={}, dead_neuron_mask=None, n_training_steps=0, is_logging_step=False)
        )
        sae.topk_threshold = torch.tensor(0.02).double()
        sae.save_inference_model(path)
        return path
    cls, config_class, options = KINDS[kind]
    sae = cls(config_class(d_in=D_IN, d_sae=D_SAE, metadata=SAEMetadata(**METADATA), **options))
    for name, weight in sae.named_parameters():
        weight.data = torch.rand(weight.shape) if name == "threshold" else 0.4 * torch.randn(weight.shape)
    sae.save_model(path)
    return path


@pytest.fixture(scope="module")
def lm(tiny_lm_dir: Path) -> LM:
    return load_lm(tiny_lm_dir, device="cpu")


@pytest.mark.parametrize("kind", [*KINDS, *TRAINED])
def test_codes_are_saelens_s_and_of_one_text_alone(kind: str, lm: LM, tmp_path: Path) -> None:
    sae = load_sae(saved(kind, tmp_path))
    theirs = SAE.load_from_disk(tmp_path)
    assert sae.architecture == {"batchtopk": "jumprelu", "matryoshka": "jumprelu"}.get(kind, kind.partition("_")[0])
    x = activations()
    with torch.no_grad():
        codes, reconstruction = theirs.encode(x), theirs(x)
    assert float((codes > 0).float().mean()) > 0.02
    assert torch.allclose(sae.encode(x), codes, rtol=1e-5, atol=1e-5)
    assert torch.allclose(sae.reconstruct(x), reconstruction, rtol=1e-5, atol=1e-5)
    reader = Reader(lm, sae, Policy(prepend_bos=True, max_tokens=64, max_norm=float("inf")))
    encodings = [reader.policy.encode(lm, text) for text in TEXTS]
    together = _means(reader, encodings)
    for index, encoding in enumerate(encodings):
        np.testing.assert_allclose(_means(reader, [encoding])[0], together[index], rtol=1e-5, atol=1e-5)


def _means(reader: Reader, encodings: list[Any]) -> np.ndarray:
    tokens = reader.tokens(encodings)
    return text_means(sparse_codes(reader.sae, tokens.x), tokens.n_tokens, ~tokens.masked).toarray()


def edited(path: Path, **changes: Any) -> Path:
    """Change top-level fields of a cfg.json; ``None`` removes one, from the metadata too."""
    config = json.loads((path / "cfg.json").read_text())
    for name, value in changes.items():
        config.pop(name, None)
        config["metadata"].pop(name, None)
        if value is not None:
            config[name] = value
    (path / "cfg.json").write_text(json.dumps(config))
    return path


def test_a_factor_for_all_activations_is_folded_in(tmp_path: Path) -> None:
    made = random_jumprelu()
    edited(save_tiny_sae(tmp_path), normalize_activations="expected_average_only_in")
    with pytest.raises(InputError, match=r"normalize_activations: expects scaled activations .*norm_scaling_factor"):
        load_sae(tmp_path)
    sae, x = load_sae(tmp_path, norm_scaling_factor=0.25), activations()
    with torch.no_grad():
        assert torch.allclose(sae.encode(4 * x), made.encode(x), atol=1e-5)
        assert torch.allclose(sae.reconstruct(4 * x), 4 * made(x), atol=1e-4)
    sae.sae.save_model(tmp_path)
    assert torch.allclose(load_sae(tmp_path).encode(x), sae.encode(x), atol=1e-6)
    with pytest.raises(InputError, match="norm_scaling_factor: is given, and the SAE expects 'none'"):
        load_sae(tmp_path, norm_scaling_factor=0.25)


@pytest.mark.parametrize("name", ["d_in", "d_sae", "model_name", "hook_name", "prepend_bos"])
def test_a_missing_field_is_named(name: str, tmp_path: Path) -> None:
    edited(save_tiny_sae(tmp_path), **{name: None})
    with pytest.raises(InputError, match=rf"cfg\.json: {name}: the SAE's metadata does not say"):
        load_sae(tmp_path)


def test_a_topk_sae_without_k_is_not_one_of_100(tmp_path: Path) -> None:
    edited(saved("topk", tmp_path), k=None)
    with pytest.raises(InputError, match="k: the SAE's metadata does not say"):
        load_sae(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "jumprelu_skip_transcoder"}, "is a transcoder"),
        ({"architecture": "transcoder"}, "is a transcoder"),
        ({"d_out": 32}, "is a transcoder"),
        ({"hook_name_out": "blocks.1.hook_mlp_out"}, "is a transcoder"),
        ({"architecture": "crosscoder"}, "is a crosscoder"),
        ({"hook_name": ["blocks.1.hook_resid_post", "blocks.2.hook_resid_post"]}, "is a crosscoder"),
        ({"architecture": "temporal"}, "unsupported SAE architecture 'temporal'"),
        ({"architecture": "abstopk", "k": 3}, "unsupported SAE architecture 'abstopk'"),
        ({"architecture": "standard", "activation_fn": "tanh-relu"}, "activation_fn: is 'tanh-relu', which would be read as relu"),
        ({"hook_name": "blocks.1.hook_mlp_out"}, "reads 'blocks.1.hook_mlp_out', not the residual stream"),
        ({"hook_name": "blocks.1.attn.hook_z", "reshape_activations": "hook_z"}, "not the residual stream"),
        ({"reshape_activations": "hook_z"}, "reads attention heads"),
        ({"hook_name": "blocks.0.hook_resid_pre"}, "the embeddings before the first block"),
        ({"hf_hook_name": "model.layers.2"}, "hf_hook_name: is 'model.layers.2', and hook_name is 'blocks.1.hook_resid_post'"),
        ({"normalize_activations": "covariance_whitening"}, "is 'covariance_whitening', which SAELens does not apply"),
    ],
)
def test_refused_by_name(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    edited(save_tiny_sae(tmp_path), **changes)
    with pytest.raises(InputError, match=message):
        load_sae(tmp_path)


def test_both_names_of_one_place(tmp_path: Path) -> None:
    assert load_sae(edited(save_tiny_sae(tmp_path), hf_hook_name="model.layers.1.output")).layer == 1


@pytest.mark.parametrize(
    ("name", "layer"), [("model.language_model.layers.4", 4), ("gpt_neox.layers.2", 2), ("model.layers.7.output", 7), ("layers.0", 0)]
)
def test_module_names(name: str, layer: int) -> None:
    assert hook_layer(name) == layer


@pytest.mark.parametrize(
    "name", ["model.vision_tower.layers.3", "model.layers.3.mlp", "model.layers.3.input_layernorm.output", "hook_embed"]
)
def test_other_modules(name: str) -> None:
    with pytest.raises(InputError, match="not the residual stream"):
        hook_layer(name)


OLD = {
    "d_in": D_IN, "d_sae": D_SAE, "dtype": "torch.float32", "device": "cpu", "model_name": "tiny", "hook_point": "blocks.2.hook_resid_pre",
    "hook_point_layer": 2, "activation_fn_str": "topk", "activation_fn_kwargs": {"k": 5}, "normalize_activations": False, "prepend_bos": True,
    "context_size": 128, "finetuning_scaling_factor": False,
}  # fmt: skip


def test_files_from_before_version_6(tmp_path: Path) -> None:
    saved("topk", tmp_path)
    codes = load_sae(tmp_path).encode(activations())
    (tmp_path / "cfg.json").write_text(json.dumps(OLD))
    sae = load_sae(tmp_path)
    assert (sae.architecture, sae.sae.cfg.k, sae.layer, sae.hook_name) == ("topk", 5, 1, "blocks.2.hook_resid_pre")
    assert (sae.prepend_bos, sae.context_size) == (True, 128)
    assert torch.equal(sae.encode(activations()), codes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_fn_kwargs": {}}, "k: the SAE's metadata does not say"),
        ({"prepend_bos": None}, "prepend_bos: the SAE's metadata does not say"),
        ({"hook_point": None}, "hook_name: the SAE's metadata does not say"),
        ({"normalize_activations": True}, "expects scaled activations"),
    ],
)
def test_what_saelens_would_fill_in(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        check_config({name: value for name, value in (OLD | changes).items() if value is not None}, tmp_path)


def test_prepend_bos_of_the_parameters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    edited(save_tiny_sae(tmp_path), prepend_bos=None)
    assert load_sae(tmp_path, prepend_bos=True).prepend_bos
    with caplog.at_level(logging.WARNING):
        sae = load_sae(save_tiny_sae(tmp_path), prepend_bos=False)
    assert "says prepend_bos True, the parameters say False, which is used" in caplog.text
    sae.sae.save_model(tmp_path)
    assert load_sae(tmp_path).prepend_bos is False
