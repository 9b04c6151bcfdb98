"""A model of one's own as the writer of labels: greedy, one prompt at a time, so that its replies are the same on every run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from gapscope.errors import InputError
from gapscope.files import sha256_tree
from gapscope.labels.replies import Reply
from gapscope.lm import LM, encode_text, load_lm, pad_id
from gapscope.params_labels import LocalModel


@dataclass(frozen=True)
class LocalWriter:
    """A causal LM that replies to prompts, with its digest: other weights are another writer."""

    lm: LM
    params: LocalModel
    digest: str

    @staticmethod
    def of(params: LocalModel, source: Path) -> LocalWriter:
        """Load the model from a source's directory.

        Raises:
            InputError: as :func:`gapscope.lm.load_lm`.
        """
        return LocalWriter(load_lm(source, params.dtype), params, sha256_tree(source))

    @property
    def identity(self) -> dict[str, Any]:
        """What a reply depends on."""
        return {"kind": "local", "model": self.digest, "dtype": self.params.dtype, "max_tokens": self.params.max_tokens}

    @property
    def parallel(self) -> int:
        """One: a forward pass uses every thread there is."""
        return 1

    def reply(self, prompt: str) -> Reply:
        """The most likely continuation of the prompt, as a chat message where the model has a chat template.

        Raises:
            InputError: prompt and reply together are longer than the model has positions for.
        """
        ids = self._encode(prompt)
        longest = self.lm.max_positions
        if longest is not None and len(ids) + self.params.max_tokens > longest:
            message = f"a prompt of {len(ids)} tokens and a reply of {self.params.max_tokens} do not fit into {longest} positions"
            raise InputError(message, field="labels.llm", fix="lower shown, held_out or max_tokens")
        tokenizer = self.lm.tokenizer
        # Built here in full: nothing that a model's own generation_config says of sampling can leak in.
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=self.params.max_tokens,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=pad_id(tokenizer),
        )
        rows = torch.tensor([ids], device=self.lm.device)
        with torch.inference_mode():
            found = self.lm.model.generate(input_ids=rows, attention_mask=torch.ones_like(rows), generation_config=config)
        new = found[0, len(ids) :].tolist()
        ended = "stop" if new and new[-1] == tokenizer.eos_token_id else "length"
        return Reply(tokenizer.decode(new, skip_special_tokens=True), len(ids), len(new), ended)

    def _encode(self, prompt: str) -> list[int]:
        tokenizer = self.lm.tokenizer
        if tokenizer.chat_template is None:
            return encode_text(self.lm, prompt + "\n", prepend_bos=tokenizer.bos_token_id is not None).ids
        # The template's own tokens around the prompt's text, which is tokenised as text whatever it holds.
        place = "|PROMPT|"
        whole = tokenizer.apply_chat_template([{"role": "user", "content": place}], tokenize=False, add_generation_prompt=True)
        before, _, after = whole.partition(place)
        around = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, after)]
        return [*around[0], *encode_text(self.lm, prompt, prepend_bos=False).ids, *around[1]]
