"""What the model presets say of their SAEs is what SAELens's registry says, and the paper's suite reads its data sets' rows.

No network is used: the registry is a file of the installed SAELens, and most of its loaders know a release's configuration without
one. The rows are made here, in the columns that the data sets have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapscope.benchmarks import read_benchmark
from gapscope.doctor import examine
from gapscope.params import HubSource, Params, parse_params
from gapscope.params_observers import RegistrySae
from gapscope.presets import apply_preset, load_presets
from gapscope.sae_config import check_config, fields_of, hook_layer
from gapscope.sae_registry import RegistryEntry, registry_config, registry_entry

ROOT = Path(__file__).parent.parent
PRESETS = load_presets(ROOT / "presets")

NEEDS_NETWORK = ("sae_lens", "llama_scope", "llama_scope_r1_distill", "dictionary_learning_1", "gemma_3")
"""Loaders that read a release's configuration from the hub."""

# preset: (the hub model, the registry's word for the SAE's model, architecture, width, latents); None is what needs a network.
MODELS: dict[str, tuple[str, str, str | None, int | None, int | None]] = {
    "gemma2_2b": ("google/gemma-2-2b-it", "gemma-2-2b", "jumprelu", 2304, 16384),
    "llama31_8b": ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "standard", 4096, 65536),
    "mistral_7b": ("mistralai/Mistral-7B-v0.1", "mistral-7b", None, None, None),
    "qwen3_8b": ("Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B-Base", "topk", 4096, 65536),
    "deepseek_r1_8b": (
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "standard",
        4096,
        65536,
    ),
}


def params_of(*names: str) -> Params:
    text = (ROOT / "params.yaml").read_text()
    for name in names:
        text = apply_preset(text, PRESETS[name], {})
    return parse_params(text, Path("params.yaml"))


def entry_of(params: Params, name: str) -> tuple[RegistrySae, RegistryEntry]:
    sae = params.observers[name].sae
    assert isinstance(sae, RegistrySae)
    return sae, registry_entry(sae.release, sae.id)


@pytest.mark.parametrize("name", MODELS)
def test_observer_subject_and_source_are_one_pinned_model(name: str) -> None:
    params = params_of(name)
    assert list(params.observers) == list(params.models) == [name]
    source = params.sources[params.observers[name].source]
    assert isinstance(source, HubSource)
    assert source.repo == params.observers[name].name == params.models[name].name == MODELS[name][0]
    assert len(source.revision) == 40


@pytest.mark.parametrize("name", MODELS)
def test_the_registry_has_what_the_preset_says(name: str) -> None:
    params = params_of(name)
    sae, entry = entry_of(params, name)
    _hub, model, architecture, d_in, d_sae = MODELS[name]
    assert entry.model == model
    assert sae.pickled is entry.pickled, "asked for where it is needed, and nowhere else"
    if entry.loader in NEEDS_NETWORK:
        assert architecture is None
        assert hook_layer(sae.id) == params.observers[name].layer
        return
    config = registry_config(entry)
    check_config(config, entry.name, prepend_bos=sae.prepend_bos, norm_scaling_factor=entry.norm_scaling_factor)
    fields = fields_of(config)
    assert hook_layer(fields["hook_name"]) == params.observers[name].layer
    assert (fields["model_name"].split("/")[-1], fields["d_in"], fields["d_sae"]) == (model.split("/")[-1], d_in, d_sae)
    assert fields["architecture"] == architecture


def test_what_only_these_presets_say() -> None:
    """Goodfire's configuration says nothing of a begin-of-text token; Qwen-Scope's says what Qwen3 does not have."""
    sae, entry = entry_of(params_of("llama31_8b"), "llama31_8b")
    assert (sae.prepend_bos, fields_of(registry_config(entry)).get("prepend_bos")) == (True, None)
    sae, entry = entry_of(params_of("qwen3_8b"), "qwen3_8b")
    assert (sae.prepend_bos, fields_of(registry_config(entry))["prepend_bos"], fields_of(registry_config(entry))["k"]) == (False, True, 50)
    _sae, entry = entry_of(params_of("mistral_7b"), "mistral_7b")
    from sae_lens.loading.pretrained_saes_directory import get_config_overrides

    assert get_config_overrides(entry.release, entry.id)["normalize_activations"] == "constant_norm_rescale"


def test_doctor_names_what_the_hub_would_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapscope.doctor.hub_reachable", lambda: False)
    file = tmp_path / "params.yaml"
    file.write_text(apply_preset((ROOT / "params.yaml").read_text(), PRESETS["gemma2_2b"], {}))
    missing = "\n".join(examine(file, tmp_path / "data" / "raw").missing)
    assert "sources.gemma2_2b: google/gemma-2-2b-it is on the model hub, which is not reachable" in missing
    assert "observers.gemma2_2b.sae: gemma-scope-2b-pt-res-canonical is on the model hub, which is not reachable" in missing
    (tmp_path / "data" / "sae" / "gemma2_2b").mkdir(parents=True)
    assert "observers.gemma2_2b.sae" not in "\n".join(examine(file, tmp_path / "data" / "raw").missing)


ROWS: dict[str, tuple[dict[str, Any], str, tuple[str, ...], int | str]] = {
    "agieval_en": (
        {"query": "Q: A passage.Q: Which? Answer Choices: (A)one (B)two\nA: Among A through B, the answer is", "choices": ["(A)one", "(B)two"], "gold": [1]},
        "A passage.Q: Which?", ("(A)one", "(B)two"), 1,
    ),
    "gsm8k": ({"question": "How many?", "answer": "2+2=<<2+2=4>>4\n#### 4"}, "How many?", (), "4"),
    "math": ({"problem": "Find $x$.", "solution": "So \\boxed{3}", "answer": "3", "subject": "Algebra"}, "Find $x$.", (), "3"),
    "natural_questions": ({"question": "who sang it", "answer": ["Ann Lee"]}, "who sang it", (), "Ann Lee"),
    "socialiqa": (
        {"context": "Kim left.", "question": "Why?", "answerA": "a", "answerB": "b", "answerC": "c", "label": "3"}, "Kim left.\nWhy?", ("a", "b", "c"), 2,
    ),
    "winogrande": ({"sentence": "It was _ .", "option1": "x", "option2": "y", "answer": "2"}, "It was _ .", ("x", "y"), 1),
    "bbq": (
        {"context": "Two met.", "question": "Who?", "ans0": "A", "ans1": "B", "ans2": "Unknown", "answer_label": 2, "context_condition": "ambig"},
        "Two met.\nWho?", ("A", "B", "Unknown"), 2,
    ),
    "mmlu": ({"question": "Which?", "choices": ["w", "x", "y", "z"], "answer": 3, "subject": "anatomy"}, "Which?", ("w", "x", "y", "z"), 3),
    "gpqa": (
        {"Question": "Which?", "Correct Answer": "c", "Incorrect Answer 1": "d", "Incorrect Answer 2": "e", "Incorrect Answer 3": "f"},
        "Which?", ("c", "d", "e", "f"), 0,
    ),
}  # fmt: skip


def test_the_suite_has_nine_benchmarks_and_is_used_with_a_model() -> None:
    params = params_of("paper_suite", "gemma2_2b")
    assert set(params.benchmarks) == set(ROWS)
    assert params_of("gemma2_2b", "paper_suite") == params
    for slug, benchmark in params.benchmarks.items():
        for name in (benchmark.source, *benchmark.more_sources):
            source = params.sources[name]
            assert isinstance(source, HubSource), slug
            assert source.repo_type == "dataset"
            assert len(source.revision) == 40 or (
                source.revision == "main" and name in ("agieval_aqua_rat", "agieval_gaokao_english", "socialiqa")
            )


@pytest.mark.parametrize("slug", ROWS)
def test_rows_of_the_suite_are_read(slug: str, tmp_path: Path) -> None:
    row, text, choices, gold = ROWS[slug]
    benchmark = params_of("paper_suite").benchmarks[slug]
    sources = [tmp_path / source for source in (benchmark.source, *benchmark.more_sources)]
    for source in sources:
        source.mkdir()
        (source / "test.jsonl").write_text(json.dumps(row) + "\n")
    (item,) = read_benchmark(slug, benchmark, *sources).items
    assert (item.text, item.choices) == (text, choices)
    assert (item.answer if choices else item.target) == gold


def test_questions_with_several_answers_are_counted(tmp_path: Path) -> None:
    (tmp_path / "v.jsonl").write_text('{"question": "q", "answer": ["a", "b"]}\n{"question": "r", "answer": ["a"]}\n')
    found = read_benchmark("nq", params_of("paper_suite").benchmarks["natural_questions"], tmp_path)
    assert (len(found.items), found.dropped) == (1, {"several_golds": 1})
