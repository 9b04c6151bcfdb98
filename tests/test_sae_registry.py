"""Published SAEs by their names in the SAELens registry; a directory of small files stands in for the hub.

What must hold:
- an entry is found without a network, and an unknown release or id names the nearest ones;
- each form of files that the presets' releases have is read as it is defined, and what is saved reads back the same;
- weights that are pickled are read only where the parameters say so, and then without running what the file holds;
- what the registry's configuration does not say must be said by the parameters; transcoders and other places are refused
  before any weights are fetched; an unreachable hub is one line.
"""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from sae_lens.loading import pretrained_sae_loaders as loaders
from safetensors.torch import save_file
from tiny_sae import D_SAE as TINY_D_SAE
from tiny_sae import save_tiny_sae

from gapscope.errors import InputError
from gapscope.files import sha256_tree
from gapscope.params import TrainSaeParams
from gapscope.params_observers import RegistrySae
from gapscope.sae import load_sae
from gapscope.sae_config import SCALED, fields_of
from gapscope.sae_registry import PICKLED_LOADERS, load_registry_sae, registry_config, registry_entry
from gapscope.sae_source import make_sae

D_IN, D_SAE = 32, 96
Weights = dict[str, torch.Tensor]
Codes = Callable[[torch.Tensor, Weights], torch.Tensor]


def weights() -> Weights:
    generator = torch.Generator().manual_seed(0)
    shapes = {"W_enc": (D_IN, D_SAE), "W_dec": (D_SAE, D_IN), "b_enc": (D_SAE,), "b_dec": (D_IN,)}
    return {name: 0.5 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def activations() -> torch.Tensor:
    return 2 * torch.randn((30, D_IN), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a folder a repository; whatever is not there cannot be reached."""

    def download(repo_id: str, filename: str, subfolder: str | None = None, **_options: Any) -> str:
        file = tmp_path / "hub" / repo_id / (subfolder or "") / filename
        if not file.exists():
            raise LocalEntryNotFoundError(f"cannot reach the hub for {filename}\nand a second line")
        return str(file)

    monkeypatch.setattr(loaders, "hf_hub_download", download)
    return tmp_path / "hub"


def put(hub: Path, source: RegistrySae, name: str = "") -> Path:
    entry = registry_entry(source.release, source.id)
    file = hub / entry.repo / entry.path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def goodfire(hub: Path, source: RegistrySae, w: Weights) -> None:
    raw = {"encoder_linear.weight": w["W_enc"].T, "decoder_linear.weight": w["W_dec"].T}
    torch.save(raw | {"encoder_linear.bias": w["b_enc"], "decoder_linear.bias": w["b_dec"]}, put(hub, source))


def deepseek(hub: Path, source: RegistrySae, w: Weights) -> None:
    raw = {"encoder.weight": w["W_enc"].T, "decoder.weight": w["W_dec"].T, "encoder.bias": w["b_enc"], "decoder.bias": w["b_dec"]}
    torch.save(raw, put(hub, source))


def qwen(hub: Path, source: RegistrySae, w: Weights) -> None:
    torch.save(w | {"W_enc": w["W_enc"].T, "W_dec": w["W_dec"].T}, put(hub, source))


def gemma(hub: Path, source: RegistrySae, w: Weights) -> None:
    raw = {name.replace("W_", "w_"): tensor.numpy() for name, tensor in w.items()}
    np.savez(put(hub, source, "params.npz"), threshold=np.full(D_SAE, 1.5, np.float32), **raw)


def llama_scope(hub: Path, source: RegistrySae, w: Weights) -> None:
    said = {"d_model": D_IN, "d_sae": D_SAE, "jump_relu_threshold": 0.5, "hook_point_in": "blocks.19.hook_resid_post"}
    put(hub, source, "hyperparams.json").write_text(json.dumps(said | {"dataset_average_activation_norm": {"in": 8.0}}))
    raw = {"encoder.weight": w["W_enc"].T, "decoder.weight": w["W_dec"].T, "encoder.bias": w["b_enc"], "decoder.bias": w["b_dec"]}
    save_file({name: tensor.contiguous() for name, tensor in raw.items()}, put(hub, source, "checkpoints/final.safetensors"))


OLD = {"d_in": D_IN, "d_sae": D_SAE, "dtype": "torch.float32", "model_name": "mistral-7b", "hook_point": "blocks.16.hook_resid_pre"}


def saelens(hub: Path, source: RegistrySae, w: Weights) -> None:
    put(hub, source, "cfg.json").write_text(json.dumps(OLD))
    save_file(w, put(hub, source, "sae_weights.safetensors"))


def pre(x: torch.Tensor, w: Weights) -> torch.Tensor:
    return x @ w["W_enc"] + w["b_enc"]


def relu(x: torch.Tensor, w: Weights) -> torch.Tensor:
    return pre(x, w).relu()


def top_50(x: torch.Tensor, w: Weights) -> torch.Tensor:
    codes = pre(x, w)
    return torch.where(codes >= codes.topk(50).values[:, -1:], codes.relu(), 0)


def above(threshold: float) -> Codes:
    return lambda x, w: torch.where(pre(x, w) > threshold, pre(x, w), 0)


def llama_codes(x: torch.Tensor, w: Weights) -> torch.Tensor:
    """The registry's factor scales the activations, the threshold's own factor is sqrt(width) over their mean norm."""
    factor = registry_entry("llama_scope_lxr_8x", "l19r_8x").norm_scaling_factor
    assert factor is not None
    return above(0.5 * D_IN**0.5 / 8.0)(factor * x, w)


def rescaled_relu(x: torch.Tensor, w: Weights) -> torch.Tensor:
    return relu(D_IN**0.5 * x / x.norm(dim=1, keepdim=True) - w["b_dec"], w)


GOODFIRE = {"release": "goodfire-llama-3.1-8b-instruct", "id": "layer_19", "prepend_bos": True, "pickled": True}
DEEPSEEK = {"release": "deepseek-r1-distill-llama-8b-qresearch", "id": "blocks.19.hook_resid_post", "pickled": True}
QWEN = {"release": "qwen-scope-3-8b-base-w64k-l50", "id": "layer21", "prepend_bos": False, "pickled": True}
GEMMA = {"release": "gemma-scope-2b-pt-res-canonical", "id": "layer_20/width_16k/canonical"}
LLAMA = {"release": "llama_scope_lxr_8x", "id": "l19r_8x"}
MISTRAL = {"release": "mistral-7b-res-wg", "id": "blocks.16.hook_resid_pre", "prepend_bos": True}

FORMS: list[tuple[str, dict[str, Any], Any, Codes, str, int]] = [
    ("get_goodfire_config_from_hf", GOODFIRE, goodfire, relu, "standard", 19),
    ("get_deepseek_r1_config_from_hf", DEEPSEEK, deepseek, relu, "standard", 19),
    ("get_qwen_scope_config_from_hf", QWEN, qwen, top_50, "topk", 21),
    ("get_gemma_2_config_from_hf", GEMMA, gemma, above(1.5), "jumprelu", 20),
    ("get_llama_scope_config_from_hf", LLAMA, llama_scope, llama_codes, "jumprelu", 19),
    ("get_sae_lens_config_from_hf", MISTRAL, saelens, rescaled_relu, "standard", 15),
]


@pytest.mark.parametrize(("getter", "fields", "write", "codes", "architecture", "layer"), FORMS, ids=[form[0] for form in FORMS])
def test_each_form_of_files(
    getter: str, fields: dict[str, Any], write: Any, codes: Codes, architecture: str, layer: int,
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    full = getattr(loaders, getter)

    def small(*args: Any) -> dict[str, Any]:  # four loaders know their releases' widths, which are too wide for a test
        return dict(full(*args)) | {"d_in": D_IN, "d_sae": D_SAE}

    monkeypatch.setattr(loaders, getter, small)
    source = RegistrySae(kind="registry", **fields)
    write(hub, source, weights())
    sae = load_registry_sae(source)
    assert (sae.id, sae.architecture, sae.layer) == (f"{source.release}/{source.id}", architecture, layer)
    assert sae.prepend_bos is fields.get("prepend_bos", True)
    expected = codes(activations(), weights())
    assert 0.01 < float((expected > 0).float().mean()) < 0.9
    assert torch.allclose(sae.encode(activations()), expected, rtol=1e-4, atol=1e-4)
    sae.sae.save_model(tmp_path / "pinned")
    pinned = load_sae(tmp_path / "pinned")
    assert (pinned.id, pinned.prepend_bos, pinned.layer, pinned.context_size) == (sae.id, sae.prepend_bos, layer, sae.context_size)
    assert torch.allclose(pinned.encode(activations()), sae.encode(activations()), rtol=1e-6, atol=1e-6)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(
        InputError, match=r"sae\.release: the registry of SAELens \S+ has no release 'gemma-scope-2b-res' \(nearest: gemma-"
    ):
        registry_entry("gemma-scope-2b-res", "x")
    with pytest.raises(
        InputError, match=r"sae\.id: release mistral-7b-res-wg has no SAE 'blocks.16.hook_resid_post' \(it has: blocks.16.hook"
    ):
        registry_entry("mistral-7b-res-wg", "blocks.16.hook_resid_post")
    entry = registry_entry("someone/their-saes", "layer_3")
    assert (entry.repo, entry.path, entry.loader, entry.model) == ("someone/their-saes", "layer_3", "sae_lens", None)


def test_pickled_loaders_are_those_that_unpickle() -> None:
    unpickling = {name for name, loader in loaders.NAMED_PRETRAINED_SAE_LOADERS.items() if "torch.load(" in inspect.getsource(loader)}
    assert unpickling == set(PICKLED_LOADERS)


class Trap:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def test_pickled_weights_are_asked_for_and_run_no_code(hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = RegistrySae(kind="registry", **DEEPSEEK)
    put(hub, source).write_bytes(pickle.dumps({"encoder.weight": Trap(tmp_path / "sprung")}))
    with pytest.raises(InputError, match=r"pickled: its weights are published as a pickled torch file only \(pickled: true"):
        load_registry_sae(source.model_copy(update={"pickled": False}))
    with pytest.raises(InputError, match="cannot fetch this SAE"):
        load_registry_sae(source)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(InputError, match="would let a pickled file run code"):
        load_registry_sae(source)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("fields", [GOODFIRE, MISTRAL])
def test_what_the_registry_does_not_say_is_asked_for(fields: dict[str, Any], hub: Path) -> None:
    source = RegistrySae(kind="registry", **(fields | {"prepend_bos": None}))
    saelens(hub, source, weights())
    with pytest.raises(InputError, match=r"prepend_bos: the SAE's metadata does not say \(say it in the parameters"):
        load_registry_sae(source)


@pytest.mark.parametrize(
    ("release", "sae_id", "message"),
    [
        ("gemma-scope-2b-pt-transcoders", "layer_3/width_16k/average_l0_54", "is a transcoder"),
        ("gemma-scope-2b-pt-mlp-canonical", "layer_3/width_16k/canonical", "reads 'blocks.3.hook_mlp_out', not the residual stream"),
        ("gemma-scope-2b-pt-res", "embedding/width_4k/average_l0_6", "reads 'hook_embed', not the residual stream"),
    ],
)
def test_other_kinds_are_refused_before_weights_are_fetched(release: str, sae_id: str, message: str, hub: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_registry_sae(RegistrySae(kind="registry", release=release, id=sae_id))


def test_unreachable_hub_is_one_line(hub: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_registry_sae(RegistrySae(kind="registry", **GEMMA))
    message = str(caught.value)
    assert "cannot fetch this SAE from google/gemma-scope-2b-pt-res: cannot reach the hub for params.npz (check the network" in message
    assert "second line" not in message


def test_train_sae_pins_it(hub: Path, tiny_lm_dir: Path, tmp_path: Path) -> None:
    """A repository in SAELens's own format need not be in the registry; its SAE is checked against the observer and kept."""
    save_tiny_sae(hub / "someone/their-saes/block_1")
    source = RegistrySae(kind="registry", release="someone/their-saes", id="block_1")
    how: dict[str, Any] = {"sae_dir": None, "corpus": None, "seed": 1, "dtype": "float32", "device": "cpu", "threads": 1, "name": "tiny"}
    for name in ("a", "b"):
        metrics = make_sae(tiny_lm_dir, tmp_path / name, TrainSaeParams(), tmp_path / "w", layer=1, source=source, **how)
    assert (metrics["layer"], metrics["d_sae"]) == (1, TINY_D_SAE)
    assert sha256_tree(tmp_path / "a") == sha256_tree(tmp_path / "b")
    assert load_sae(tmp_path / "a").id == "someone/their-saes/block_1"
    with pytest.raises(InputError, match="the observer's layer is 2, the SAE someone/their-saes/block_1 reads layer 1"):
        make_sae(tiny_lm_dir, tmp_path / "c", TrainSaeParams(), tmp_path / "w", layer=2, source=source, **how)
    assert not (tmp_path / "c").exists()


def test_a_scaled_sae_has_its_factor_in_the_registry(hub: Path) -> None:
    source = RegistrySae(kind="registry", **LLAMA)
    llama_scope(hub, source, weights())
    entry = registry_entry(source.release, source.id)
    assert fields_of(registry_config(entry))["normalize_activations"] == SCALED
    assert entry.norm_scaling_factor is not None
    assert load_registry_sae(source).sae.cfg.normalize_activations == "none"
