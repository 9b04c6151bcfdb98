"""What this machine offers, and what a set of parameters needs that it lacks."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.params import HubSource, Params, PathSource, load_params
from gapscope.params_observers import RegistrySae
from gapscope.provenance import library_versions

DISK_NEEDED_GIB = 4.0
MEMORY_NEEDED_GIB = 4.0


@dataclass
class Findings:
    """What the machine has, by name, and one line for each thing that is missing."""

    machine: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-like view."""
        return {"machine": self.machine, "missing": self.missing}


def memory_gib() -> float:
    """Physical memory, less where a container is limited to less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
    return float(total) / 2**30


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def dtype_speeds(threads: int) -> dict[str, float]:
    """Billions of multiply-adds a second of a matrix product in float32 and bfloat16 on the CPU."""
    import torch

    torch.set_num_threads(threads)
    speeds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = torch.ones(512, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype)
        left @ right
        started, rounds = time.perf_counter(), 0
        while time.perf_counter() - started < 0.3:
            left @ right
            rounds += 1
        speeds[str(dtype).removeprefix("torch.")] = rounds * left.numel() * 1024 / (time.perf_counter() - started) / 1e9
    return speeds


def hub_reachable(timeout: float = 2.0) -> bool:
    """Whether the model hub answers; always false with HF_HUB_OFFLINE set."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return False
    try:
        from huggingface_hub.constants import ENDPOINT

        host = ENDPOINT.split("://")[-1].split("/")[0]
        name, _, port = host.partition(":")
        with socket.create_connection((name, int(port or 443)), timeout=timeout):
            return True
    except OSError:
        return False


def examine(params_file: Path, raw: Path, *, try_hub: bool = True) -> Findings:
    """Look at the machine and, where the parameters can be read, at what they need.

    A faulty or absent params file is one of the missing things, not an error. ``raw`` is where fetched sources lie.
    """
    findings = Findings()
    try:
        params: Params | None = load_params(params_file)
    except InputError as error:
        params = None
        findings.missing.append(str(error))
    threads = params.threads if params else cores()
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    online = try_hub and hub_reachable()
    findings.machine = {
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "cores": f"{cores()} (params use {threads} threads)",
        "memory": f"{memory_gib():.1f} GiB",
        "free disk": f"{free:.1f} GiB",
        "device": _device(),
        "CPU speed": ", ".join(f"{name} {speed:.0f} GMAC/s" for name, speed in dtype_speeds(threads).items()),
        "model hub": "reachable" if online else "not tried" if not try_hub else "not reachable (the default does not need it)",
        "git, dvc": ", ".join(f"{tool}: {'found' if shutil.which(tool) else 'not on PATH'}" for tool in ("git", "dvc")),
        "versions": ", ".join(f"{name} {version}" for name, version in library_versions().items()),
    }
    findings.missing += _shortages(threads, free)
    if params is not None:
        findings.missing += _source_faults(params, raw, online or not try_hub)
    return findings


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {torch.cuda.mem_get_info()[1] / 2**30:.0f} GiB"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _shortages(threads: int, free: float) -> list[str]:
    faults = []
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        faults.append(f"Python 3.11 to 3.13 (this is {platform.python_version()})")
    if threads > cores():
        faults.append(f"threads: {threads} but {cores()} cores: slower, set threads to {cores()}")
    if memory_gib() < MEMORY_NEEDED_GIB:
        faults.append(f"memory: {memory_gib():.1f} GiB, the default needs {MEMORY_NEEDED_GIB:.0f}")
    if free < DISK_NEEDED_GIB:
        faults.append(f"disk: {free:.1f} GiB free, the default needs {DISK_NEEDED_GIB:.0f}")
    return faults


def _source_faults(params: Params, raw: Path, hub_assumed: bool) -> list[str]:
    faults = []
    for slug, source in params.sources.items():
        if (raw / slug).exists():
            continue
        if isinstance(source, PathSource) and not Path(source.path).exists():
            faults.append(f"sources.{slug}: no such path {source.path}")
        if isinstance(source, HubSource) and not hub_assumed:
            faults.append(f"sources.{slug}: {source.repo} is on the model hub, which is not reachable")
    for slug, observer in params.observers.items():
        if isinstance(observer.sae, RegistrySae) and not hub_assumed and not (raw.parent / "sae" / slug).exists():
            faults.append(f"observers.{slug}.sae: {observer.sae.release} is on the model hub, which is not reachable")
    return faults
