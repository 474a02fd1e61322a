"""Tables of reported beside reproduced: all that the paper reports, and under its own tables."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from resablate import cells, labels
from resablate.cells import Content, Kind, Section, Table
from resablate.reported import Entry, Registry
from resablate.reproduced import (
    KINDS,
    LOSS_MARGIN,
    NORM_MARGIN,
    PERCENT_MARGIN,
    PLAIN,
    RATIO_MARGIN,
    SIGMAS,
    TEXT,
    Here,
    find,
)
from resablate.stats import Estimate

COLUMNS = {
    "reported": "Reported",
    "here": "Here",
    "difference": "Difference",
    "n": "n here",
    "scale": "Scale here",
    "verdict": "Verdict",
    "claim": "Claim",
}
ALWAYS = ("reported", "here", "verdict")
RULE = (
    "Verdict. At the paper's own scale: *reproduced* where the difference is at most the larger of"
    f" {SIGMAS} standard errors of the difference of the two means (a side without a spread takes"
    f" the other's) and a margin ({LOSS_MARGIN:.0%} of a loss, {RATIO_MARGIN:.0%} of a ratio,"
    f" {PERCENT_MARGIN:.0f} points of a percentage, {NORM_MARGIN:.0%} of a norm), and the entry's"
    " claim, if it has one, holds; else *differs*. A run at another scale reproduces no number,"
    " whatever the difference: *other scale*, and the entry's claim is checked there instead."
    " Settings and counts: *as reported*"
    " or *set differently*. *Not run here* is never filled with a guess."
)
SHORT = (
    "The rule of the verdicts, and all that the paper reports: `metrics/tables/reported.md`. A run"
    " at another scale reproduces no number; the claim is what is checked there."
)
SEEDS = (
    "The paper's seeds draw other numbers here, so ours are all finished seeds of the arm. Its"
    " standard deviations are population ones (X10); for the verdict they are turned into sample"
    " ones, which ours are."
)


def _contents(entry: Entry, here: Here) -> dict[str, Content]:
    found = find(entry, here)
    of, number = found.estimate, entry.value if entry.setting else entry.center
    numeric = isinstance(number, int | float) and not isinstance(number, bool)
    kind = KINDS.get(entry.unit, PLAIN if numeric else TEXT) if found.kind is TEXT else found.kind
    reported = Estimate(
        entry.count or 0, number if numeric else None, entry.std, entry.lo, entry.hi
    )
    difference = of.mean - number if numeric and of.mean is not None else None
    signed = Kind(kind.unit, "+z" + kind.spec.removeprefix("+z"), kind.suffix)
    text = None if difference is None or kind is not PLAIN else f"{difference:+g}"
    style = "spread" if of.std is not None and kind is cells.LOSS else "value"
    return {
        "reported": Content(Kind(kind.unit, ""), reported, text=entry.printed),
        "here": Content(kind, of, style, found.text),
        "difference": Content(signed, Estimate(of.n, difference, None, None, None), text=text),
        "n": cells.value(cells.RUNS, of.n or None, of.n),
        "scale": cells.value(TEXT, None, 0, found.scale),
        "verdict": cells.value(TEXT, None, 0, found.verdict),
        "claim": cells.value(TEXT, None, 0, found.claim),
    }


def _section(title: str, rows: Mapping[str, tuple[str, dict[str, Content]]]) -> Section:
    """Return a section with the columns in which it has something to say."""
    said = {
        column
        for _, contents in rows.values()
        for column, content in contents.items()
        if column in ALWAYS or content.printed() != cells.NONE
    }
    return Section(title, {key: head for key, head in COLUMNS.items() if key in said}, rows)


def label(entry: Entry) -> str:
    """Return what a row is called: configuration and quantity."""
    config = f"{labels.config(entry.config)}, " if entry.config else ""
    note = f" ({entry.note})" if entry.note else ""
    return f"{config}{entry.setting or entry.label}{note}"


def below(made: Table, registry: Registry, here: Here) -> Table:
    """Return a table of the paper's with what the paper reports in it, and the verdicts."""
    if not made.sections:
        return made
    sections: dict[str, dict[str, tuple[str, dict[str, Content]]]] = {}
    for entry in registry.entries.values():
        if entry.id.startswith(f"{made.prefix}."):
            rows = sections.setdefault(f"Paper: {entry.title}", {})
            row = f"paper.{entry.id.removeprefix(f'{made.prefix}.')}"
            rows[row] = (label(entry), _contents(entry, here))
    added = [_section(title, rows) for title, rows in sections.items()]
    return replace(made, sections=[*made.sections, *added], notes=[*made.notes, SHORT])


def table(registry: Registry, here: Here) -> Table:
    """Return every entry of the registry beside what was found here."""
    by_title: dict[str, dict[str, tuple[str, dict[str, Content]]]] = {}
    verdicts: Counter[str] = Counter()
    for entry in registry.entries.values():
        contents = _contents(entry, here)
        by_title.setdefault(entry.title, {})[entry.id] = (f"`{entry.id}` {label(entry)}", contents)
        verdicts[str(contents["verdict"].text).partition(":")[0]] += 1
    sections = [_section(title, rows) for title, rows in by_title.items()]
    counts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(verdicts.items()))
    notes = [f"{len(registry.entries)} entries: {counts}.", RULE, SEEDS]
    notes.append(cells.ROUNDING.format(name="reported"))
    return Table("reported", "What the paper reports, beside what runs here give", sections, notes)
