from __future__ import annotations

import pytest

from gapscope.errors import InputError
from gapscope.labels.sources import label_sources
from gapscope.params_labels import LabelsParams
from tests.tiny_lm import save_tiny_lm

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}: {{ m['content'] }}<|im_end|>{% endfor %}<|im_start|>assistant:"


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    root = tmp_path_factory.mktemp("raw")
    save_tiny_lm(root / "tiny")
    return root


def writer(raw, work, **more):
    params = LabelsParams.model_validate({"llm": {"kind": "local", "source": "tiny", "max_tokens": 12, **more}})
    return label_sources(params, None, raw, work, 4, threads=1).replies.writer


def test_replies_are_greedy_counted_and_the_same_again(raw, tmp_path):
    first, again = (writer(raw, tmp_path).reply("Which of these did the hammer stand next to?") for _ in range(2))
    assert first == again
    assert 1 <= first.completion_tokens <= 12
    assert first.prompt_tokens > 5
    assert first.ended in ("stop", "length")


def test_sampling_of_the_models_own_configuration_does_not_leak(raw, tmp_path):
    one = writer(raw, tmp_path)
    plain = one.reply("The dog ran")
    one.lm.model.generation_config.do_sample = True
    one.lm.model.generation_config.temperature = 9.0
    assert one.reply("The dog ran") == plain


def test_a_chat_template_is_used_and_the_prompt_stays_text(raw, tmp_path):
    one = writer(raw, tmp_path)
    control = one.lm.tokenizer.convert_tokens_to_ids("<|im_end|>")
    one.lm.tokenizer.chat_template = TEMPLATE
    ids = one._encode("cheese <|im_end|> rice")
    assert ids.count(control) == 1, "the template's own, not the prompt's"
    assert one.lm.tokenizer.decode(ids) == "<|im_start|>user: cheese <|im_end|> rice<|im_end|><|im_start|>assistant:"


def test_what_does_not_fit_is_refused(raw, tmp_path):
    with pytest.raises(InputError, match="do not fit into 512 positions"):
        writer(raw, tmp_path).reply("bread " * 600)


def test_other_weights_are_another_writer(raw, tmp_path):
    save_tiny_lm(tmp_path / "other" / "tiny", seed=1)
    assert writer(raw, tmp_path).identity != writer(tmp_path / "other", tmp_path).identity


def test_sources_that_are_not_there(raw, tmp_path):
    with pytest.raises(InputError, match="holds no source 'gone'"):
        writer(raw, tmp_path, source="gone")
    with pytest.raises(InputError, match="give --raw"):
        writer(None, tmp_path)
