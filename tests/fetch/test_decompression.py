"""Whoever unpacks gzip: what is whole, cut, spoilt or followed by something comes out the same, or is refused the same."""

import gzip
import os
import random
import zlib

import pytest

from tidings.fetch import decompression

CAP = 300_000


def decompress_or_error(data, encoding):
    try:
        return decompression.decompress(data, encoding, CAP)
    except (decompression.BodyTooLarge, decompression.DecompressionError) as problem:
        return type(problem)


def damaged(rng, data, how):
    data = bytearray(data)
    if how == "cut":
        del data[rng.randrange(len(data)) :]
    elif how == "changed":
        for _ in range(3):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif how == "followed":
        data += rng.randbytes(rng.randint(1, 20))
    elif how == "padded":
        data += bytes(600)
    elif how == "twice":
        data += gzip.compress(b"more")
    return bytes(data)


def raw(body):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize("how", ["whole", "cut", "changed", "followed", "padded", "twice"])
@pytest.mark.parametrize(
    ("pack", "encoding"), [(gzip.compress, "gzip"), (zlib.compress, "deflate"), (raw, "deflate")]
)
def test_both_ways_to_unpack_come_to_the_same(monkeypatch, pack, encoding, how):
    if (
        decompression.zlib is zlib
    ):  # there is no other for some processors; where tests are to prove something there is
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "needs isal, on x86 or ARM of 64 bits: pip install isal"
        )
    rng = random.Random(how + encoding)
    found = set()
    for _ in range(100):
        body = b" ".join(
            rng.choices(
                [b"<item>", b"news", b"of", b"the", b"day", b"</item>"], k=rng.randint(0, 3000)
            )
        )
        if rng.random() < 0.1:
            body *= CAP // max(len(body), 1) + 1
        data = damaged(rng, pack(body), how)
        ours = decompress_or_error(data, encoding)
        with monkeypatch.context() as patch:
            patch.setattr(decompression, "zlib", zlib)
            assert decompress_or_error(data, encoding) == ours
        found.add(ours if isinstance(ours, type) else bytes)
    assert {
        "whole": {bytes, decompression.BodyTooLarge},
        "cut": {decompression.DecompressionError},
    }.get(how, set()) <= found
