"""Check of a whole data directory that no server uses. It is read, and changed in nothing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from corvo import clock
from corvo.client.errors import BadClientOption
from corvo.client_commands.failures import CommandFailed
from corvo.datadir import DataDir, DirectoryInUse, DirectoryUnfit
from corvo.errors import CorvoError
from corvo.kv import directories
from corvo.mirror.follow.writing import BOOT_ID
from corvo.verify.logs import verify_log
from corvo.verify.members import MemberCounts
from corvo.verify.mirrors import verify_mirror
from corvo.verify.node_files import Node, verify_node
from corvo.verify.report import Part, Report
from corvo.verify.shards import Together, verify_shard, verify_together
from corvo.verify.states import OpenState, open_state

_LIVE: Final = "check it while it runs:   corvo verify http://127.0.0.1:8080"


def verify_directory(root: Path, scratch: Path, step: Callable[[int], None]) -> Report:
    """Check everything in a data directory; `scratch` is an empty directory for copies.

    Raises `ClientError` for a directory that cannot be checked at all.
    """
    began_ns = clock.steady_ns()
    directory = DataDir(root)
    report = Report(str(root))
    with ExitStack() as undo:
        undo.enter_context(_held(directory))
        node = verify_node(directory, report)
        if node is not None:
            _verify_parts(directory, node, scratch, report, step, undo)
    report.settle()
    report.seconds = (clock.steady_ns() - began_ns) / 1e9
    return report


@contextmanager
def _held(directory: DataDir) -> Iterator[None]:
    """A block in which no server can start on the directory."""
    root = directory.root
    try:
        if not root.exists():
            raise BadClientOption(
                f"{root} does not exist",
                "pass the data directory of a server:   corvo config shows data_dir",
            )
        if not root.is_dir():
            raise BadClientOption(f"{root} is not a directory", "pass the data directory itself")
        if not any(root.iterdir()):
            raise BadClientOption(
                f"{root} is empty",
                "pass the data directory of a server:   corvo config shows data_dir",
            )
        if not any(root.joinpath(name).exists() for name in ("node.json", "shard-0", "lock")):
            raise BadClientOption(
                f"{root} is not a data directory of Corvo: it has no node.json",
                "pass the data directory of a server:   corvo config shows data_dir",
            )
        held = directory.hold()
    except PermissionError as error:
        raise BadClientOption(
            f"{root} cannot be read: {error.strerror}",
            "repeat the command as the user that runs the server",
        ) from error
    except DirectoryUnfit as error:
        raise BadClientOption(
            str(error), "repeat the command as the user that runs the server"
        ) from error
    except DirectoryInUse as error:
        holders = ", ".join(directory.holders())
        raise CommandFailed(
            "IN_USE",
            f"{error}{f': process {holders}' if holders else ''}",
            hints=["stop the server first, or check a copy of the stopped directory", _LIVE],
        ) from error
    try:
        yield
    finally:
        if held is not None:
            directories.unlock(held)


def _verify_parts(
    directory: DataDir,
    node: Node,
    scratch: Path,
    report: Report,
    step: Callable[[int], None],
    undo: ExitStack,
) -> None:
    boot_id = BOOT_ID.read_text().strip()
    here = [number for number in directory.shards_there() if number < node.identity.shards]
    states: dict[int, OpenState] = {}
    parts: dict[int, Part] = {}
    for number in here:
        parts[number] = report.part(f"shard {number}")
        state = _open_shard(directory, node, number, scratch, parts[number], boot_id)
        if state is not None:
            undo.callback(state.store.close)
            states[number] = state
    together = Together(states, shards=node.identity.shards)
    with MemberCounts() as members:
        is_known = _look(together, report)
        for number, state in states.items():
            verify_shard(number, state, together, members, parts[number], step)
        if is_known:
            verify_together(together, members, report.part("between shards"))
        verify_mirror(
            directory.mirror,
            scratch,
            together,
            node.identity.cluster,
            report.part("mirror"),
            step,
            boot_id,
        )


def _open_shard(
    directory: DataDir, node: Node, number: int, scratch: Path, part: Part, boot_id: str
) -> OpenState | None:
    """Check the files of a shard, and open its state; the log is closed again."""
    root = directory.shard(number)
    opened = verify_log(root / "log", number, node.identity, node.notes.get(number), part)
    try:
        return open_state(
            root / "state",
            scratch / f"state-{number}",
            opened[0] if opened is not None else None,
            part,
            shard=number,
            shards=node.identity.shards,
            boot_id=boot_id,
            is_alone=node.is_alone,
        )
    finally:
        if opened is not None:
            opened[1].close()


def _look(together: Together, report: Report) -> bool:
    """Read what is on its way between shards; whether that could be read."""
    try:
        together.look()
    except (CorvoError, msgspec.MsgspecError) as error:
        report.part("between shards").skipped("effects", f"cannot be read: {error}")
        return False
    return True
