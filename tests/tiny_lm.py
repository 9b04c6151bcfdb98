"""A tiny random Llama with a byte-level BPE tokenizer of its own, saved as a model directory."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WIDTH, LAYERS = 32, 3
SENTENCES = [
    "The dog ran to the river and the cat slept under the old tree.",
    "Which of these did the hammer stand next to, the saw or the wall?",
    "A user asked the assistant where bread, rice and cheese come from.",
    "Question: what happens when water boils? Answer: it turns into steam.",
    "Every morning the owl flew over the bridge, past the horse and the sheep.",
]


def tiny_tokenizer(*, adds_bos: bool = False, vocabulary: int = 400) -> PreTrainedTokenizerFast:
    """Byte-level BPE: any text can be encoded. With ``adds_bos`` it puts the begin token in front by itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|im_start|> $A", pair="<|im_start|> $A $B", special_tokens=[("<|im_start|>", 1)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=SPECIAL[1], eos_token=SPECIAL[2], pad_token=SPECIAL[2], unk_token=SPECIAL[0]
    )


def save_tiny_lm(path: Path, *, adds_bos: bool = False, seed: int = 0) -> Path:
    """Save the model and its tokenizer; the same seed gives the same bytes."""
    tokenizer = tiny_tokenizer(adds_bos=adds_bos)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
