"""The Chromium in which the explorer is measured and tested: where it is, and how it keeps to itself."""

from __future__ import annotations

import shutil

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
"""Its path; None where there is none."""

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
"""Options with which it asks the network for nothing by itself."""
