"""A causal language model from a directory: load it, tokenise text as text, read its residual stream.

Only `torch` and `transformers` are needed here; nothing is fetched and no code of the model's own is run.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as hf_logging

from gapscope.errors import InputError, reason_of

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


@dataclass(frozen=True)
class LM:
    """A causal LM in evaluation mode with its fast tokenizer."""

    model: Any
    tokenizer: Any
    device: torch.device
    dtype: torch.dtype

    @property
    def width(self) -> int:
        """Width of the residual stream."""
        return int(self.model.config.get_text_config().hidden_size)

    @property
    def n_layers(self) -> int:
        """Number of decoder blocks."""
        return len(blocks(self.model))

    @property
    def max_positions(self) -> int | None:
        """Longest sequence that the model has positions for, where it says so."""
        found = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return None if found is None else int(found)


@dataclass(frozen=True)
class Encoding:
    """One text as tokens. All four lists run over tokens; `offsets` are character spans of the text.

    `special` marks tokens that are not text: the begin-of-text token that was prepended, and whatever else the
    tokenizer counts among its special tokens (its unknown token, for example). Their span is (0, 0) if prepended.
    """

    ids: list[int]
    offsets: list[tuple[int, int]]
    special: list[bool]
    n_truncated: int


def pick_device(device: str = "auto") -> torch.device:
    """The device named, or with `auto` the accelerator that torch finds, else the CPU."""
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_lm(path: Path, dtype: str = "float32", device: str = "auto") -> LM:
    """Load a causal LM from a directory in the Hugging Face layout.

    Weights come from safetensors files only: pickled ones are refused by name. Raises InputError on anything that
    is not such a directory, or whose tokenizer is missing, slow, or larger than the model's vocabulary.
    """
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}", field="dtype", fix=f"use one of {', '.join(DTYPES)}")
    _check_model_dir(path)
    hf_logging.disable_progress_bar()
    where = pick_device(device)
    try:
        model, loading = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=DTYPES[dtype],
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers, tokenizers and safetensors raise a dozen kinds for a damaged file
        raise InputError(f"cannot load this model: {reason_of(error)}", file=path) from error
    _check_weights(model, loading, path)
    if not tokenizer.is_fast:
        raise InputError(
            "this tokenizer gives no character offsets",
            file=path,
            fix="convert it to a fast tokenizer (tokenizer.json)",
        )
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens and the model's vocabulary {rows}",
            file=path,
            fix="put the tokenizer of this very model beside its weights",
        )
    model.eval().requires_grad_(False).to(where)
    return LM(model=model, tokenizer=tokenizer, device=where, dtype=DTYPES[dtype])


def _check_model_dir(path: Path) -> None:
    if not path.is_dir():
        raise InputError("no such model directory", file=path)
    if not (path / "config.json").is_file():
        raise InputError("holds no model (config.json is missing)", file=path)
    if any(path.glob("*.safetensors")):
        return
    pickled = sorted(p.name for p in path.iterdir() if p.suffix in PICKLED)
    if pickled:
        raise InputError(
            f"the weights are pickled ({pickled[0]}) and pickles are never opened",
            file=path,
            fix="convert them to safetensors",
        )
    raise InputError("holds no weights (no *.safetensors)", file=path)


def _check_weights(model: Any, loading: dict[str, Any], path: Path) -> None:
    """Refuse weights that are not those of a causal LM of this configuration: transformers draws what it lacks at random."""
    config = "the configuration (config.json) is of another model, or the files are not all here"
    for name, found, needed in sorted(tuple(entry) for entry in loading["mismatched_keys"]):
        raise InputError(f"the weight {name} is {tuple(found)}, needed is {tuple(needed)}", file=path, fix=config)
    if missing := sorted(loading["missing_keys"]):
        what = f"a causal language model needs {missing[0]}, which the weights do not hold ({len(missing)} missing)"
        raise InputError(what, file=path, fix=config)
    for name, weight in model.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            fix = "use float32 or bfloat16, or fetch the weights again"
            raise InputError(f"the weight {name} holds NaN or infinity as {str(weight.dtype)[6:]}", file=path, fix=fix)


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of the tokenizer's special tokens (control tokens, padding, unknown)."""
    return frozenset(int(i) for i in tokenizer.all_special_ids)


def bos_id(tokenizer: Any) -> int:
    """Id of the begin-of-text token. Raises InputError where the tokenizer has none."""
    if tokenizer.bos_token_id is None:
        raise InputError(
            "a begin-of-text token is asked for and this tokenizer has none",
            field="prepend_bos",
            fix="set prepend_bos to false for this model",
        )
    return int(tokenizer.bos_token_id)


def encode_text(lm: LM | Any, text: str, *, prepend_bos: bool, max_tokens: int | None = None) -> Encoding:
    """Tokenise `text` as text: strings such as `<|im_start|>` or `</s>` in it never become control tokens.

    With `prepend_bos` there is exactly one begin-of-text token, at the front, whatever the tokenizer's own habit;
    without it there is none. `max_tokens` bounds the whole sequence, that token included, and `n_truncated` counts
    the tokens that did not fit. `lm` may be an LM or its tokenizer.
    """
    tokenizer = lm.tokenizer if isinstance(lm, LM) else lm
    encoded = tokenizer(
        text,
        add_special_tokens=False,
        split_special_tokens=True,
        return_offsets_mapping=True,
        return_attention_mask=False,
        truncation=False,
        verbose=False,
    )
    ids = [int(i) for i in encoded["input_ids"]]
    offsets = [(int(a), int(b)) for a, b in encoded["offset_mapping"]]
    known = special_ids(tokenizer)
    special = [i in known for i in ids]
    _refuse_control(tokenizer, ids)
    if prepend_bos:
        ids, offsets, special = [bos_id(tokenizer), *ids], [(0, 0), *offsets], [True, *special]
    cut = len(ids) if max_tokens is None else min(len(ids), max_tokens)
    return Encoding(ids[:cut], offsets[:cut], special[:cut], n_truncated=len(ids) - cut)


def _refuse_control(tokenizer: Any, ids: list[int]) -> None:
    """A vocabulary that spells control tokens as ordinary pieces cannot hold the promise of encode_text: say so."""
    control = special_ids(tokenizer) - {tokenizer.unk_token_id}
    for i in ids:
        if i in control:
            raise InputError(
                f"this tokenizer turns plain text into its control token {tokenizer.convert_ids_to_tokens(i)!r}",
                fix="use a model whose tokenizer can split special tokens",
            )


def blocks(model: Any) -> torch.nn.ModuleList:
    """The list of decoder blocks: the one ModuleList as long as the configuration's `num_hidden_layers`."""
    n = int(model.config.get_text_config().num_hidden_layers)
    found: dict[str, torch.nn.ModuleList] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if isinstance(module, torch.nn.ModuleList) and len(module) == n and not inside:
            found[name] = module
    if len(found) != 1:
        kind = type(model).__name__
        raise InputError(f"cannot tell the decoder blocks of {kind}: {len(found)} lists of {n} modules")
    return next(iter(found.values()))


class _StopForwardError(Exception):
    """Leaves the forward pass at the hook: what lies above it is never computed."""


def block_output(output: Any, shape: tuple[int, int, int]) -> torch.Tensor:
    """The residual stream in what a decoder block returned, a tensor or a tuple that begins with one.

    `shape` is (batch, sequence, width) and is checked: indexing a tensor as if it were a tuple would silently
    take one row of the batch.
    """
    hidden = output if isinstance(output, torch.Tensor) else output[0]
    if not isinstance(hidden, torch.Tensor) or tuple(hidden.shape) != shape:
        got = tuple(hidden.shape) if isinstance(hidden, torch.Tensor) else type(hidden).__name__
        raise InputError(f"a decoder block returned {got} where {shape} was expected")
    return hidden


def check_layer(lm: LM, layer: int) -> torch.nn.Module:
    """Block number `layer` of the model, counted from 0. Raises InputError when there is none."""
    layers = blocks(lm.model)
    if not 0 <= layer < len(layers):
        raise InputError(
            f"layer {layer} is out of range: this model has {len(layers)} blocks",
            field="layer",
            fix=f"use 0 to {len(layers) - 1}",
        )
    return layers[layer]


def forward(lm: LM, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs: Any) -> Any:
    """One forward pass without gradients or cache. Positions count real tokens, so the padding side is free."""
    if "position_ids" in inspect.signature(lm.model.forward).parameters:
        kwargs["position_ids"] = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    with torch.inference_mode():
        return lm.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False, **kwargs)


def read_residual(lm: LM, input_ids: torch.Tensor, attention_mask: torch.Tensor, layer: int) -> torch.Tensor:
    """The residual stream after block `layer`: (batch, sequence, width), in the model's dtype.

    Same place as SAELens's `blocks.{layer}.hook_resid_post`, before any final norm. The forward pass stops there.
    """
    return read_residuals(lm, input_ids, attention_mask, [layer])[0]


def read_residuals(lm: LM, input_ids: torch.Tensor, attention_mask: torch.Tensor, layers: Sequence[int]) -> list[torch.Tensor]:
    """The residual stream after each of the blocks, of one forward pass that stops at the last of them."""
    shape = (int(input_ids.shape[0]), int(input_ids.shape[1]), lm.width)
    kept: dict[int, torch.Tensor] = {}

    def grab(layer: int, output: Any) -> None:
        kept[layer] = block_output(output, shape)
        if layer == max(layers):
            raise _StopForwardError

    def hook(layer: int) -> Callable[..., None]:
        return lambda _module, _args, output: grab(layer, output)

    handles = [check_layer(lm, layer).register_forward_hook(hook(layer)) for layer in layers]
    try:
        with contextlib.suppress(_StopForwardError):
            forward(lm, input_ids, attention_mask)
    finally:
        for handle in handles:
            handle.remove()
    return [kept[layer] for layer in layers]


@contextlib.contextmanager
def replaced_residual(lm: LM, layer: int, replace: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """While open, block `layer` hands on `replace(residual)` in place of its own output, same shape and dtype."""

    def swap(_module: torch.nn.Module, _args: Any, output: Any) -> Any:
        hidden = output if isinstance(output, torch.Tensor) else output[0]
        new = replace(hidden).to(hidden.dtype)
        return new if isinstance(output, torch.Tensor) else (new, *output[1:])

    handle = check_layer(lm, layer).register_forward_hook(swap)
    try:
        yield
    finally:
        handle.remove()


def pad_batch(rows: list[list[int]], pad_id: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token rows padded on the right to the longest: ids and attention mask, both (rows, longest) int64."""
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[i, : len(row)] = 1
    return ids.to(device), mask.to(device)


def pad_id(tokenizer: Any) -> int:
    """An id to pad with. Any will do, since padding is masked everywhere: a model without one pads with 0."""
    return 0 if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
