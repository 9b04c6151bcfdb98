"""The HTML around the data: one file, with a content-security policy that lets nothing in but its own script and style."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from gapscope.files import dump_json, read_text
from gapscope.report.explorer.blocks import Block

BUNDLE = Path(__file__).parent / "bundle"
"""The explorer's script and style, built from source/ by `make bundle`, with the licences of what is in them."""


def _source(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def json_text(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or begin a comment."""
    return dump_json(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


META = '<script type="application/json" id="meta">{'


def with_commit(page: str, commit: str | None) -> str:
    """The page with the commit it was opened at; the page of the report stage holds none, so that it is byte-stable."""
    return page if commit is None else page.replace(META, f'{META}"commit":{json_text(commit)},', 1)


def render_run(meta: dict[str, Any], blocks: Mapping[str, Block]) -> str:
    """The page of a run, under the names of its subjects."""
    return render("gapscope: " + ", ".join(entry["name"] for entry in meta["subjects"].values()), meta, blocks)


def render(title: str, meta: dict[str, Any], blocks: Mapping[str, Block]) -> str:
    """The page as text.

    Everything that comes from a benchmark, a model or a label is inside ``meta`` and ``blocks``: data, which no browser runs.
    The table library adds one style element of its own; its nonce is the digest of the data, which no data can hold.
    """
    script, style = read_text(BUNDLE / "explorer.js"), read_text(BUNDLE / "explorer.css")
    data = [f'<script type="application/json" id="meta">{json_text(meta)}</script>']
    for name, block in blocks.items():
        data.append(f'<script type="application/octet-stream" id="block-{escape(name)}">{block.encode()}</script>')
    nonce = hashlib.sha256("".join(data).encode()).hexdigest()
    policy = (
        f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)} 'nonce-{nonce}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
        "</head>",
        f'<body data-nonce="{nonce}">',
        '<div id="app"><p class="waiting">Reading the run…</p></div>',
        "<noscript><p>This page needs JavaScript, which it runs from this file alone.</p></noscript>",
        *data,
        f"<script>{script}</script>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(parts)
