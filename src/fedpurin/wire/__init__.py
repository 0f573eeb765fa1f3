"""Messages as bytes: the format, version 1.

A message goes from one client to the server (up) or back (down). It carries float values at some of d
positions, numbered 0..d-1, and may carry a set of *critical* positions. Of the critical positions either
all values travel or none; of the others, the *outside*, any subset may. This text suffices to write a
decoder. All integers are unsigned and little-endian unless said otherwise.

    header (68 bytes) | critical section | outside section | value section

Header
    offset size
     0      4   magic "FPRN"
     4      1   version, 1
     5      1   direction: 0 up, 1 down
     6      1   coding of the critical set, a number from the table below
     7      1   coding of the outside support: which positions outside the critical set carry a value
     8      1   value type: 1 float32, 2 float16, 3 bfloat16, 4 int8, 5 sign
     9      1   flags: 1 critical section packed, 2 outside section packed, 4 value section packed,
                8 the critical values travel; other bits are 0
    10      2   0
    12      4   client
    16      4   round; up: the round trained, down: the round whose aggregation the message carries
    20      4   confirmed; down: the last round of which the server accepted this client's upload, 0 if none
    24      4   reference: the round of the mask that codings 3, 8 and 9 build on; 0 for all other codings
    28      4   proof: CRC-32 of that mask as a bitmap; 0 for all other codings
    32      8   fingerprint of the layout
    40      4   d, from 1 to 2^30 - 1
    44      4   k, number of critical positions
    48      4   kept, number of values that travel
    52      4   bytes of the critical section
    56      4   bytes of the outside section
    60      4   bytes of the value section
    64      4   CRC-32 of bytes 0..63 and 68..end
The message ends where its last section ends. CRC-32 is the one of zip and PNG. The reference is an earlier
mask of this client that both sides have; a receiver that has none of that round, or one with another
checksum, must refuse.

Codings of a set of positions among n
    0 none          the method knows no critical set; k = 0                   no bytes
    1 empty         no position                                               no bytes
    2 all           all n > 0 positions                                       no bytes
    3 echo          the reference mask                                        no bytes
    4 bitmap        ceil(n / 8) bytes; position j is bit j mod 8, least significant first, of byte j div 8;
                    unused bits are 0
    5 gaps          gap list of the positions
    6 holes         gap list of the positions that are *not* in the set
    7 inline        marked in the value section                               no bytes
    8 delta         gap list of the positions where the set differs from the reference
    9 delta-bitmap  bitmap of the positions where the set differs from the reference
For the critical set n = d. For the outside support the n = d - k positions outside are numbered 0..n-1 in
ascending order, and only 1, 2, 4, 5, 6, 7 occur. Codings 0 and 1 go with an empty set, 2 with a full one
that is not empty, all others with a set that is neither. 7 does not occur with value type 5. If k = 0 flag 8
is not set.

Gap list, of p_0 < p_1 < ... (at least one). gap_i = p_i - p_(i-1) - 1, with p_(-1) = -1.
    1 byte    b, number of low bits, at most 30
    4 bytes   number of gaps
    low       the b lowest bits of each gap, least significant first, one gap after the other
    unary     for each gap (gap >> b) zeros and a one
Both bit strings fill bytes from the least significant bit and end with zeros up to a whole byte. A gap list
is shorter than the bitmap of its n positions.

Value section. An *entry* stands for one value, in ascending order of position. Without coding 7 the
entries are the kept values. With coding 7 there are more, and a position that carries no value is marked
with the reserved item. Critical 7: flag 8 is set, nothing travels outside, there is an entry for each of
the d positions, and the critical ones are those not marked. Outside 7: there is an entry for each of the d
positions if flag 8 is set, else for each position outside; critical positions are never marked.
    float32, float16, bfloat16
        IEEE 754 binary32, binary16, the upper half of binary32: 4, 2, 2 bytes per entry.
        Reserved item: all bits one.
    int8
        First ceil(kept / 256) scales, binary32. Then 1 byte per entry, a signed number q from -127 to 127.
        Reserved item: -128. Scale number i div 256 belongs to the i-th *kept* value, which is
        q * scale rounded to binary32. 0 <= scale <= 2^121; where a scale is 0, so are its q.
    sign
        First ceil(kept / 256) scales, as for int8. Then 1 bit per kept value; the bits fill bytes from the
        least significant bit and end with zeros up to a whole byte. The i-th kept value is scale number
        i div 256 if its bit is 0, minus that if it is 1. 0 <= scale <= 2^121; where a scale is 0, so are
        its bits, and the values are +0. No item is reserved.
Every value is finite. A sender of int8 takes scale = max|x| / 127 over the block, in binary32, and
q = x / scale in binary32, rounded to the nearest integer, ties to even; 0 where the scale is 0. A sender of
sign takes scale = the sum of |x| over the block / the number of its values, both in binary64, rounded to
binary32, and bit 1 where x < 0; 0 where the scale is 0.

Packing. A packed bitmap section (codings 4 and 9) is one zstd frame that states its content size and is
shorter than what it holds. A packed value section is such a frame too, of the scales followed by the items
in byte planes: the first bytes of all items, then the second bytes, and so on; of sign the bytes as they are.

What a sender chooses. For each set the shortest of the codings that apply, where gap lists are tried only if
they may save a tenth of the bitmap; inline if the message gets shorter by it, packing left aside. So a
message is never longer than a dense one plus the header, unless it carries a critical set beside values that
do not depend on it (FedCAC's upload: plus at most 1 bit per position), or is of type sign, which cannot mark
positions: there each set takes at most 1 bit per position beside the signs and scales of the kept values. A
receiver accepts any coding, refuses whatever breaks a sentence above, and needs no more memory than a small
multiple of d.

Type 5 came after the others, under the same version: all messages of types 1 to 4 are what they were, and a
receiver that does not know it refuses it as an unknown value type.
"""

from fedpurin.value_types import all_types
from fedpurin.wire.decoding import Decoded, decode, peek
from fedpurin.wire.encoding import Encoded, Reference, encode, longest
from fedpurin.wire.header import LENGTH as HEADER_BYTES
from fedpurin.wire.header import Address, Header
from fedpurin.wire.values import quantize

VALUE_TYPES = tuple(all_types())

__all__ = [
    "HEADER_BYTES",
    "VALUE_TYPES",
    "Address",
    "Decoded",
    "Encoded",
    "Header",
    "Reference",
    "decode",
    "encode",
    "longest",
    "peek",
    "quantize",
]
