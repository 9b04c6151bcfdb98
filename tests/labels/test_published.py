from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gapscope.errors import InputError
from gapscope.labels.published import read_published
from gapscope.params_labels import LabelFile


def spec(*files: str, form: str = "neuronpedia", **more: str) -> LabelFile:
    return LabelFile(source="s", files=list(files), format=form, **more)


def line(index: object, description: object = "about cats", **more: object) -> str:
    entry = {"modelId": "gemma-2-2b", "layer": "20-gemmascope-res-16k", "index": index, "description": description}
    return json.dumps({**entry, "typeName": "oai_token-act-pair", "explanationModelName": "gpt-4o-mini", "embedding": "[0.1]", **more})


def test_batches_of_neuronpedia(tmp_path):
    (tmp_path / "batch-0.jsonl.gz").write_bytes(gzip.compress("\n".join([line("0", " cats  and\ndogs "), line("1", "")]).encode()))
    (tmp_path / "batch-1.jsonl.gz").write_bytes(gzip.compress("\n".join([line(7, "law"), line("0", "again")]).encode()))
    found = read_published(tmp_path, spec("batch-*.jsonl.gz"), 8)
    assert found.texts == {0: "cats and dogs", 7: "law"}
    assert (found.n_empty, found.n_repeated, found.n_other) == (1, 1, 0)


def test_an_older_export_is_one_json_list(tmp_path):
    (tmp_path / "export.json").write_text("[" + ", ".join([line("3", "three"), line("2", None)]) + "]")
    found = read_published(tmp_path, spec("export.json"), 4)
    assert (found.texts, found.n_empty) == ({3: "three"}, 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.json", '{"2": "two", "0": "zero"}'),
        ("l.json", '[{"uuid": "u", "label": "two", "index_in_sae": 2}, {"label": "zero", "index_in_sae": 0}]'),
        ("l.jsonl", '{"index_in_sae": 2, "label": "two"}\n{"index": 0, "label": "zero"}\n'),
        ("l.csv", "feature_index,label\r\n2,two\r\n0,zero\r\n"),
        ("l.csv", "﻿index_in_sae,label,other\n0,zero,x\n2,two,y\n"),
    ],
)
def test_forms_of_goodfire(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_published(tmp_path, spec(name, form="goodfire"), 3).texts == {0: "zero", 2: "two"}


def test_one_of_several_saes_and_explainers_must_be_named(tmp_path):
    rows = [line(0, "a"), line(0, "b", layer="9-res"), line(1, "c", explanationModelName="claude")]
    (tmp_path / "x.jsonl").write_text("\n".join(rows))
    with pytest.raises(InputError, match="layer: holds several: 20-gemmascope-res-16k, 9-res"):
        read_published(tmp_path, spec("x.jsonl"), 9)
    with pytest.raises(InputError, match="explainer: holds several: claude, gpt-4o-mini"):
        read_published(tmp_path, spec("x.jsonl", layer="20-gemmascope-res-16k"), 9)
    found = read_published(tmp_path, spec("x.jsonl", layer="20-gemmascope-res-16k", explainer="claude"), 9)
    assert (found.texts, found.n_other) == ({1: "c"}, 2)
    with pytest.raises(InputError, match="holds none of '8-res', but 20-gemmascope-res-16k, 9-res"):
        read_published(tmp_path, spec("x.jsonl", layer="8-res"), 9)


@pytest.mark.parametrize(
    ("name", "data", "form", "words"),
    [
        ("x.jsonl", line("9").encode(), "neuronpedia", "x.jsonl:1: index: is 9, the SAE has 9 concepts"),
        ("x.jsonl", line("-1").encode(), "neuronpedia", "index: is -1"),
        ("x.jsonl", line("one").encode(), "neuronpedia", "is 'one', must be a whole number"),
        ("x.jsonl", (line("1") + '\n{"index": "2"}').encode(), "neuronpedia", "x.jsonl:2: description: the field is missing"),
        ("x.jsonl", b'{"index": 1, "description": "x"}', "goodfire", "label: the field is missing (is it of the format goodfire?)"),
        ("x.jsonl", (line("1") + "\n" + line("2")[:40]).encode(), "neuronpedia", "x.jsonl:2: not valid JSON"),
        ("x.jsonl", line("1", "   ").encode(), "neuronpedia", "holds no label"),
        ("x.jsonl", line("1").encode() + b"\x00", "neuronpedia", "holds a NUL byte"),
        ("x.jsonl", b"\xff" + line("1").encode(), "neuronpedia", "not UTF-8"),
        ("x.jsonl", b"", "neuronpedia", "the file is empty"),
        ("x.json", b'{"0": "a"}', "neuronpedia", "must be a list of explanations"),
        ("x.json", b'["a"]', "neuronpedia", "an entry must be an object"),
        ("x.jsonl.gz", b"no gzip", "neuronpedia", "not a readable gzip file"),
        ("y.jsonl", b"{}", "neuronpedia", "holds no x.jsonl"),
    ],
)
def test_faults_are_one_line_with_the_place(tmp_path: Path, name, data, form, words):
    (tmp_path / name).write_bytes(data)
    wanted = "x.jsonl" if name == "y.jsonl" else name
    with pytest.raises(InputError) as caught:
        read_published(tmp_path, spec(wanted, form=form), 9)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_label_is_one_bounded_printable_line(tmp_path):
    (tmp_path / "x.jsonl").write_text("\n".join([line(0, "a\u202eb\x1b[31mc"), line(1, "word " * 300)]))
    texts = read_published(tmp_path, spec("x.jsonl"), 2).texts
    assert texts[0] == "a b [31mc"
    assert len(texts[1]) <= 400
