"""What a study leaves: its table, its runs, its figures, and its conclusion in two sentences."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from resablate import cells, plotting, results, studytables
from resablate.files import write_text
from resablate.results import Result
from resablate.studyruns import Rows, Source, StudyArm, StudyRuns

METRICS = Path("metrics/studies")
PLOTS = Path("plots/studies")


@dataclass(frozen=True)
class Finding:
    """A study's answer. `found` and `not_found` are a sentence each, made from the runs."""

    runs: StudyRuns
    title: str
    question: str
    found: str
    not_found: str
    table: cells.Table
    figures: Mapping[str, Callable[[], Figure]]  # file name without suffix -> what draws it
    arms: Sequence[StudyArm]  # the study's own, without those that it borrows

    @property
    def conclusion(self) -> str:
        return f"{self.found} {self.not_found}"


def derive(finding: Finding) -> dict[Path, str]:
    """Return what a study leaves, by path: its table, its cells, its runs, its conclusion."""
    name = finding.runs.name
    runs = [run for arm in finding.arms for run in arm.planned]
    figures = [str(PLOTS / f"{stem}.svg") for stem in finding.figures]
    document = {
        "study": name,
        "scale": finding.runs.scale,
        "title": finding.title,
        "question": finding.question,
        "conclusion": finding.conclusion,
        "table": str(METRICS / f"{name}.md"),
        "cells": str(METRICS / f"{name}.csv"),
        "runs": str(METRICS / f"{name}_runs.csv"),
        "figure": figures[0],
        "figures": figures,
        "counts": studytables.counts(finding.arms),
    }
    return {
        **cells.texts(METRICS, finding.table),
        METRICS / f"{name}_runs.csv": results.runs_text(runs),
        METRICS / f"{name}.json": json.dumps(document, indent=1, ensure_ascii=False) + "\n",
    }


def publish(finding: Finding) -> None:
    """Write what a study leaves, and its figures, under its name."""
    for path, text in derive(finding).items():
        write_text(path, text)
    with plotting.styled():
        for stem, draw in finding.figures.items():
            plotting.save(draw(), PLOTS / stem)


def entry_points(
    find: Callable[[Source], Finding],
) -> tuple[Callable[[Sequence[Result]], dict[Path, str]], Callable[[], None]]:
    """Return an analysis's `derive` and `main`, as every module of a stage has them.

    derive: every file but the figures, from the rows of the study's table of runs, then the root's.
    main: writes them, and the figures, from the runs' own files.
    """
    return lambda rows: derive(find(Rows(rows))), lambda: publish(find(Source()))
