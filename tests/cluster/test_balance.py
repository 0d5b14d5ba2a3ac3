"""The judge of places: equally many replicas and leaders, and different zones."""

from tests.cluster.answers import Node
from tests.cluster.balance import imbalance


def test_an_imbalance_is_seen() -> None:
    balanced = [
        Node("a", "x", [0], [0, 1]),
        Node("b", "y", [1], [0, 1]),
        Node("c", "z", [], [0]),
        Node("d", "z", [], [1]),
    ]
    one_short = [*balanced[:3], Node("d", "z")]
    uneven = [*balanced[:2], Node("c", "z", [], [0, 1]), Node("d", "z")]
    same_zone = [*balanced[:3], Node("d", "x", [], [1])]

    assert imbalance(balanced, 2) == ""
    assert imbalance(one_short, 2) == "5 replicas and 2 leaders of 2 shards"
    assert imbalance(uneven, 2) == "replicas of nodes: [2, 2, 2, 0]"
    assert imbalance(same_zone, 2) == "replicas of nodes: [2, 2, 1, 1]"
