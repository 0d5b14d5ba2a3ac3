"""Resources of this process, from the kernel: processor time, memory, threads, descriptors.

Reading must not fail when the process has no descriptors left, which is when an operator looks. So
/proc/self/stat is held open, and a value that cannot be read stays as it was.
"""

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

from corvo import clock
from corvo.measures import ProcessStats

_STAT: Final = Path("/proc/self/stat")
_UPTIME: Final = Path("/proc/uptime")
_DESCRIPTORS: Final = "/proc/self/fd"
_STAT_BYTES: Final = 4_096


class ProcessStatsReader:
    """Reads the resources of this process."""

    def __init__(self) -> None:
        self._stat = os.open(_STAT, os.O_RDONLY | os.O_CLOEXEC)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._descriptors = 0
        ticks = int(self._fields()[19])
        uptime_s = float(_UPTIME.read_text().split()[0])
        began_s = clock.now_ns() / 1e9 - uptime_s  # of the machine
        self._started_s = began_s + ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Close the file that is held open."""
        os.close(self._stat)

    def read(self) -> ProcessStats:
        """The resources as they are now."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        fields = self._fields()
        with suppress(OSError):  # it takes a descriptor on older kernels, and there may be none
            self._descriptors = _count_descriptors()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ProcessStats(
            cpu_user_s=usage.ru_utime,
            cpu_system_s=usage.ru_stime,
            resident_bytes=int(fields[21]) * self._page_bytes,
            threads=int(fields[17]),
            descriptors=self._descriptors,
            descriptors_max=soft,
            started_s=self._started_s,
        )

    def _fields(self) -> list[bytes]:
        """Those behind the name, which may hold anything: the first one is the state."""
        text = os.pread(self._stat, _STAT_BYTES, 0)
        return text[text.rindex(b")") + 2 :].split()


def _count_descriptors() -> int:
    """How many are open. Newer kernels say it; with older ones they have to be counted."""
    told = os.stat(_DESCRIPTORS).st_size  # noqa: PTH116 -- a folder of the kernel's, not of ours
    if told:
        return told
    return len(os.listdir(_DESCRIPTORS)) - 1  # noqa: PTH208 -- ten times faster; one is its own
