"""The cluster of a run: processes, networks, disks and clocks that a fault can break."""
