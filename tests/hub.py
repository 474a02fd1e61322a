"""A file server on this machine that answers as the hub does, with ranges, and can fail."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """One file at one path; `stop_at` and `stall_at` are bytes after which an answer ends."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path, self.content = path, content
        self.address = ""
        self.ranges: list[int] = []  # the first byte of each answer
        self.stop_at: int | None = None
        self.stall_at: int | None = None
        self.released = threading.Event()


@contextmanager
def serve(path: str, content: bytes) -> Iterator[Hub]:
    """Serve `content` at `path` until the end of the block."""
    hub = Hub(path, content)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path != hub.path:
                self.send_error(404)
                return
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))
            start = int(asked[1])
            hub.ranges.append(start)
            if start >= len(hub.content):
                self.send_error(416)
                return
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("Content-Length", str(len(hub.content) - start))
            self.send_header(
                "Content-Range", f"bytes {start}-{len(hub.content) - 1}/{len(hub.content)}"
            )
            self.end_headers()
            end = hub.stall_at or hub.stop_at
            self.wfile.write(hub.content[start:end])
            if hub.stall_at:
                hub.released.wait(30)
            self.close_connection = True

        def log_message(self, *_):
            pass

        def handle(self):
            try:
                super().handle()
            except ConnectionError:  # the client has been killed
                self.close_connection = True

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield hub
        finally:
            hub.released.set()
            server.shutdown()
            thread.join()
