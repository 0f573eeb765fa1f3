"""Mutate messages and decode them: only WireErrors may come out, and memory must stay flat.

    python scripts/fuzz_wire.py --count 1000000 --seed 1

Mutations know the format: most of them repair the checksum, many the lengths, so that they reach the checks
behind. A mutant that is accepted must be a message: it has to survive being encoded and decoded again.
"""

from __future__ import annotations

import argparse
import resource
import struct
import sys
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from random import Random

import torch
import zstandard

from fedpurin import wire
from fedpurin.core.bits import pack_bits
from fedpurin.errors import WireError
from fedpurin.messages import Message

CHECKSUM_AT = wire.HEADER_BYTES - 4
LENGTHS_AT = wire.HEADER_BYTES - 16  # three section lengths
SMALL_FIELDS = range(4, 12)
WIDE_FIELDS = range(12, CHECKSUM_AT, 4)
MEMORY_LIMIT_MIB = 64
FINGERPRINT = b"fuzzing!"
TELL = 10_000  # mutants between two lines that say how far it is


@dataclass(frozen=True)
class Seed:
    """A sound message, and what its receiver knows."""

    data: bytes
    address: wire.Address
    known: list[wire.Reference]


def make_seed(random: Random) -> Seed:
    d = random.choice((1, 7, 8, 9, 64, 300, 1000, 5000))
    values = torch.randn(1, d, generator=_generator(random))
    critical, support = None, None
    if random.random() < 0.8:
        critical = _mask(random, d)
        inside = critical if random.random() < 0.6 else torch.zeros_like(critical)
        support = inside | (~critical & _mask(random, d))
        support = random.choice((support, critical, None))
    elif random.random() < 0.5:
        support = _mask(random, d)
    if support is not None:
        values = torch.where(support, values, 0.0)
    reference = None
    if critical is not None and random.random() < 0.7:
        changed = _mask(random, d) & _mask(random, d)
        reference = wire.Reference(3, pack_bits((critical ^ changed)[0]))
    direction = "up" if random.random() < 0.5 else "down"
    address = wire.Address(FINGERPRINT, d, round=4, client=2, direction=direction)
    encoded = wire.encode(
        Message(values, critical, support),
        address,
        values=random.choice(wire.VALUE_TYPES),
        pack=random.random() < 0.5,
        reference=reference,
        confirmed=3,
    )
    return Seed(encoded.data, address, [reference] if reference else [])


def _mask(random: Random, d: int) -> torch.Tensor:
    share = random.choice((0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0))
    return torch.rand(1, d, generator=_generator(random)) < share


def _generator(random: Random) -> torch.Generator:
    return torch.Generator().manual_seed(random.getrandbits(32))


def mutate(data: bytes, random: Random) -> bytes:
    mutant = bytearray(data)
    for _ in range(random.randint(1, 3)):
        random.choice(MUTATIONS)(mutant, random)
    if len(mutant) >= wire.HEADER_BYTES:
        if random.random() < 0.7:
            _repair_lengths(mutant, random)
        if random.random() < 0.95:
            body = memoryview(mutant)
            checksum = zlib.crc32(body[wire.HEADER_BYTES :], zlib.crc32(body[:CHECKSUM_AT]))
            struct.pack_into("<I", mutant, CHECKSUM_AT, checksum)
    return bytes(mutant)


def _repair_lengths(mutant: bytearray, random: Random) -> None:
    """Let one section take up what the others leave."""
    lengths = list(struct.unpack_from("<3I", mutant, LENGTHS_AT))
    chosen = random.choice((0, 1, 2, 2, 2, 2))
    rest = len(mutant) - wire.HEADER_BYTES - sum(lengths) + lengths[chosen]
    if 0 <= rest < 2**32:
        struct.pack_into("<I", mutant, LENGTHS_AT + 4 * chosen, rest)


def _flip_bit(mutant: bytearray, random: Random) -> None:
    if mutant:
        mutant[random.randrange(len(mutant))] ^= 1 << random.randrange(8)


def _set_body_byte(mutant: bytearray, random: Random) -> None:
    if len(mutant) > wire.HEADER_BYTES:
        at = random.randrange(wire.HEADER_BYTES, len(mutant))
        mutant[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))


def _set_small_field(mutant: bytearray, random: Random) -> None:
    if len(mutant) >= wire.HEADER_BYTES:
        mutant[random.choice(SMALL_FIELDS)] = random.randrange(12)


def _set_wide_field(mutant: bytearray, random: Random) -> None:
    if len(mutant) >= wire.HEADER_BYTES:
        at = random.choice(WIDE_FIELDS)
        old = struct.unpack_from("<I", mutant, at)[0]
        choices = [0, 1, 2**31, 2**32 - 1, (old + 1) % 2**32, (old - 1) % 2**32, random.randrange(2000)]
        struct.pack_into("<I", mutant, at, random.choice(choices))


def _cut(mutant: bytearray, random: Random) -> None:
    del mutant[random.randrange(len(mutant) + 1) :]


def _insert(mutant: bytearray, random: Random) -> None:
    at = random.randint(min(wire.HEADER_BYTES, len(mutant)), len(mutant))
    mutant[at:at] = random.randbytes(random.randint(1, 40))


def _not_a_number(mutant: bytearray, random: Random) -> None:
    at = random.randint(min(wire.HEADER_BYTES, len(mutant)), len(mutant))
    pattern = random.choice((b"\x00\x00\x80\x7f", b"\xff\xff\xff\xff", b"\x00\x7c", b"\xff\xff", b"\x80"))
    mutant[at : at + len(pattern)] = pattern


def _bomb(mutant: bytearray, random: Random) -> None:
    """Turn the value section into a few bytes of zstd that stand for many, and say that it is packed."""
    if len(mutant) < wire.HEADER_BYTES:
        return
    first, second, _ = struct.unpack_from("<3I", mutant, LENGTHS_AT)
    if wire.HEADER_BYTES + first + second > len(mutant):
        return
    del mutant[wire.HEADER_BYTES + first + second :]
    bomb = random.choice(BOMBS)
    mutant.extend(bomb)
    mutant[9] |= 4
    struct.pack_into("<I", mutant, LENGTHS_AT + 8, len(bomb))


def _bombs() -> list[bytes]:
    """256 MiB of zeros: with the true size, without one, with a false one; and a mere 1 MiB."""
    honest = _zeros(2**28, stated=2**28)
    lying = bytearray(honest)
    struct.pack_into("<I", lying, 5 + (not honest[4] & 32), 4)  # the size follows the descriptor and window
    return [honest, _zeros(2**28, stated=-1), bytes(lying), _zeros(2**20, stated=2**20)]


def _zeros(count: int, stated: int) -> bytes:
    packer = zstandard.ZstdCompressor().compressobj(size=stated)
    chunk = bytes(2**20)
    return b"".join(packer.compress(chunk) for _ in range(count // len(chunk))) + packer.flush()


MUTATIONS = (
    *(_flip_bit, _set_body_byte, _set_small_field, _set_wide_field),
    *(_cut, _insert, _not_a_number, _flip_bit, _set_small_field, _bomb),
)
BOMBS = _bombs()


def check(seed: Seed, mutant: bytes) -> str:
    """The name of the error, or "accepted"; any other exception is a finding."""
    try:
        decoded = wire.decode(mutant, seed.address, known=seed.known)
    except WireError as error:
        return type(error).__name__
    again = wire.encode(decoded.message, seed.address, values="float32")
    twin = wire.decode(again.data, seed.address).message
    assert torch.equal(twin.values_nd, decoded.message.values_nd), mutant.hex()
    assert bool(torch.isfinite(twin.values_nd).all()), mutant.hex()
    return "accepted"


def peak_mib() -> float:
    """ru_maxrss is in KiB on Linux, in bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def fuzz(count: int, seed: int, mutants_per_seed: int = 200) -> Counter[str]:
    """Decode `count` mutants; raises on the first that does not end well."""
    random = Random(seed)
    outcomes: Counter[str] = Counter()
    source = make_seed(random)
    before = peak_mib()
    for number in range(count):
        if number and number % TELL == 0:
            print(f"wire: {number} mutants so far, no finding", file=sys.stderr, flush=True)
        if number % mutants_per_seed == 0:
            source = make_seed(random)
            assert check(source, source.data) == "accepted"
        mutant = mutate(source.data, random)
        try:
            outcomes[check(source, mutant)] += 1
        except Exception:
            print(f"mutant {number} of seed {seed}: {mutant.hex()}", file=sys.stderr)
            raise
    grown = peak_mib() - before
    if grown > MEMORY_LIMIT_MIB:
        raise MemoryError(f"decoding messages of a few KiB grew the process by {grown:.0f} MiB")
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    outcomes = fuzz(options.count, options.seed)
    seconds = time.perf_counter() - start
    print(f"{options.count} mutants in {seconds:.0f} s, {options.count / seconds:.0f} per second; no finding")
    for name, number in outcomes.most_common():
        print(f"  {name:24s}{number:10d}")
    print(f"  peak memory {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()
