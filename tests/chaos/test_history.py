"""Records of a history, and the files that they are in."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from chaos import history
from chaos.history import (
    ARGS,
    RESULTS,
    Args,
    BrokenLineError,
    Created,
    Event,
    NewJob,
    Node,
    Op,
    Record,
    Res,
    Run,
    Writer,
    malformed,
    read,
    write,
)

RUN = Run(seed=7, version="1", nodes=(Node("n1", "http://127.0.0.1:1"),), shards=4, t=1, wall_ns=2)
OP = Op(
    n=1,
    client="p1",
    session="p1",
    op_id="p1.1",
    f="enqueue",
    t_inv=10,
    t_ret=20,
    type="ok",
    try_=2,
    args=Args(jobs=(NewJob(queue="mail", mark="p1.1/0", sha="00ff"),)),
    res=Res(created=(Created(job_id="s00_job_1", status="pending"),)),
    seq={"0": 5},
)
EVENT = Event(
    node="n1", t=21, id="s0=5-abcdef01", shard=0, seq=5, number=1, type="enqueued", at_ns=1
)


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    records: list[Record] = [RUN, OP, EVENT]

    write(tmp_path, records)

    assert list(read(tmp_path)) == records


def test_a_line_is_one_json_object_with_its_kind_and_no_defaults(tmp_path: Path) -> None:
    write(tmp_path, [OP])

    assert (tmp_path / "history.jsonl").read_text() == (
        '{"kind":"op","n":1,"client":"p1","session":"p1","op_id":"p1.1","f":"enqueue",'
        '"t_inv":10,"type":"ok","t_ret":20,"try":2,'
        '"args":{"jobs":[{"queue":"mail","mark":"p1.1/0","sha":"00ff"}]},'
        '"res":{"created":[{"job_id":"s00_job_1","status":"pending"}]},"seq":{"0":5}}\n'
    )


def test_a_writer_appends_and_keeps_few_bytes_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Writer(path) as writer:
        writer.write(RUN)
    many = 2 * history.WRITE_BYTES // 100

    writer = Writer(path)
    for _ in range(many):
        writer.write(EVENT)

    lines = path.read_bytes().count(b"\n")
    assert many - history.WRITE_BYTES // 100 < lines < many + 1
    writer.close()
    assert path.read_bytes().count(b"\n") == many + 1


def test_a_last_line_that_a_crash_cut_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, [RUN, EVENT])
    path = tmp_path / "history.jsonl"
    path.write_bytes(path.read_bytes()[:-9])

    assert list(read(tmp_path)) == [RUN]


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    write(tmp_path, [RUN])
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"kind":"op"}\n')

    with pytest.raises(BrokenLineError, match=r"history\.jsonl:2"):
        list(read(tmp_path))


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (OP, ""),
        (replace(OP, type="info", t_ret=None, res=Res()), ""),
        (replace(OP, f="enque"), "unknown op"),
        (replace(OP, args=Args()), "without args.jobs"),
        (replace(OP, res=Res()), "without res.created"),
        (replace(OP, t_ret=None), "without t_ret"),
        (replace(OP, t_ret=9), "t_ret before t_inv"),
    ],
)
def test_an_op_has_the_fields_of_its_name(op: Op, why: str) -> None:
    found = malformed(op)

    assert why in found
    assert bool(why) == bool(found)


def test_the_tables_name_fields_that_exist() -> None:
    assert {name for names in ARGS.values() for name in names} <= set(Args.__struct_fields__)
    assert {name for names in RESULTS.values() for name in names} <= set(Res.__struct_fields__)
    assert set(RESULTS) <= set(ARGS)
