"""Tables as LaTeX (booktabs), with the id of each cell in a comment beside it."""

import re
from pathlib import Path

from resablate.cells import Section, Table

ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "`": "",  # Markdown's marks for code
        "\n": " ",
        "±": r"$\pm$",
        "×": r"$\times$",
        "÷": r"$\div$",
        "−": "$-$",
        "—": "---",
        "\N{EN DASH}": "--",
        "≈": r"$\approx$",
        "\N{TILDE OPERATOR}": r"$\sim$",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
        "←": r"$\leftarrow$",
        "·": r"$\cdot$",
        "⁻": "$^{-}$",
        "⁴": "$^{4}$",
        "⁵": "$^{5}$",
    }
)
MINUS = re.compile(r"(?<![\w.])-(?=[\d.])")


def escape(text: str) -> str:
    """Return text that LaTeX prints as it stands."""
    return MINUS.sub("−", text).translate(ESCAPES)


def texts(folder: Path, table: Table) -> dict[Path, str]:
    """Return <folder>/<table>.tex: a tabular a section, the title and the notes as comments."""
    printed = {cell.id: cell.printed for cell in table.cells()}
    lines = [f"% {' '.join(table.heading.split())}", r"% needs \usepackage{booktabs}"]
    for section in table.sections:
        lines += ["", *_tabular(section, table.prefix, printed)]
    lines += ["", *(f"% {' '.join(note.split())}" for note in table.notes)]
    return {folder / f"{table.name}.tex": "\n".join(lines) + "\n"}


def _tabular(section: Section, prefix: str, printed: dict[str, str]) -> list[str]:
    """Return a tabular with a line a cell, so that each cell's id stands behind it."""
    columns = section.columns
    head = " & ".join(escape(text) for text in (section.head, *columns.values()))
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
    ]
    for row, (label, _) in section.rows.items():
        lines.append(escape(label))
        for column in columns:
            identity = f"{prefix}.{row}.{column}"
            lines.append(f"  & {escape(printed[identity])} % {' '.join(identity.split())}")
        lines.append(r"  \\")
    return [*lines, r"\bottomrule", r"\end{tabular}"]
