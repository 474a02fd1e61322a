"""A pipeline's page: one HTML file that needs no other; equal contents give equal bytes."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from resablate.report import PIPELINES, path
from resablate.report.curves import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart
from resablate.report.views import Figure, Study, TableView

HERE = Path(__file__).parent
NAMES = {"main": "The paper's experiment", "studies": "Open questions", "paper": "Paper scales"}
EMPTY: Mapping[str, Any] = {"cells": {}}


class Page(NamedTuple):
    """Everything that a page shows."""

    pipeline: str
    title: str
    finding: Sequence[str]
    charts: Sequence[Chart] = ()
    tables: Sequence[TableView] = ()
    figures: Sequence[Figure] = ()
    studies: Sequence[Study] = ()
    runs: Sequence[Mapping[str, str]] = ()
    environment: Sequence[tuple[str, str]] = ()
    lineage: Mapping[str, Any] = EMPTY


def page(content: Page) -> str:
    """Return the page as HTML. Everything in it but this package's own template is escaped."""
    style, script = (_asset(name) for name in ("style.css", "script.js"))
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("template.html").render(
        content._asdict(),
        style=Markup(style),  # ours, and its hash is in the page's policy
        script=Markup(script),
        policy=_policy(style, script),
        data=_data(content.lineage),
        pages=_links(content.pipeline),
        geometry={
            "width": WIDTH,
            "height": HEIGHT,
            "left": LEFT,
            "right": RIGHT,
            "top": TOP,
            "bottom": BOTTOM,
        },
    )


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return a content security policy: this style, this script, pictures within, nothing else."""
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )


def _data(lineage: Mapping[str, Any]) -> Markup:
    """Return JSON that cannot end the element that holds it."""
    text = json.dumps(lineage, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _links(pipeline: str) -> list[tuple[str, str, bool, str]]:
    """Return (name, relative address, whether it is this page, pipeline file) of every page."""
    up = "../" * (len(path(pipeline).parts) - 2)
    return [
        (NAMES[name], up + path(name).relative_to("plots").as_posix(), name == pipeline, file)
        for name, file in PIPELINES.items()
    ]
