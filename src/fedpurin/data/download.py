"""Fetch the official files: resumable, bounded; no file takes its name before its checksum is right."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO

from fedpurin.data import official
from fedpurin.data.catalog import DatasetSpec, FileSpec
from fedpurin.errors import DataError
from fedpurin.files import regular, replaced, write_atomic

Progress = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all where the server says

ATTEMPTS = 20  # cut connections that we resume before giving up; each must have brought new bytes
TIMEOUT = 30.0  # seconds without a single byte
CHUNK = 1 << 18
SLACK = 1 << 20  # a compressed file may be this much larger than its content, never more


def get(name: str, data_dir: Path | str | None = None, progress: Progress | None = None) -> Path:
    """Downloads a data set unless its files are there and right; says where they are."""
    return get_source(official.source_named(name), official.resolve_data_dir(data_dir), progress)


def get_source(source: DatasetSpec, root: Path, progress: Progress | None = None) -> Path:
    folder = official.find_folder(source, root)
    if all(result.ok for result in official.check_source(source, root)):
        return official.find_archive(source, root) or folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder} cannot be made ({error.strerror}); name another folder with --data-dir"
        ) from None
    if source.archive is None:
        for spec in source.files:
            _get_file(source, spec, folder / spec.name, progress)
    else:
        _get_archive(source, root, folder, progress)
    return folder


def _get_file(source: DatasetSpec, spec: FileSpec, target: Path, progress: Progress | None) -> None:
    try:
        official.read_file(source, spec, target)
        return  # kept from an earlier attempt
    except DataError:
        pass
    try:
        replaced(target)  # nothing is downloaded for a place that a file cannot take
    except OSError as error:
        raise _cannot_write(target, error) from None
    part = target.with_name(target.name + ".part")
    url = source.url + spec.name
    fetch(url, part, source.size(spec) + SLACK, progress)
    try:
        official.read_file(source, spec, part)
    except DataError as error:
        part.unlink()
        raise _not_official(url, error) from None
    os.replace(part, target)


def _get_archive(source: DatasetSpec, root: Path, folder: Path, progress: Progress | None) -> None:
    """Unpacks straight from the checked download; an archive that the user put there is never touched."""
    part = root / f"{source.archive}.part"
    url = f"{source.url}{source.archive}"
    fetch(url, part, sum(source.size(spec) for spec in source.files) + SLACK, progress)
    try:
        for spec, _, raw in official.read_archive(source, part):
            write_atomic(folder / spec.name, raw)
    except OSError as error:  # no room, say: the download is kept
        raise _cannot_write(folder, error) from None
    except DataError as error:
        part.unlink()
        raise _not_official(url, error) from None
    part.unlink()


def fetch(url: str, part: Path, limit: int, progress: Progress | None = None) -> None:
    """Brings `url` into `part`, going on where an earlier attempt stopped, as long as bytes come."""
    for _ in range(ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        try:
            if _transfer(url, part, before, limit, progress):
                return
            problem = "the connection was cut"
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 416:
                    raise _no_answer(url, f"HTTP {error.code} {error.reason}", part) from None
                if error.headers.get("Content-Range", "").strip() == f"bytes */{before}":
                    return  # everything had arrived already
            part.unlink(missing_ok=True)  # longer than the file: not the same file, so start again
            continue
        except (OSError, HTTPException) as error:
            problem = str(getattr(error, "reason", None) or error) or type(error).__name__
        after = part.stat().st_size if part.exists() else 0
        if after <= before:
            raise _no_answer(url, problem, part)
    raise _no_answer(url, f"still incomplete after {ATTEMPTS} connections", part)


def _transfer(url: str, part: Path, have: int, limit: int, progress: Progress | None) -> bool:
    """One connection. True if the server has sent all it announced."""
    headers = {"User-Agent": "fedpurin"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as response:
        start = _start(response, have)
        announced = response.headers.get("Content-Length")
        total = start + int(announced) if announced and announced.isdigit() else None
        if total is not None and total > limit:
            raise DataError(
                f"{url} announces {total} bytes, expected at most {limit}; nothing was downloaded"
            )
        done = start
        with _open(part, start) as file:
            while chunk := response.read1(CHUNK):
                done += len(chunk)
                if done > limit:
                    part.unlink()
                    raise DataError(f"{url} sends more than {limit} bytes; the official file is smaller")
                try:
                    file.write(chunk)
                except OSError as error:
                    raise _cannot_write(part, error) from None
                if progress is not None:
                    progress(part.name.removesuffix(".part"), done, total)
    return total is None or done >= total


def _start(response: HTTPResponse, have: int) -> int:
    """Where the answer begins in the file: 0 if the server knows no ranges."""
    if response.status != 206:
        return 0
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if match is None or int(match.group(1)) != have:
        raise HTTPException(f"asked for bytes from {have}, got {response.headers.get('Content-Range')!r}")
    return have


def _open(part: Path, start: int) -> IO[bytes]:
    try:
        return (regular(part) if part.exists() else part).open("ab" if start else "wb")
    except OSError as error:
        raise _cannot_write(part, error) from None


def _no_answer(url: str, problem: str, part: Path) -> DataError:
    return DataError(
        f"cannot download {url} ({problem}); check the network and run the same command again, which goes on "
        f"where it stopped, or copy the official files to {part.parent}"
    )


def _not_official(url: str, error: DataError) -> DataError:
    return DataError(f"what {url} sent is not the official file and was deleted ({error}); try again later")


def _cannot_write(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be written ({error.strerror or error}); make room, or use --data-dir")
