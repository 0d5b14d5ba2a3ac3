"""The listener of a node reads its events from an answer in chunks."""

from chaos.feeds import _Chunks


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def test_lines_are_the_same_however_the_bytes_are_cut() -> None:
    data = chunked(b"id: 1\n", b"da", b"ta: {}\n\n:", b" alive\n")

    for size in range(1, len(data)):
        chunks = _Chunks()
        lines = []
        for start in range(0, len(data), size):
            lines += chunks.add(data[start : start + size])
        assert lines == [b"id: 1", b"data: {}", b"", b": alive"]
