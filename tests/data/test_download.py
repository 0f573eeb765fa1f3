"""Downloads from a server on this machine that can be told to misbehave."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedpurin.data import DEFAULT, NAMES, get
from fedpurin.data import official as reader
from fedpurin.data.catalog import MINI, SOURCES
from fedpurin.data.download import fetch, get_source
from fedpurin.errors import DataError


class Server:
    """Serves bytes by path and keeps the headers it was asked with. `cut` and `ranges` make it misbehave."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.ranges = True
        self.cut: list[int] = []  # one number per connection: hang up after so many bytes of the body
        self.announce = True
        self.shift = 0  # answers a range that begins this much too late
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name, asked = request.path.lstrip("/"), request.headers.get("Range")
        self.asked.append((name, asked))
        content = self.files.get(name)
        if content is None:
            request.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.ranges else 0
        if start and start >= len(content):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(content)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        start += self.shift if start else 0
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.announce:
            request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        body = content[start:]
        request.wfile.write(body[: self.cut.pop(0)] if self.cut else body)
        request.close_connection = True

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    yield server
    server.close()


def publish(tiny, server: Server):
    """Puts a tiny data set on the server, as its authors would; returns its table entry."""
    if tiny.source.archive is None:
        server.files = {name: tiny.packed(name) for name in tiny.contents}
        return replace(tiny.source, url=server.url)
    server.files = {tiny.source.archive: tiny.archive()}
    return replace(tiny.source, url=server.url)


CONTENT = bytes(range(256)) * 40  # 10,240 bytes


def test_a_data_set_arrives_and_is_right(tiny, server, tmp_path):
    source = publish(tiny, server)
    told = []
    folder = get_source(source, tmp_path / "new" / "cache", lambda *p: told.append(p))
    assert folder == tmp_path / "new" / "cache" / "tiny-folder"
    assert sorted(p.name for p in folder.iterdir()) == sorted(tiny.contents)
    assert reader.read(source, tmp_path / "new" / "cache").train_y.tolist() == tiny.y["train"].tolist()
    for name, content in server.files.items():
        assert (name, len(content), len(content)) in told  # the last word on each file: all of it
    assert not list((tmp_path / "new").rglob("*.part"))


def test_what_is_there_is_not_fetched_again(tiny, server, tmp_path):
    source = publish(tiny, server)
    get_source(source, tmp_path)
    server.asked.clear()
    get_source(source, tmp_path)
    assert server.asked == []


def test_an_archive_that_the_user_brought_needs_no_download(tiny_cifar, server, tmp_path):
    source = publish(tiny_cifar, server)
    (tmp_path / "tiny.tar.gz").write_bytes(tiny_cifar.archive())
    assert get_source(source, tmp_path) == tmp_path / "tiny.tar.gz"
    assert server.asked == []


def test_a_broken_file_is_fetched_again_and_the_others_are_not(tiny_idx, server, tmp_path):
    source = publish(tiny_idx, server)
    folder = get_source(source, tmp_path)
    (folder / "test-labels.gz").write_bytes(b"broken")
    server.asked.clear()
    get_source(source, tmp_path)
    assert server.asked == [("test-labels.gz", None)]
    assert all(c.ok for c in reader.check_source(source, tmp_path))


def test_a_cut_connection_is_resumed_where_it_stopped(server, tmp_path):
    server.files["f"] = CONTENT
    server.cut = [1000, 3000]
    fetch(server.url + "f", tmp_path / "f.part", 20000)
    assert (tmp_path / "f.part").read_bytes() == CONTENT
    assert server.asked == [("f", None), ("f", "bytes=1000-"), ("f", "bytes=4000-")]


def test_an_earlier_attempt_is_continued(server, tmp_path):
    server.files["f"] = CONTENT
    (tmp_path / "f.part").write_bytes(CONTENT[:5000])
    fetch(server.url + "f", tmp_path / "f.part", 20000)
    assert (tmp_path / "f.part").read_bytes() == CONTENT
    assert server.asked == [("f", "bytes=5000-")]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.files["f"] = CONTENT
    server.ranges = False
    server.cut = [1000]
    fetch(server.url + "f", tmp_path / "f.part", 20000)
    assert (tmp_path / "f.part").read_bytes() == CONTENT
    assert server.asked == [("f", None), ("f", "bytes=1000-")]


def test_a_finished_part_needs_no_more_bytes(server, tmp_path):
    server.files["f"] = CONTENT
    (tmp_path / "f.part").write_bytes(CONTENT)
    fetch(server.url + "f", tmp_path / "f.part", 20000)
    assert (tmp_path / "f.part").read_bytes() == CONTENT
    assert len(server.asked) == 1


def test_a_part_longer_than_the_file_is_dropped(server, tmp_path):
    server.files["f"] = CONTENT
    (tmp_path / "f.part").write_bytes(CONTENT + b"more")
    fetch(server.url + "f", tmp_path / "f.part", 20000)
    assert (tmp_path / "f.part").read_bytes() == CONTENT


def test_a_server_that_sends_another_range_is_not_believed(server, tmp_path):
    server.files["f"] = CONTENT
    server.shift = 10
    (tmp_path / "f.part").write_bytes(CONTENT[:5000])
    with pytest.raises(DataError, match="asked for bytes from 5000, got 'bytes 5010-"):
        fetch(server.url + "f", tmp_path / "f.part", 20000)
    assert (tmp_path / "f.part").read_bytes() == CONTENT[:5000]


def test_a_server_that_always_hangs_up_ends_in_an_error_and_what_came_is_kept(server, tmp_path):
    server.files["f"] = CONTENT
    server.cut = [1000, 0]
    with pytest.raises(DataError, match=r"connection was cut.*run the same command again"):
        fetch(server.url + "f", tmp_path / "f.part", 20000)
    assert (tmp_path / "f.part").read_bytes() == CONTENT[:1000]


def test_the_number_of_resumptions_is_limited(server, tmp_path):
    server.files["f"] = CONTENT
    server.cut = [1] * 100
    with pytest.raises(DataError, match="still incomplete after 20 connections"):
        fetch(server.url + "f", tmp_path / "f.part", 20000)


@pytest.mark.parametrize("announce", [True, False])
def test_a_file_much_too_large_is_refused(server, tmp_path, announce):
    server.files["f"] = CONTENT
    server.announce = announce
    with pytest.raises(DataError, match=r"announces 10240 bytes|sends more than 5000 bytes"):
        fetch(server.url + "f", tmp_path / "f.part", 5000)
    assert not (tmp_path / "f.part").exists()


def test_content_that_is_not_the_official_one_is_deleted(tiny, server, tmp_path):
    source = publish(tiny, server)
    first = next(iter(server.files))
    server.files[first] = b"<html>Please log in to this network</html>"
    with pytest.raises(
        DataError, match=f"what {server.url}{first} sent is not the official file and was deleted"
    ):
        get_source(source, tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_sound_archive_of_other_content_is_refused(tiny_cifar, server, tmp_path):
    source = publish(tiny_cifar, server)
    files = (replace(source.files[0], sha256="0" * 64), *source.files[1:])
    with pytest.raises(DataError, match=r"batch_1\.bin is not the official file"):
        get_source(replace(source, files=files), tmp_path)


def test_a_file_that_is_not_there_names_the_status(tiny, server, tmp_path):
    source = publish(tiny, server)
    server.files.clear()
    with pytest.raises(DataError, match="HTTP 404"):
        get_source(source, tmp_path)


def test_without_a_network_the_error_says_what_to_do(tiny, server, tmp_path):
    source = publish(tiny, server)
    server.http.server_close()  # connections are refused from now on
    with pytest.raises(DataError, match=r"cannot download .*check the network.*copy the official files to"):
        get_source(source, tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tiny, server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be made .*--data-dir"):
        get_source(publish(tiny, server), tmp_path / "file")


def test_a_part_that_cannot_be_written_is_named(server, tmp_path):
    server.files["f"] = CONTENT
    with pytest.raises(DataError, match=r"f\.part cannot be written"):
        fetch(server.url + "f", tmp_path / "missing" / "f.part", 20000)


def test_a_pipe_in_the_place_of_a_part_is_not_waited_for(server, tmp_path):
    os.mkfifo(tmp_path / "f.part")
    server.files["f"] = b"content"
    with pytest.raises(DataError, match=r"f\.part cannot be written \(it is a pipe or a device"):
        fetch(server.url + "f", tmp_path / "f.part", 100)


def test_nothing_is_fetched_for_a_place_that_a_file_cannot_take(tiny_idx, server, tmp_path):
    source = publish(tiny_idx, server)
    taken = tmp_path / source.folder / source.files[0].name
    for make in (Path.mkdir, os.mkfifo):
        taken.parent.mkdir()
        make(taken)
        with pytest.raises(DataError, match=rf"{taken.name} cannot be written \(it is a"):
            get_source(source, tmp_path)
        assert server.asked == []
        assert list(taken.parent.iterdir()) == [taken]
        shutil.rmtree(taken.parent)


def test_the_bundled_sample_is_always_there(tmp_path):
    assert get(DEFAULT, tmp_path) == MINI.bundled
    assert list(tmp_path.iterdir()) == []


def test_every_other_data_set_has_an_address():
    assert all(SOURCES[name].url.startswith("http") for name in NAMES if name != DEFAULT)
