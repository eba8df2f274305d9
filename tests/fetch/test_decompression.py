"""Decompression with isal and with zlib: the same results for complete and damaged data."""

import gzip
import os
import random
import zlib

import pytest

from tidings.fetch import decompression

MAX_BYTES = 300_000


def decompress_or_error(data, encoding):
    try:
        return decompression.decompress(data, encoding, MAX_BYTES)
    except (decompression.BodyTooLarge, decompression.DecompressionError) as error:
        return type(error)


def damage(rng, data, kind):
    data = bytearray(data)
    if kind == "truncated":
        del data[rng.randrange(len(data)) :]
    elif kind == "changed":
        for _ in range(3):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == "garbage appended":
        data += rng.randbytes(rng.randint(1, 20))
    elif kind == "padded":
        data += bytes(600)
    elif kind == "second member":
        data += gzip.compress(b"more")
    return bytes(data)


def raw_deflate(body):
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(body) + compressor.flush()


@pytest.mark.parametrize(
    "kind", ["complete", "truncated", "changed", "garbage appended", "padded", "second member"]
)
@pytest.mark.parametrize(
    ("compress", "encoding"),
    [(gzip.compress, "gzip"), (zlib.compress, "deflate"), (raw_deflate, "deflate")],
)
def test_isal_and_zlib_give_the_same_results(monkeypatch, compress, encoding, kind):
    if decompression.zlib is zlib:  # isal is not available for all processors, but required in CI
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "needs isal, on x86 or ARM of 64 bits: pip install isal"
        )
    rng = random.Random(kind + encoding)
    outcomes = set()
    for _ in range(100):
        body = b" ".join(
            rng.choices(
                [b"<item>", b"news", b"of", b"the", b"day", b"</item>"], k=rng.randint(0, 3000)
            )
        )
        if rng.random() < 0.1:
            body *= MAX_BYTES // max(len(body), 1) + 1
        data = damage(rng, compress(body), kind)
        isal_result = decompress_or_error(data, encoding)
        with monkeypatch.context() as patch:
            patch.setattr(decompression, "zlib", zlib)
            assert decompress_or_error(data, encoding) == isal_result
        outcomes.add(isal_result if isinstance(isal_result, type) else bytes)
    assert {
        "complete": {bytes, decompression.BodyTooLarge},
        "truncated": {decompression.DecompressionError},
    }.get(kind, set()) <= outcomes
