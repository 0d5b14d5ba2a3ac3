"""Text about a cluster: what an operator reads at night."""

from hypothesis import given
from hypothesis import strategies as st

from corvo.client.cluster import (
    ClusterState,
    Event,
    Events,
    Node,
    Nodes,
    Removed,
    Replica,
    Shard,
    Status,
)
from corvo.client_commands.cluster_view import (
    cell,
    events_text,
    node_text,
    nodes_text,
    status_text,
)
from corvo.client_commands.tables import counted, plain, ranges, table

LOST = "unreachable: nothing listens at 10.0.0.3:9400: connection refused"
NODES = [
    Node(
        number=1,
        name="a",
        address="10.0.0.1:9400",
        version="1.2.0",
        state="active",
        is_reachable=True,
        leads=[0, 1],
        replicas=[0, 1],
    ),
    Node(
        number=2,
        name="b",
        address="10.0.0.2:9400",
        version="1.2.0",
        state="draining",
        is_reachable=True,
        replicas=[0],
        reason="draining: 1 of its replicas are not moved yet",
    ),
    Node(
        number=3,
        name="c",
        address="10.0.0.3:9400",
        version="1.2.0",
        state="active",
        is_reachable=False,
        replicas=[0, 1],
        reason=LOST,
    ),
]


def replica(node: int, role: str = "follower", **more: object) -> Replica:
    fields = {"node": node, "is_reachable": True, "is_voter": True, "role": role, **more}
    return Replica(**fields)  # type: ignore[arg-type]  # fields of any type, checked by the text


SHARDS = [
    Shard(
        shard=0,
        status="degraded",
        term=7,
        leader=1,
        placed_on=[1, 3],
        replicas=[
            replica(1, "leader", lag=0),
            replica(2, lag=12, reason="it is moved away: it leaves the group after that"),
            Replica(node=3, is_reachable=False, is_voter=True, reason="unreachable: …"),
        ],
    ),
    Shard(
        shard=1,
        status="degraded",
        term=12,
        leader=1,
        placed_on=[1, 2, 3],
        replicas=[
            replica(1, "leader", lag=0),
            replica(
                2,
                is_voter=False,
                snapshot_received_bytes=40,
                snapshot_size_bytes=100,
                reason="it copies a snapshot: 40 % of 100 bytes",
            ),
            Replica(node=3, is_reachable=False, is_voter=True),
        ],
    ),
]
STATE = ClusterState(
    status="degraded",
    replicas=3,
    nodes=NODES,
    shards=SHARDS,
    reasons=[
        f"node 3 (c): {LOST}",
        "shard 1 on node 2 (b): it copies a snapshot: 40 % of 100 bytes",
    ],
)


def test_the_status_has_faults_nodes_shards_and_notes() -> None:
    assert status_text(Status(status="degraded", cluster=STATE)) == (
        "status: degraded\n"
        "  node 3 (c): unreachable: nothing listens at 10.0.0.3:9400: connection refused\n"
        "  shard 1 on node 2 (b): it copies a snapshot: 40 % of 100 bytes\n"
        "\n"
        "NODE  NAME  STATE        LEADS  REPLICAS  ADDRESS        VERSION  REASON\n"
        "1     a     active       0-1    0-1       10.0.0.1:9400  1.2.0    -\n"
        "2     b     draining     -      0         10.0.0.2:9400  1.2.0    "
        "draining: 1 of its replicas are not moved yet\n"
        "3     c     unreachable  -      0-1       10.0.0.3:9400  1.2.0    "
        "unreachable: nothing listens at 10.0.0.3:9400: connection refused\n"
        "\n"
        "SHARD  STATUS    TERM  a       b                    c\n"
        "0      degraded  7     leader  follower, 12 behind  unreachable\n"
        "1      degraded  12    leader  copies 40 %          unreachable\n"
        "\n"
        "notes:\n"
        "  shard 0 on node 2 (b): it is moved away: it leaves the group after that\n"
    )


def test_a_cluster_of_many_nodes_lists_the_replicas_of_each_shard() -> None:
    nodes = [Node(number=number, name=f"n{number}", state="active") for number in range(1, 10)]
    state = ClusterState(status="healthy", replicas=3, nodes=nodes, shards=SHARDS[:1], reasons=[])

    text = status_text(Status(status="healthy", cluster=state))

    assert "SHARD  STATUS    TERM  REPLICAS\n" in text
    assert "n1: leader; n2: follower, 12 behind; n3: unreachable\n" in text


def test_a_server_alone_is_no_cluster() -> None:
    assert status_text(Status(status="healthy", shards=4)) == (
        "status: healthy\none server with 4 shards; it is not a node of a cluster\n"
    )


def test_each_replica_is_a_word_or_two() -> None:
    placed = Shard(shard=0, status="healthy", term=1, placed_on=[1, 2, 3], replicas=[])
    away = Shard(shard=0, status="healthy", term=1, placed_on=[3], replicas=[])

    assert cell(replica(1, "pre_candidate"), placed) == "pre-candidate"
    assert cell(replica(1, is_voter=False, lag=3), placed) == "learner, 3 behind"
    assert cell(replica(1, is_repairing=True), placed) == "repairs"
    assert cell(replica(1, ""), placed) == "no answer"
    assert cell(replica(1, is_voter=False), away) == "left"
    assert cell(replica(1), away) == "follower"


def test_nodes_and_one_node() -> None:
    removed = Removed(
        number=4, name="d", reason="disk lost", removed_at="2026-02-20T10:00:05.123456789Z"
    )

    assert nodes_text(Nodes(nodes=NODES[:1], replicas=3, removed=[removed])) == (
        "NODE  NAME  STATE   LEADS  REPLICAS  ADDRESS        VERSION\n"
        "1     a     active  0-1    0-1       10.0.0.1:9400  1.2.0\n"
        "\n"
        "removed:\n"
        "NODE  NAME  AT                    REASON\n"
        "4     d     2026-02-20T10:00:05Z  disk lost\n"
    )
    assert node_text(NODES[2]) == (
        "node       3\n"
        "name       c\n"
        "state      unreachable\n"
        "reachable  no\n"
        "leads      none\n"
        "replicas   shards 0-1\n"
        "address    10.0.0.3:9400\n"
        "version    1.2.0\n"
        f"reason     {LOST}\n"
    )
    assert "reachable  not known: it has no replicas\n" in node_text(Node(number=9, name="i"))


def test_events() -> None:
    event = Event(seq=7, type="leader_elected", at="2026-02-20T10:00:05.25Z", text="node 2 leads")

    since = "2026-02-20T09:12:41Z"
    assert events_text(Events(events=[event], since=since)) == (
        "AT                    TYPE            EVENT\n"
        "2026-02-20T10:00:05Z  leader_elected  node 2 leads\n"
    )
    assert events_text(Events(events=[], since=since, missing_nodes=[2])) == (
        "no event since 2026-02-20T09:12:41Z\n"
        "no answer from node 2: events that only it has seen are missing\n"
    )


@given(st.lists(st.lists(st.text(max_size=8), min_size=2, max_size=2), min_size=1))
def test_no_text_of_a_server_acts_on_the_terminal(rows: list[list[str]]) -> None:
    text = table(("ONE", "TWO"), rows)

    assert text.count("\n") == len(rows) + 1
    assert all(letter.isprintable() for letter in text.replace("\n", ""))
    assert plain("a\x1b[2Jb\n") == "a?[2Jb?"


@given(st.sets(st.integers(0, 70)))
def test_ranges_are_the_same_numbers_in_short(numbers: set[int]) -> None:
    read: set[int] = set()
    for part in ranges(numbers).split(",") if numbers else []:
        first, _, last = part.partition("-")
        read |= {*range(int(first), int(last or first) + 1)}

    assert read == numbers


def test_ranges_and_counts() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert ranges([]) == "-"
    assert [counted(count, "replica") for count in (0, 1, 2)] == [
        "0 replicas",
        "1 replica",
        "2 replicas",
    ]
