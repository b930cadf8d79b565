"""XXH3, 64 bits, seed 0: the hash in which Kafka keeps the metadata of a group's topics.

In Python, because the hash is needed once per change of a subscribed topic: no package of the bare install has it. Long
inputs are handled in blocks of 1024 bytes by functions that run in C; 100 KB take about 2 ms.
"""

from __future__ import annotations

import struct
from operator import mul
from typing import Final

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_MASK: Final = (1 << 64) - 1
_PRIME32: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_MIX: Final = 0x165667919E3779F9
_RRMXMX: Final = 0x9FB21C651E98DF25
_U64: Final = struct.Struct("<Q")
_U32: Final = struct.Struct("<I")

_STRIPE: Final = 64
_STRIPES_A_BLOCK: Final = 16
_BLOCK: Final = _STRIPE * _STRIPES_A_BLOCK
_SWAPPED: Final = (1, 0, 3, 2, 5, 4, 7, 6)
"""The data of a lane is added to its neighbour."""


def xxh3_64(data: bytes) -> int:
    """The hash of `data`, unsigned."""
    length = len(data)
    if length <= 16:
        return _short(data, length)
    if length <= 128:
        return _middle(data, length)
    if length <= 240:
        return _longer(data, length)
    return _long(data, length)


def _secret64(at: int) -> int:
    return int(_U64.unpack_from(_SECRET, at)[0])


def _fold(a: int, b: int) -> int:
    """The halves of a 128-bit product, exclusive or."""
    product = a * b
    return (product & _MASK) ^ (product >> 64)


def _avalanche(h: int) -> int:
    h ^= h >> 37
    h = h * _MIX & _MASK
    return h ^ h >> 32


def _avalanche_of_xxh64(h: int) -> int:
    h ^= h >> 33
    h = h * _PRIME64[1] & _MASK
    h ^= h >> 29
    h = h * _PRIME64[2] & _MASK
    return h ^ h >> 32


def _rotated(h: int, bits: int) -> int:
    return (h << bits | h >> (64 - bits)) & _MASK


def _short(data: bytes, length: int) -> int:
    """The hash of at most 16 bytes. XXH3 has one formula each for 9 to 16, 4 to 8, 1 to 3, and no bytes."""
    if length > 8:
        low = _U64.unpack_from(data, 0)[0] ^ _secret64(24) ^ _secret64(32)
        high = _U64.unpack_from(data, length - 8)[0] ^ _secret64(40) ^ _secret64(48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((length + swapped + high + _fold(low, high)) & _MASK)
    if length >= 4:
        first: int = _U32.unpack_from(data, 0)[0]
        last: int = _U32.unpack_from(data, length - 4)[0]
        h = (last + (first << 32)) ^ _secret64(8) ^ _secret64(16)
        h ^= _rotated(h, 49) ^ _rotated(h, 24)
        h = h * _RRMXMX & _MASK
        h ^= (h >> 35) + length
        h = h * _RRMXMX & _MASK
        return h ^ h >> 28
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        flip = _U32.unpack_from(_SECRET, 0)[0] ^ _U32.unpack_from(_SECRET, 4)[0]
        return _avalanche_of_xxh64(combined ^ flip)
    return _avalanche_of_xxh64(_secret64(56) ^ _secret64(64))


def _mix16(data: bytes, at: int, secret: int) -> int:
    low, high = struct.unpack_from("<QQ", data, at)
    return _fold(low ^ _secret64(secret), high ^ _secret64(secret + 8))


def _middle(data: bytes, length: int) -> int:
    total = length * _PRIME64[0]
    for i in range((length - 1) // 32, -1, -1):
        total += _mix16(data, 16 * i, 32 * i) + _mix16(data, length - 16 * (i + 1), 32 * i + 16)
    return _avalanche(total & _MASK)


def _longer(data: bytes, length: int) -> int:
    total = length * _PRIME64[0] + sum(_mix16(data, 16 * i, 16 * i) for i in range(8))
    total = _avalanche(total & _MASK)
    total += sum(_mix16(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, length // 16))
    return _avalanche((total + _mix16(data, length - 16, 136 - 17)) & _MASK)


def _key(first: int, stripes: int) -> int:
    """The secret for stripes in a row, as one number: each stripe's part begins 8 bytes later."""
    parts = [_SECRET[first + 8 * n : first + 8 * n + _STRIPE] for n in range(stripes)]
    return int.from_bytes(b"".join(parts), "little")


_BLOCK_KEYS: Final = [_key(0, stripes) for stripes in range(_STRIPES_A_BLOCK + 1)]
_LAST_KEY: Final = _key(121, 1)
_SCRAMBLE_KEYS: Final = struct.unpack_from("<8Q", _SECRET, 128)


def _accumulate(lanes: list[int], piece: bytes, key: int) -> None:
    size = len(piece)
    data = struct.unpack(f"<{size // 8}Q", piece)
    keyed = struct.unpack(f"<{size // 4}I", (int.from_bytes(piece, "little") ^ key).to_bytes(size, "little"))
    products = list(map(mul, keyed[::2], keyed[1::2]))
    for lane, neighbour in enumerate(_SWAPPED):
        lanes[lane] = (lanes[lane] + sum(products[lane::8]) + sum(data[neighbour::8])) & _MASK


def _long(data: bytes, length: int) -> int:
    p32, p64 = _PRIME32, _PRIME64
    lanes = [p32[2], p64[0], p64[1], p64[2], p64[3], p32[1], p64[4], p32[0]]
    blocks = (length - 1) // _BLOCK
    for block in range(blocks):
        _accumulate(lanes, data[block * _BLOCK : (block + 1) * _BLOCK], _BLOCK_KEYS[_STRIPES_A_BLOCK])
        lanes = [(lane ^ lane >> 47 ^ key) * p32[0] & _MASK for lane, key in zip(lanes, _SCRAMBLE_KEYS, strict=True)]
    start = blocks * _BLOCK
    stripes = (length - 1 - start) // _STRIPE
    _accumulate(lanes, data[start : start + stripes * _STRIPE], _BLOCK_KEYS[stripes])
    _accumulate(lanes, data[-_STRIPE:], _LAST_KEY)
    total = length * p64[0]
    for i in range(4):
        total += _fold(lanes[2 * i] ^ _secret64(11 + 16 * i), lanes[2 * i + 1] ^ _secret64(19 + 16 * i))
    return _avalanche(total & _MASK)
