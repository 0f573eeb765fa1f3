"""What run.engine may name: a class or function that gives a transport for a job, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedpurin.engines.simulate import make_transport
from fedpurin.errors import ConfigError
from fedpurin.job import Job
from tiny import tiny_config


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("builtins:object", "cannot be made: TypeError"),
        ("os:getcwd", "cannot be made: TypeError"),
        ("os:sep", "names something that is no function"),
        ("builtins:id", "does not give a fedpurin.engines.transport.Transport"),
    ],
)
def test_an_engine_that_gives_no_transport_is_refused(tmp_path: Path, name: str, says: str) -> None:
    job = Job.build(tiny_config("fedavg", tmp_path, run__engine=name))
    with pytest.raises(ConfigError, match=f"'{name}' {says}"):
        make_transport(job)
