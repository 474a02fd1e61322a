"""Open a pipeline's report page in the browser; print where it is.

examples:
  python -m resablate report            the root pipeline's
  python -m resablate report studies    another pipeline's
"""

import argparse
import webbrowser
from pathlib import Path

from resablate.errors import UserError

PIPELINES = {"main": "dvc.yaml", "studies": "studies/dvc.yaml", "paper": "paper/dvc.yaml"}


def path(pipeline: str) -> Path:
    """Return where a pipeline's page lies."""
    return Path("plots/report.html" if pipeline == "main" else f"plots/{pipeline}/report.html")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("pipeline", nargs="?", choices=tuple(PIPELINES), default="main")
    parser.add_argument("--no-browser", action="store_true", help="only print where the page is")


def main(arguments: argparse.Namespace) -> None:
    """Open the page; UserError where it has not been made yet."""
    page = path(arguments.pipeline)
    if not page.is_file():
        file = PIPELINES[arguments.pipeline]
        raise UserError(f"{page}: not there yet; make it with: dvc repro {file}")
    print(page.resolve())
    if not arguments.no_browser:
        webbrowser.open(page.resolve().as_uri())
