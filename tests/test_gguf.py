"""GGUF weights become a safetensors directory that is the same model.

What must hold:
- an unquantised GGUF gives the logits of the model it was made from; a quantised one exactly its dequantised weights;
- the directory loads without a quantisation record, names the quantisation, holds no pickle, path or version, and is
  the same bytes on a second conversion from another place;
- a tokenizer that does not give text back, a file that is cut short and one that is no GGUF are refused on one line.
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tiny_gguf import save_tiny_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer

from gapscope.errors import InputError
from gapscope.files import sha256_file, sha256_tree
from gapscope.gguf import ROUND_TRIP, convert_gguf, quantisation_name

F32, Q8_0, Q4_1 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_1


def logits(directory: Path, text: str) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(directory, local_files_only=True)
    with torch.inference_mode():
        result: torch.Tensor = model(**tokenizer(text, return_tensors="pt")).logits
    return result


def test_unquantised_weights_give_the_same_logits(tiny_lm_dir: Path, tmp_path: Path) -> None:
    file = save_tiny_gguf(tiny_lm_dir, tmp_path / "tiny.gguf", F32)
    assert convert_gguf(file, tmp_path / "out") == "ALL_F32"
    text = "The dog ran to the river, 1234 times. 日本語"
    torch.testing.assert_close(logits(tmp_path / "out", text), logits(tiny_lm_dir, text), atol=1e-5, rtol=1e-5)


def test_quantised_weights_are_dequantised_and_named(tiny_lm_dir: Path, tmp_path: Path) -> None:
    file = save_tiny_gguf(tiny_lm_dir, tmp_path / "tiny.gguf", Q4_1)
    assert convert_gguf(file, tmp_path / "out") == "Q4_1"
    name = "model.layers.1.mlp.up_proj.weight"
    original = load_file(tiny_lm_dir / "model.safetensors")[name]
    expected = gguf.dequantize(gguf.quantize(original, Q4_1), Q4_1)
    np.testing.assert_array_equal(load_file(tmp_path / "out" / "model.safetensors")[name], expected)
    assert not np.array_equal(original, expected)
    assert json.loads((tmp_path / "out" / "weights.json").read_text()) == {
        "dequantised_from": "Q4_1",
        "file": "tiny.gguf",
        "sha256": sha256_file(file),
    }
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())


def test_second_conversion_from_another_place_gives_the_same_bytes(tiny_lm_dir: Path, tmp_path: Path) -> None:
    trees = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        file = save_tiny_gguf(tiny_lm_dir, tmp_path / place / "tiny.gguf", Q8_0)
        convert_gguf(file, tmp_path / place / "out")
        trees.append(sha256_tree(tmp_path / place / "out"))
    assert trees[0] == trees[1]
    out = tmp_path / "here" / "out"
    assert {path.suffix for path in out.iterdir()} <= {".json", ".safetensors", ".jinja"}
    for path in out.glob("*.json"):
        text = path.read_text()
        assert str(tmp_path) not in text
        assert "transformers_version" not in text
        assert path.stat().st_mode & 0o777 == 0o644


def test_tokenizer_that_loses_text_is_refused(tiny_lm_dir: Path, tmp_path: Path) -> None:
    vocabulary = json.loads((tiny_lm_dir / "tokenizer.json").read_text())["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    # Without the byte that a tab becomes (U+0109), a text with a tab cannot come back.
    tokens[tokens.index("ĉ")] = "<|lost|>"
    file = save_tiny_gguf(tiny_lm_dir, tmp_path / "tiny.gguf", F32, tokens=tokens)
    with pytest.raises(InputError, match="its tokenizer turns 'def f") as caught:
        convert_gguf(file, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert "\t" in ROUND_TRIP[1]


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"", "is empty"), (b"PK\x03\x04 a zip", "not a GGUF file"), (b"GGUF\x03\x00\x00\x00\xff", "not a readable GGUF file")],
)
def test_what_is_no_gguf_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(InputError, match=words):
        convert_gguf(tmp_path / "x.gguf", tmp_path / "out")
    with pytest.raises(InputError, match="no such file"):
        quantisation_name(tmp_path / "y.gguf")


def test_cut_short_gguf_is_refused(tiny_lm_dir: Path, tmp_path: Path) -> None:
    file = save_tiny_gguf(tiny_lm_dir, tmp_path / "tiny.gguf", F32)
    data = file.read_bytes()
    for kept in (len(data) // 2, 200):
        file.write_bytes(data[:kept])
        with pytest.raises(InputError, match="GGUF"):
            convert_gguf(file, tmp_path / "out")
        assert not (tmp_path / "out").exists()
