"""Plain files: strict on the way in, deterministic and whole on the way out.

What must hold:
- a byte order mark and CRLF are read as if they were not there; NUL, another encoding, an empty file and a cut line are
  refused on one line that names the file and the line; a gzipped file reads as its content, a cut one is refused;
- U+2028 inside a JSON string does not end the line; a line that is no object is refused;
- a directory or a file appears whole or not at all, and what a killed run left is cleared;
- hashes of trees depend on names and contents only; rounding is exact.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from gapscope.errors import InputError
from gapscope.files import (
    atomic_directory,
    dump_json,
    read_csr,
    read_json,
    read_jsonl,
    read_text,
    rounded,
    sha256_tree,
    stable_hash,
    write_bytes,
    write_csr,
    write_json,
    write_jsonl,
)


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read_jsonl(path))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message


def file_of(tmp_path: Path, data: bytes, name: str = "rows.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_bom_and_crlf_are_read_through(tmp_path: Path) -> None:
    path = file_of(tmp_path, b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": "\\r\\n"}\r\n')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (3, {"a": "\r\n"})]


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b'{"a": 1}\n{"a": "\x00"}\n', 2, "NUL"),
        (b'{"a": 1}\n{"a": "\xe9"}\n', 2, "not UTF-8"),
        ('{"a": "é"}'.encode("utf-16"), 1, "UTF-16"),
        (b'{"a": 1}\n{"a": 2', 2, "cut short"),
        (b'{"a": 1}\n[1, 2]\n', 2, "must be a JSON object"),
        (b'{"a": 1}\n{"a" 1}\n', 2, "not valid JSON"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, data: bytes, line: int, words: str) -> None:
    message = refusal(file_of(tmp_path, data))
    assert f":{line}: " in message
    assert words in message


def test_empty_absent_and_directory_are_refused(tmp_path: Path) -> None:
    assert "empty" in refusal(file_of(tmp_path, b""))
    assert "no such file" in refusal(tmp_path / "absent.jsonl")
    assert "is a directory" in refusal(tmp_path)


def test_line_separator_inside_a_string_does_not_end_the_line(tmp_path: Path) -> None:
    text = "one\u2028two\x85three"
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [{"text": text}])
    assert list(read_jsonl(path)) == [(1, {"text": text})]


def test_gzip_reads_as_its_content_and_a_cut_one_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"a": "\xc3\xa9"}\r\n' * 50)
    assert len(list(read_jsonl(file_of(tmp_path, packed, "rows.jsonl.gz")))) == 50
    assert "cut short" in refusal(file_of(tmp_path, packed[:-9], "cut.jsonl.gz"))
    assert "not a readable gzip" in refusal(file_of(tmp_path, b'{"a": 1}\n', "plain.jsonl.gz"))


def test_json_fault_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.json:2: not valid JSON"):
        read_json(file_of(tmp_path, b'{\n"a": }', "x.json"))


def test_json_is_sorted_utf8_lf_and_without_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"b": np.float64(1 / 3), "a": "日本語"})
    assert (tmp_path / "x.json").read_bytes() == '{\n  "a": "日本語",\n  "b": 0.3333333\n}\n'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json({"a": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "y.json", {"a": [float("inf")]})
    assert not (tmp_path / "y.json").exists()


def test_rounding_keeps_significant_digits() -> None:
    assert rounded({"a": [123456.789, 1.00000004, 0.0, -2.5e-300]}) == {"a": [123456.8, 1.0, 0.0, -2.5e-300]}
    assert rounded(np.int64(3)) == 3


def test_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "new").write_text("old")
    with pytest.raises(RuntimeError), atomic_directory(target) as directory:
        (directory / "half").write_text("x")
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "new"]
    with atomic_directory(target) as directory:
        (directory / "new").write_text("x")
        assert (target / "new").read_text() == "old"
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "new"]


def test_what_a_killed_run_left_is_cleared_and_a_running_one_is_not(tmp_path: Path) -> None:
    child = "import os, sys\nfrom pathlib import Path\nfrom gapscope.files import atomic_directory\n"
    child += "with atomic_directory(Path(sys.argv[1])) as d:\n    (d / 'half').write_text('x')\n    os._exit(9)\n"
    target = tmp_path / "out"
    assert subprocess.run([sys.executable, "-c", child, str(target)], check=False).returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    running = tmp_path / f".out.{os.getppid()}.x1"
    running.mkdir()
    with atomic_directory(target) as directory:
        (directory / "whole").write_text("x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["out", running.name])


def test_interrupted_write_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_bytes(path, b"old")
    with pytest.raises(TypeError):
        write_bytes(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_tree_hash_depends_on_names_and_contents_only(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
    for name, order in (("one", "ab"), ("two", "ba")):
        for letter in order:
            (tmp_path / name / "sub" / letter).write_text(letter)
    assert sha256_tree(tmp_path / "one") == sha256_tree(tmp_path / "two")
    (tmp_path / "two" / "sub" / "a").rename(tmp_path / "two" / "sub" / "c")
    assert sha256_tree(tmp_path / "one") != sha256_tree(tmp_path / "two")
    # The sha256 of a single file is that of its bytes: what any other tool prints.
    assert sha256_tree(tmp_path / "one" / "sub" / "a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


def test_stable_hash_is_the_same_in_every_process() -> None:
    assert stable_hash(20, "mmlu-1") == 1398441081287485534
    assert stable_hash("a", "b") != stable_hash("ab")


def test_sparse_matrix_round_trip_and_bytes(tmp_path: Path) -> None:
    dense = np.array([[0, 1.5, 0], [2, 0, 0]], dtype=np.float32)
    unsorted = sp.csr_matrix((np.array([1.5, 2.0], dtype=np.float32), ([0, 1], [1, 0])), shape=(2, 3))
    for name, matrix in (("a.npz", sp.csr_matrix(dense)), ("b.npz", unsorted)):
        write_csr(tmp_path / name, matrix)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    np.testing.assert_array_equal(read_csr(tmp_path / "a.npz").toarray(), dense)


def test_pickled_or_damaged_matrix_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "objects.npy").rename(tmp_path / "objects.npz")
    (tmp_path / "junk.npz").write_bytes(b"PK\x03\x04junk")
    for name in ("objects.npz", "junk.npz"):
        with pytest.raises(InputError, match="not a readable sparse matrix"):
            read_csr(tmp_path / name)


def test_read_text_keeps_what_is_text(tmp_path: Path) -> None:
    text = "<|im_start|>system\nمرحبا 日本語 </s>\n"
    assert read_text(file_of(tmp_path, text.encode(), "x.txt")) == text


@pytest.mark.parametrize("name", [".", "..", "file", "link"])
def test_directory_that_may_not_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "file").write_text("kept")
    (here / "link").symlink_to(tmp_path)
    monkeypatch.chdir(here)
    with pytest.raises(InputError, match="output"), atomic_directory(Path(name)):
        pass
    assert (here / "file").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "here", "link"]


def test_directory_with_foreign_files_is_kept(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    (output / "items.jsonl").write_text("an input")
    with pytest.raises(InputError, match=r"items\.jsonl"), atomic_directory(output) as directory:
        (directory / "scores").write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["output", "items.jsonl"]


@pytest.mark.parametrize("line", ["[" * 100_000, '{"id": ' + "9" * 5000 + "}"])
def test_json_beyond_the_reader_is_an_input_error(tmp_path: Path, line: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("{}\n" + line + "\n")
    with pytest.raises(InputError, match=r"a\.jsonl:2"):
        list(read_jsonl(file))


def test_sparse_matrix_with_a_column_out_of_range(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, indices=[9], indptr=[0, 1], format=b"csr", shape=(1, 3), data=[1.0])
    with pytest.raises(InputError, match="not a readable sparse matrix"):
        read_csr(file)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_has_no_form_for_are_refused(tmp_path: Path, constant: str) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text('{"a": 1}\n{"meta": {"x": ' + constant + "}}\n")
    with pytest.raises(InputError, match=rf"items\.jsonl:2: JSON that cannot be read: {constant} is no JSON value"):
        list(read_jsonl(file))


def test_a_key_twice_in_one_object_is_refused_by_name_and_line(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{\n "a": {"x": 1, "y": "\\"x\\": {"},\n "b": [{"x": 1}, {"x": 2}],\n "c": {\n  "x": 1,\n  "\\u0078" : 2}\n}')
    with pytest.raises(InputError, match=r"a\.json:6: x: the key occurs twice in one object"):
        read_json(file)
    file.write_text('{"a": {"x": 1, "y": 2}, "b": [{"x": 1}, {"x": 2}], "x": "a"}')
    assert read_json(file)["b"] == [{"x": 1}, {"x": 2}]
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"id": "a"}\n{"id": "b", "meta": {"k": 1, "k": 1}}\n')
    with pytest.raises(InputError, match=r"a\.jsonl:2: k: the key occurs twice in one object"):
        list(read_jsonl(lines))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"id": ' + "9" * 5000 + "}"])
def test_json_file_beyond_the_reader_is_an_input_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"a\.json: JSON that cannot be read"):
        read_json(file_of(tmp_path, text.encode(), "a.json"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf16_is_called_by_its_name(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    message = refusal(file_of(tmp_path, (mark + '{"id": "a"}\n').encode(encoding), "a.jsonl"))
    assert "a.jsonl:1: is UTF-16" in message
    assert "convert the file to UTF-8" in message


def test_a_write_that_fails_names_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match=r"file/m\.json'|file'"):
        write_bytes(tmp_path / "file" / "m.json", b"x")
    # A limit on the size of files stands for a full disk: the write itself fails, not the opening.
    child = "import resource, signal, sys\nfrom pathlib import Path\nfrom gapscope.files import write_bytes\n"
    child += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    child += "try:\n    write_bytes(Path(sys.argv[1]), b'x' * 5000)\nexcept OSError as error:\n    print(error.filename)\n"
    run = subprocess.run([sys.executable, "-c", child, str(tmp_path / "m.bin")], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(tmp_path / "m.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_inside_a_directory_names_what_it_was_to_become(tmp_path: Path) -> None:
    target = tmp_path / "out"
    failures = {
        "no such file": lambda place: read_text(place / "gone.json"),
        "No such file or directory": lambda place: (place / "gone" / "deep").write_text("x"),
        "cannot open": lambda place: (_ for _ in ()).throw(OSError(f"cannot open {place / 'gone'}")).__next__(),
    }
    for said, fail in failures.items():
        with pytest.raises((InputError, OSError), match=said) as caught, atomic_directory(target) as place:
            fail(place)
        assert str(target / "gone") in str(caught.value)
        assert ".out." not in str(caught.value)
    with pytest.raises(FileNotFoundError) as missing, atomic_directory(target) as place:
        (place / "gone").read_bytes()
    assert missing.value.filename == str(target / "gone")


def test_a_directory_that_cannot_be_made_is_named_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**options: str) -> str:
        raise OSError(28, "No space left on device", f"{options['dir']}/{options['prefix']}abc")

    monkeypatch.setattr("gapscope.files.tempfile.mkdtemp", full)
    with pytest.raises(OSError, match="No space left on device") as caught, atomic_directory(tmp_path / "out"):
        pass
    assert caught.value.filename == str(tmp_path / "out")
