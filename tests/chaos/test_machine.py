"""Networks and disks of a run, on machines that can have them: they break as told, and go away."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from chaos.cluster import cleaning, machine, syncs
from chaos.cluster.disks import Disk
from chaos.cluster.namespaces import FOLDER
from chaos.cluster.network import CLIENTS, WireNetwork, open_network
from chaos.cluster.rules import CLEAR, Rule
from tests.support.links import on_sockets

LACKS = machine.probe()
HOSTS = ("a", CLIENTS)


def needs(ability: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(ability in LACKS, reason=LACKS.get(ability, ""))


@asynccontextmanager
async def server(network: WireNetwork) -> AsyncIterator[None]:
    """A process on host `a` that answers each connection."""
    program = (
        "import socket\n"
        "with socket.create_server(('', 7000)) as listening:\n"
        "    print('ready', flush=True)\n"
        "    while True:\n"
        "        listening.accept()[0].sendall(b'hello')\n"
    )
    process = await trio.lowlevel.open_process(
        [*network.prefix("a"), "python3", "-c", program], stdout=-1
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.receive_some()
        yield
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def greeting(network: WireNetwork) -> bytes:
    made = network.make_socket()
    made.setblocking(False)
    with trio.socket.from_stdlib_socket(made) as connection:
        await connection.connect((network.address("a"), 7000))
        return await connection.recv(100)


@needs(machine.PACKETS)
@on_sockets
async def test_a_cut_direction_drops_packets_until_it_is_healed_and_counts_them() -> None:
    run = f"{cleaning.run_name(os.getpid())}-test"
    async with open_network(run, HOSTS, "1") as network, server(network):
        assert await greeting(network) == b"hello"
        before = await network.counts()

        await network.set({("a", CLIENTS): Rule(is_cut=True)})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(greeting, network)
            while not (await network.counts())["a", CLIENTS].dropped:  # noqa: ASYNC110
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        await network.set({("a", CLIENTS): CLEAR})

        assert await greeting(network) == b"hello"
        after = await network.counts()
        assert after[CLIENTS, "a"].dropped == 0
        assert after[CLIENTS, "a"].passed > before[CLIENTS, "a"].passed
    assert not [name for name in FOLDER.iterdir() if name.name.startswith(run)]


@needs(machine.PACKETS)
@on_sockets
async def test_what_a_killed_run_has_left_behind_is_found_and_removed() -> None:
    gone = await trio.run_process(["sh", "-c", "echo $$"], capture_stdout=True)
    pid = int(gone.stdout)
    name = f"{cleaning.run_name(pid)}-a"
    await trio.run_process(["ip", "netns", "add", name])
    folder = cleaning.scratch(pid)
    folder.mkdir()

    assert cleaning.left_behind()[pid] == [name]
    cleaning.clean()

    assert pid not in cleaning.left_behind()
    assert not folder.exists()
    assert not (FOLDER / name).exists()


@needs(machine.POWER)
@on_sockets
async def test_a_loss_of_power_keeps_what_was_synced_and_loses_the_rest(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "a.disk", tmp_path / "a")
    await disk.make()
    try:
        with (disk.folder / "synced").open("wb") as written:
            written.write(b"kept")
            written.flush()
            os.fsync(written.fileno())
        (disk.folder / "unsynced").write_bytes(b"lost")

        await disk.lose_power()

        assert (disk.folder / "synced").read_bytes() == b"kept"
        lost = disk.folder / "unsynced"
        assert not lost.exists() or lost.read_bytes() != b"lost"
    finally:
        await disk.unmount()


@needs(machine.DISK)
@on_sockets
async def test_a_disk_is_filled_and_cleared(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "a.disk", tmp_path / "a")
    await disk.make()
    try:
        before = disk.free_bytes
        disk.fill(leave_bytes=100_000)
        full = disk.free_bytes
        disk.clear()

        assert before > 100 << 20
        assert full <= 100_000
        assert disk.free_bytes > full
    finally:
        await disk.unmount()


@needs(machine.SYNCS)
@on_sockets
async def test_syncs_fail_and_are_counted_in_a_process_with_the_library(tmp_path: Path) -> None:
    library, control = syncs.build(tmp_path), tmp_path / "syncs"
    syncs.create(control)
    syncs.order(control, delay_ms=1, to_fail=1)
    program = (
        "import os\n"
        "file = os.open('x', os.O_CREAT | os.O_WRONLY)\n"
        "for sync in (os.fsync, os.fsync, os.fdatasync):\n"
        "    try:\n"
        "        sync(file)\n"
        "    except OSError as error:\n"
        "        print(error.errno)\n"
    )

    done = await trio.run_process(
        ["/usr/bin/env", "python3", "-c", program],
        capture_stdout=True,
        cwd=tmp_path,
        env={"PATH": os.defpath, "LD_PRELOAD": str(library), "CHAOS_SYNCS": str(control)},
    )

    assert done.stdout == b"5\n"
    counts = syncs.read(control)
    assert (counts.failed, counts.delayed) == (1, 2)
    assert counts.syncs >= 3
