"""OpenWebText: where its parquet shards come from, and its documents, one after the other.

The Hugging Face hub holds the corpus, 8,013,769 documents in the order of the original archives,
as 80 parquet files of one column, `text`. The first holds 100,173 documents, so that it alone
supplies the paper's 100,000. A shard is pinned by revision, size and SHA-256 and comes from the
folder that RESABLATE_MIRROR names, from .downloads/, or from the hub. Instead of it, parquet files
of one's own can be the source: they are named by their SHA-256 wherever their numbers appear.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

from filelock import FileLock
from pydantic import Field, model_validator

from resablate import fetch, paths
from resablate.errors import UserError
from resablate.strict import Strict, read

if TYPE_CHECKING:
    import pyarrow

Count = Annotated[int, Field(ge=1)]

PARAMS = Path("paper/data.yaml")
KEY = "openwebtext"
HUB = "hub"
ROWS = 64  # read at once: flat memory even with documents of a megabyte
BUFFER_BYTES = 1 << 20  # of a column read at once, however long a row group is


class Shard(Strict):
    """One parquet file of the hub's repository."""

    file: str = Field(min_length=1, description="path in the repository")
    bytes: Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return PurePosixPath(self.file).name


class OpenWebText(Strict):
    """Which documents, and how they are split and measured."""

    source: str = Field(min_length=1, description="hub, or a parquet file, or a folder of them")
    repo: str = Field(min_length=1, description="of the hub's data sets")
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", description="a commit, not a branch")]
    shards: list[Shard] = Field(min_length=1, description="in the corpus's order, from its first")
    n_documents: Count = Field(description="the first so many, in order")
    val_fraction: Annotated[float, Field(gt=0, lt=1, description="of documents")]
    ngram_order: Annotated[int, Field(ge=1, le=2, description="longest n-gram of the ladder")]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [shard.name for shard in self.shards]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"shards: {name} must not be there twice")
        return self


class Data(Strict):
    """paper/data.yaml as a whole."""

    openwebtext: OpenWebText


class File(NamedTuple):
    """A parquet file at hand."""

    path: Path
    sha256: str
    n_documents: int


def load(path: Path = PARAMS) -> OpenWebText:
    """Read and check paper/data.yaml; UserError names the first key that is wrong."""
    return read(path, Data).openwebtext


# -- files ---------------------------------------------------------------------------------------


def files(settings: OpenWebText) -> list[File]:
    """Return the files that hold the first n_documents, each hashed; UserError if they are fewer.

    Of the hub's, those that are at hand already are not downloaded again.
    """
    found, total = [], 0
    for path, sha256 in _candidates(settings):
        found.append(File(path, sha256 or sha256_of(path), _rows(path)))
        total += found[-1].n_documents
        if total >= settings.n_documents:
            return found
    raise UserError(
        f"{PARAMS}: {KEY}.n_documents: {settings.n_documents:,} asked for, but"
        f" {', '.join(file.path.name for file in found)} hold {total:,}; add shards or files, or"
        " lower it"
    )


def corpus_name(settings: OpenWebText, used: list[File]) -> str:
    """Return what the corpus is, `OpenWebText` only if the files are the pinned ones."""
    first = f"first {settings.n_documents:,} documents"
    pinned = [shard.sha256 for shard in settings.shards]
    if [file.sha256 for file in used] == pinned[: len(used)]:
        return f"OpenWebText, {first}"
    names = ", ".join(f"{file.path.name} ({file.sha256[:12]})" for file in used)
    return f"Not the pinned OpenWebText: {first} of {names}"


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _candidates(settings: OpenWebText) -> Iterator[tuple[Path, str | None]]:
    """Yield the source's files in the corpus's order, with their SHA-256 where it is known."""
    if settings.source == HUB:
        for shard in settings.shards:
            yield shard_path(settings, shard), shard.sha256
        return
    source = paths.main_root() / settings.source
    if source.is_file():
        yield source, None
    elif source.is_dir() and (within := sorted(source.glob("*.parquet"))):
        yield from ((path, None) for path in within)
    else:
        raise UserError(
            f"{PARAMS}: {KEY}.source: {settings.source!r}: must be {HUB}, a parquet file or a"
            " folder that holds some"
        )


def shard_path(settings: OpenWebText, shard: Shard) -> Path:
    """Return the path of a verified shard, downloaded if need be; UserError says why it cannot."""
    path = fetch.downloads() / shard.name
    if mirror := os.environ.get(fetch.MIRROR_VARIABLE):
        given = Path(mirror) / shard.name
        if given.is_file():
            if difference := _difference(given, shard):
                raise UserError(f"{given}: refused: {difference}; remove it or replace it")
            return given
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        if path.is_file():
            if not _difference(path, shard):
                return path
            _set_aside(path)
        _download(settings, shard, path)
    return path


def _difference(path: Path, shard: Shard) -> str | None:
    """Return in what a file differs from its pin, or None."""
    if (size := path.stat().st_size) != shard.bytes:
        return f"{size:,} bytes, not {shard.bytes:,}"
    if (actual := sha256_of(path)) != shard.sha256:
        return f"damaged or another version: SHA-256 {actual}, not {shard.sha256}"
    return None


def _set_aside(path: Path) -> Path:
    """Rename a file that is not what its name says, so that nothing uses it."""
    return path.rename(path.with_name(f"{path.name}.refused"))


def _download(settings: OpenWebText, shard: Shard, path: Path) -> None:
    """Download a shard from the hub, going on from what an earlier attempt has left.

    huggingface_hub's own hf_hub_download begins anew after a kill; its http_get does not have to,
    and loses at most the 10 MB that it writes at a time.
    """
    import httpx2  # noqa: PLC0415  these three take 0.2 s, and only a download needs them
    from huggingface_hub import hf_hub_url  # noqa: PLC0415
    from huggingface_hub.file_download import http_get  # noqa: PLC0415
    from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415

    url = hf_hub_url(settings.repo, shard.file, repo_type="dataset", revision=settings.revision)
    # Named by the pin, so that no other version's beginning is continued.
    partial = path.with_name(f"{path.name}.{shard.sha256[:12]}.partial")
    try:
        with partial.open("ab") as file:
            if (done := file.tell()) < shard.bytes:
                sizes = f"{done / 1e6:.1f} of {shard.bytes / 1e6:.1f} MB are here"
                print(f"downloading {path.name} from {url}: {sizes}", file=sys.stderr)
                http_get(
                    url,
                    file,
                    resume_size=done,
                    headers=build_hf_headers(),
                    expected_size=shard.bytes,
                    displayed_filename=path.name,
                )
            file.flush()
            os.fsync(file.fileno())
    except (OSError, httpx2.HTTPError) as error:
        raise UserError(_failed(url, partial, shard, error)) from None
    if difference := _difference(partial, shard):
        refused = _set_aside(partial)
        raise UserError(
            f"{url}: refused: {difference}; what came is kept as {refused} and not used; run the"
            f" same command again, or correct {KEY}.shards in {PARAMS}"
        )
    partial.replace(path)


def _failed(url: str, partial: Path, shard: Shard, error: Exception) -> str:
    """Return one line on a download that has failed, with what can be done."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    reason = f"HTTP {status}" if status else str(error).split("\n")[0] or type(error).__name__
    if status == 416:  # nothing after what is there already: the hub's file is shorter than its pin
        _set_aside(partial)
    kept = partial.stat().st_size if partial.exists() else 0
    return (
        f"{url}: {reason}; {kept:,} of {shard.bytes:,} bytes are here, and the same command goes on"
        " from them. Without the hub: HF_ENDPOINT names another host of it (and HF_HUB_OFFLINE must"
        f" not be set), {fetch.MIRROR_VARIABLE} a folder with {shard.name}, {KEY}.source in"
        f" {PARAMS} a parquet file or a folder of them"
    )


# -- documents -----------------------------------------------------------------------------------


def documents(used: list[File], n_documents: int) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the first n_documents, in order; the name is file and row.

    UserError if a file is damaged, a document is null or not UTF-8, or documents are missing.
    """
    n = 0
    for file in used:
        for row, text in enumerate(_texts(file.path)):
            if n == n_documents:
                return
            yield f"{file.path.stem}/{row}", text
            n += 1
    if n < n_documents:
        raise UserError(f"{used[-1].path}: {n:,} documents found, not {n_documents:,}")


def _texts(path: Path) -> Iterator[str]:
    """Yield the texts of a parquet file in order."""
    import pyarrow  # noqa: PLC0415  0.1 s, and only this stage needs it

    row = 0
    try:
        for batch in _open(path).iter_batches(ROWS, columns=["text"], use_threads=False):
            for value in batch.column(0):
                yield _text(value, path, row)
                row += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(_unreadable(path, error)) from None


def _text(value: "pyarrow.Scalar", path: Path, row: int) -> str:
    try:
        text = value.as_py()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: document {row}: not UTF-8 at byte {error.start}") from None
    if text is None:
        raise UserError(f"{path}: document {row}: null, not a text")
    return text


def _rows(path: Path) -> int:
    """Return how many documents a parquet file has, by its own word."""
    import pyarrow  # noqa: PLC0415

    try:
        return _open(path).metadata.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(_unreadable(path, error)) from None


def _open(path: Path) -> "pyarrow.parquet.ParquetFile":
    """Open a parquet file that has a column of texts."""
    import pyarrow.parquet  # noqa: PLC0415

    # Not the default, which reads a whole row group's column into memory at once.
    file = pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False)
    columns = {field.name: field.type for field in file.schema_arrow}
    if "text" not in columns:
        raise UserError(f"{path}: has no column `text`; it has {', '.join(columns)}")
    if not pyarrow.types.is_string(columns["text"]) and not pyarrow.types.is_large_string(
        columns["text"]
    ):
        raise UserError(f"{path}: column `text`: must hold strings, not {columns['text']}")
    return file


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path}: not a readable parquet file: {str(error).splitlines()[0]}"
