"""What tests of clusters read of the answers of nodes."""

import msgspec


class Made(msgspec.Struct):
    """The answer for a job."""

    job_id: str


class Given(msgspec.Struct):
    """A job that was fetched."""

    job_id: str
    lease_token: int = 0


class Page(msgspec.Struct):
    """A page of a search."""

    total: int
    is_behind: bool = False


class Node(msgspec.Struct):
    """A node of the cluster."""

    name: str
    zone: str = ""
    leads: list[int] = []
    replicas: list[int] = []
    state: str = ""


class Nodes(msgspec.Struct):
    """The nodes of the cluster."""

    nodes: list[Node]


class Replica(msgspec.Struct):
    """A replica of a shard."""

    node: int
    is_voter: bool


class Shard(msgspec.Struct):
    """A shard."""

    replicas: list[Replica]


class View(msgspec.Struct):
    """The cluster."""

    status: str
    shards: list[Shard]


class Status(msgspec.Struct):
    """The status of the cluster."""

    cluster: View
