"""The tiny random Llama of tiny_lm as a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name: str) -> str:
    """A tensor's name in GGUF."""
    if name in NAMES:
        return NAMES[name]
    _model, _layers, block, rest = name.split(".", 3)
    return f"blk.{block}.{NAMES[rest.removesuffix('.weight')]}.weight"


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """GGUF stores the rows of a head for rotary pairs (0, 1), (2, 3), ...; transformers has the two halves one after the other."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def save_tiny_gguf(model: Path, path: Path, quantisation: gguf.GGMLQuantizationType, *, tokens: list[str] | None = None) -> Path:
    """Write the model of a directory as GGUF, its matrices quantised; ``tokens`` replaces its vocabulary."""
    config = json.loads((model / "config.json").read_text())
    tokenizer = json.loads((model / "tokenizer.json").read_text())["model"]
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    kind = {"F32": gguf.LlamaFileType.ALL_F32, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "Q4_1": gguf.LlamaFileType.MOSTLY_Q4_1}
    writer.add_file_type(kind[quantisation.name])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    vocabulary = tokens or sorted(tokenizer["vocab"], key=tokenizer["vocab"].__getitem__)
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in vocabulary])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_space_prefix(False)
    for name, weight in load_file(model / "model.safetensors").items():
        if "q_proj" in name or "k_proj" in name:
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            weight = interleaved(weight, heads)
        if weight.ndim == 1 or quantisation.name == "F32":
            writer.add_tensor(gguf_name(name), np.ascontiguousarray(weight, dtype=np.float32))
        else:
            writer.add_tensor(gguf_name(name), gguf.quantize(weight, quantisation), raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
