"""What a site's own command decides, whatever the server says. No torch and no Flower here.

The command writes these settings into a private file, and the site's process reads them from there. A
configuration that comes from the server is read with their permission only: nothing is imported by a name
that the site has not allowed, and no file is opened because the server named it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedpurin.config import Config
from fedpurin.engines.flower.limits import Limits
from fedpurin.errors import ConfigError
from fedpurin.files import write_atomic

PROGRESS = "progress.jsonl"  # in a site's state directory: a line per message it has worked on
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:function; not cuda:0


@dataclass(frozen=True)
class SiteSettings:
    client: int
    state: str  # folder
    data: str = ""
    allow: tuple[str, ...] = ()  # package.module:function that a configuration may name
    local_paths: bool = False  # it may also name files: where server and sites are one machine and account
    limits: Limits = Limits()
    keep_messages: bool = False  # for the audit
    address: str = ""  # of the SuperNode's runtime interface
    ca: str = ""
    secret: str = ""

    def save(self, path: Path) -> None:
        write_atomic(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> SiteSettings:
        table = json.loads(path.read_text())
        return cls(**table | {"allow": tuple(table["allow"]), "limits": Limits.of(table["limits"])})

    def read(self, text: str) -> Config:
        """The server's configuration, checked before anything in it is looked up."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"the server's configuration is not valid TOML: {error}") from None
        for name in functions_named(table):
            if name not in self.allow:
                raise ConfigError(
                    f"the server's configuration names {name}, which this site does not allow: read that "
                    f"function, and if you agree start the client with --allow {name}"
                )
        config = Config.from_text(text, "the server's configuration")
        self.limits.check(config)
        if self.local_paths:
            return config
        if config.data.split_file:
            raise ConfigError(
                f"the server's configuration names the file {config.data.split_file}: a site opens no files "
                "that the server names; divide the data by partition and seed, or use the sites' own"
            )
        return replace(config, data=replace(config.data, dir=""))


def functions_named(table: Any) -> list[str]:
    """Every package.module:function in a configuration, at any depth, in whatever setting."""
    return [text for text in _texts(table) if FUNCTION.fullmatch(text)]


def _texts(value: Any) -> Iterator[str]:
    """Every text in a table, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
