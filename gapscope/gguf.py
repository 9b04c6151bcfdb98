"""GGUF weights to a safetensors model directory, once: dequantised, named after their quantisation, text round trip checked.

transformers keeps GGUF weights packed unless told otherwise, and refuses to save them while the model carries its
quantisation record; both are dealt with here. `torch` and `transformers` are imported on the call.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import dump_json, require_file, sha256_file, write_bytes, write_json

logger = logging.getLogger(__name__)

ROUND_TRIP = (
    "The quick brown fox, 3.14159 and 12345678.",
    "def f(x):\n\treturn  x ** 2  # indented\n",
    "Ünïcödé, 日本語, العربية, 🙂 and “quotes”.",
)
"""Texts that the tokenizer inside the GGUF must give back unchanged."""

# What from_pretrained adds of the machine or of the moment; a model directory must not depend on either.
FLEETING = ("_name_or_path", "_model_name_or_path", "transformers_version", "is_local", "local_files_only", "name_or_path")


def quantisation_name(gguf_file: Path) -> str:
    """The quantisation that a GGUF file declares, as its users write it (``Q4_1``, ``Q4_K_M``); ``unknown`` where it does not.

    Raises:
        InputError: not a GGUF file.
    """
    from gguf import GGUFReader, LlamaFileType

    with require_file(gguf_file).open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise InputError("not a GGUF file", file=gguf_file)
    try:
        field = GGUFReader(gguf_file).get_field("general.file_type")
    except (ValueError, IndexError, KeyError) as error:
        raise InputError(f"not a readable GGUF file: {error}", file=gguf_file, fix="it may be cut short") from error
    if field is None:
        return "unknown"
    try:
        return str(LlamaFileType(int(field.contents())).name).removeprefix("MOSTLY_")
    except ValueError:
        return "unknown"


def convert_gguf(gguf_file: Path, output: Path) -> str:
    """Write the model of a GGUF file to the directory ``output``, in float32 safetensors, and return its quantisation.

    ``output`` gets config.json, model.safetensors, the tokenizer's files, generation_config.json and weights.json, which
    says what the weights were made of: a result with them is a result of the quantised model.

    Raises:
        InputError: not a GGUF file, of an architecture that transformers cannot read, or with a tokenizer that does not
            give text back.
    """
    quantisation = quantisation_name(gguf_file)
    logger.info("converting %s (%s) to safetensors", gguf_file.name, quantisation)
    model, tokenizer = _load(gguf_file)
    check_round_trip(tokenizer, gguf_file)
    # Without this record gone save_pretrained refuses; the weights are plain float32 by now.
    for attribute in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, attribute):
            delattr(model.config, attribute)
    model.hf_quantizer, model.is_quantized = None, False
    output.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(output, max_shard_size="100GB")
    tokenizer.save_pretrained(output)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        _drop_fleeting(output / name)
    write_json(
        output / "weights.json",
        {"dequantised_from": quantisation, "file": gguf_file.name, "sha256": sha256_file(gguf_file)},
    )
    for file in output.iterdir():
        file.chmod(0o644)
    return quantisation


def _load(gguf_file: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging as hf_logging

    hf_logging.disable_progress_bar()
    where = {"pretrained_model_name_or_path": gguf_file.parent, "gguf_file": gguf_file.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**where)
        model = AutoModelForCausalLM.from_pretrained(**where, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"transformers cannot read this GGUF: {reason}", file=gguf_file) from error
    return model, tokenizer


def check_round_trip(tokenizer: Any, file: Path) -> None:
    """Raise InputError unless the tokenizer gives every text of ``ROUND_TRIP`` back unchanged."""
    for text in ROUND_TRIP:
        ids = tokenizer.encode(text, add_special_tokens=False)
        back = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        if back != text:
            raise InputError(f"its tokenizer turns {text!r} into {back!r}", file=file, fix="use a safetensors copy of the model")


def _drop_fleeting(file: Path) -> None:
    if not file.exists():
        return
    content = {key: value for key, value in json.loads(file.read_text(encoding="utf-8")).items() if key not in FLEETING}
    write_bytes(file, (dump_json(content, indent=2) + "\n").encode())
