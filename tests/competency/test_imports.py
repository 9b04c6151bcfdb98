from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "sklearn", "transformers", "sae_lens", "scipy.stats", "matplotlib", "safetensors")


@pytest.mark.parametrize("name", ["coverage", "performance", "cluster"])
def test_commands_start_without_heavy_libraries(name):
    code = f"import sys, stages.{name}, gapscope.competency.{name}; print([m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
