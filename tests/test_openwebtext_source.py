"""Where OpenWebText comes from: parameters, downloads that fail and go on, pins."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants, file_download

from hub import serve
from resablate import fetch, openwebtext
from resablate.errors import UserError
from resablate.openwebtext import HUB, OpenWebText, Shard

ROOT = Path(__file__).parent.parent
CONTENT = bytes(range(256)) * 50_000
WRITTEN = 10_485_760  # huggingface_hub writes so many bytes at a time
FILE = "plain_text/shard.parquet"
REVISION = "0" * 40
ADDRESS = f"/datasets/who/what/resolve/{REVISION}/{FILE}"
SHARD = Shard(file=FILE, bytes=len(CONTENT), sha256=fetch.sha256_of(CONTENT))


def settings(*shards: Shard, source: str = HUB) -> OpenWebText:
    return OpenWebText(
        source=source, repo="who/what", revision=REVISION, shards=list(shards) or [SHARD],
        n_documents=1, val_fraction=0.5, ngram_order=1,
    )  # fmt: skip


def get(shard: Shard = SHARD) -> Path:
    return openwebtext.shard_path(settings(), shard)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Start each test in an empty folder, with no mirror and no proxy."""
    monkeypatch.chdir(tmp_path)
    for variable in (fetch.MIRROR_VARIABLE, *os.environ):
        if variable == fetch.MIRROR_VARIABLE or variable.lower().endswith("_proxy"):
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda _: None))
    yield
    huggingface_hub.close_session()


@pytest.fixture
def hub(monkeypatch):
    with serve(ADDRESS, CONTENT) as server:
        ask(server.address, monkeypatch)
        yield server


def ask(address: str, monkeypatch) -> None:
    """Let huggingface_hub ask this address, as HF_ENDPOINT does before it is imported."""
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


# -- parameters ----------------------------------------------------------------------------------


def test_the_committed_parameters_pin_the_first_shard():
    pinned = openwebtext.load(ROOT / openwebtext.PARAMS)
    assert (pinned.source, pinned.repo) == (HUB, "Skylion007/openwebtext")
    assert pinned.n_documents == 100_000
    assert [shard.name for shard in pinned.shards] == ["train-00000-of-00080.parquet"]
    assert pinned.shards[0].bytes == 302_848_326


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("n_documents: 100000", "documents: 1", "openwebtext.n_documents: must be set"),
        ("n_documents: 100000", "n_documents: 1e5", "n_documents: 100000.0: Input should be a va"),
        ("val_fraction: 0.01", "val_fraction: 1.0", "val_fraction: 1.0: Input should be less than"),
        ("ngram_order: 2", "ngram_order: 3", "openwebtext.ngram_order: 3: Input should be"),
        ("sha256: caed", "sha256: xaed", "openwebtext.shards.0.sha256: 'xaed9f4"),
        ("revision: 79d9", "revision: main", "openwebtext.revision: 'main3d7862"),
        (
            "  n_doc",
            "  seed: 1\n  n_doc",
            "openwebtext.seed: unknown key; remove it",
        ),
        ("openwebtext:", "owt:", "openwebtext: must be set"),
        ("openwebtext:", "{", "line 5: "),
    ],
)
def test_a_wrong_parameter_is_one_line_that_names_it(old, new, message):
    text = (ROOT / openwebtext.PARAMS).read_text()
    assert old in text
    Path("data.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as error:
        openwebtext.load(Path("data.yaml"))
    assert str(error.value).startswith("data.yaml: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_two_shards_of_one_name_are_refused():
    other = SHARD.model_copy(update={"file": "other/shard.parquet"})
    with pytest.raises(ValueError, match=r"shards: shard\.parquet must not be there twice"):
        settings(SHARD, other)


# -- downloads -----------------------------------------------------------------------------------


def test_a_shard_is_downloaded_once(hub):
    path = get()
    assert path == Path.cwd() / ".downloads/shard.parquet"
    assert path.read_bytes() == CONTENT
    assert get() == path
    assert hub.ranges == [0]
    assert [p.name for p in path.parent.glob("*.partial")] == []


def test_a_killed_download_goes_on_where_it_was():
    code = (
        "from resablate import openwebtext\n"
        f"settings = openwebtext.OpenWebText.model_validate({settings().model_dump()})\n"
        "print(openwebtext.shard_path(settings, settings.shards[0]))\n"
    )
    with serve(ADDRESS, CONTENT) as hub:
        environment = {"PYTHONPATH": str(ROOT / "src"), "HF_ENDPOINT": hub.address}
        command = [sys.executable, "-c", code]
        hub.stall_at = 11_000_000
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 120
            while sum(p.stat().st_size for p in Path().glob(".downloads/*.partial")) < WRITTEN:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        assert not Path(".downloads/shard.parquet").exists()
        hub.stall_at = None
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert hub.ranges == [0, WRITTEN]
    assert "10.5 of 12.8 MB are here" in done.stderr
    assert Path(done.stdout.strip()).read_bytes() == CONTENT


def test_an_answer_that_ends_early_is_kept_and_continued(hub):
    hub.stop_at = 11_000_000
    with pytest.raises(UserError, match=r"; 10,485,760 of 12,800,000 bytes are here, and the same"):
        get()
    hub.stop_at = None
    hub.ranges.clear()
    assert get().read_bytes() == CONTENT
    assert hub.ranges == [WRITTEN]


def test_a_tampered_file_is_set_aside_and_not_used(hub):
    hub.content = CONTENT[:-1] + b"?"
    with pytest.raises(UserError) as error:
        get()
    assert f"damaged or another version: SHA-256 {fetch.sha256_of(hub.content)}" in str(error.value)
    assert f"not {SHARD.sha256}" in str(error.value)
    assert not Path(".downloads/shard.parquet").exists()
    (refused,) = Path(".downloads").glob("*.refused")
    assert refused.read_bytes() == hub.content
    hub.content = CONTENT
    assert get().read_bytes() == CONTENT


def test_a_shorter_file_on_the_hub_is_refused(hub):
    hub.content = CONTENT[:1000]
    with pytest.raises(UserError, match=r"1,000 of 12,800,000 bytes are here"):
        get()
    with pytest.raises(UserError, match="HTTP 416"):
        get()
    assert [p.name for p in Path(".downloads").glob("*.partial")] == []
    hub.content = CONTENT
    assert get().read_bytes() == CONTENT


def test_a_damaged_shard_is_set_aside_and_downloaded_again(hub):
    Path(".downloads").mkdir()
    Path(".downloads/shard.parquet").write_bytes(b"damaged")
    assert get().read_bytes() == CONTENT
    assert Path(".downloads/shard.parquet.refused").read_bytes() == b"damaged"


def test_without_a_network_each_way_out_is_named(monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ask(f"http://127.0.0.1:{probe.getsockname()[1]}", monkeypatch)
        with pytest.raises(UserError) as error:
            get()
    message = str(error.value)
    assert "Connection refused" in message
    assert "\n" not in message
    for way in ("HF_ENDPOINT", "HF_HUB_OFFLINE", "RESABLATE_MIRROR", "openwebtext.source"):
        assert way in message


def test_offline_mode_is_respected(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="offline mode is enabled"):
        get()
    assert hub.ranges == []


def test_what_the_hub_does_not_have_is_named(hub):
    hub.path = "/elsewhere"
    with pytest.raises(UserError, match=rf"{ADDRESS}: HTTP 404"):
        get()


def test_a_mirror_comes_first_and_is_verified(hub, tmp_path, monkeypatch):
    monkeypatch.setenv(fetch.MIRROR_VARIABLE, str(tmp_path / "mirror"))
    given = tmp_path / "mirror/shard.parquet"
    given.parent.mkdir()
    given.write_bytes(CONTENT)
    assert get() == given
    given.write_bytes(CONTENT[1:])
    with pytest.raises(UserError, match=r"refused: 12,799,999 bytes, not 12,800,000"):
        get()
    assert hub.ranges == []
