"""The rules of the cluster map once more, as `docs/semantics.md` has them, with dictionaries.

Nothing here is shared with Corvo. `MapTwin.do` says what an op has to be answered.
"""

from dataclasses import asdict, dataclass
from typing import Final, cast

from tests.shard.shapes import Fields, Refusal, number, rows, text

NODES_MAX: Final = 128
DESCRIBED: Final = (
    *("name", "instance", "address", "url", "zone", "version", "op_version", "wire_version"),
)


@dataclass(slots=True)
class Node:
    number: int
    name: str
    instance: str = ""
    address: str = ""
    url: str = ""
    zone: str = ""
    version: str = ""
    op_version: int = 0
    wire_version: int = 0
    is_draining: bool = False


class MapTwin:
    """What the map of a cluster should be."""

    def __init__(self, shards: int) -> None:
        self.nodes: dict[int, Node] = {}
        self.removed: list[Fields] = []
        self.last = self.version = 0
        self.replicas = 3
        self.places: list[list[int]] = [[] for _ in range(shards)]
        self.is_placed = True
        self.op_version = 3

    def shown(self) -> Fields:
        """The map as JSON, with every field."""
        return {
            "version": self.version,
            "replicas": self.replicas,
            "nodes": [asdict(self.nodes[number]) for number in sorted(self.nodes)],
            "last_number": self.last,
            "places": [[*row] for row in self.places],
            "is_placed": self.is_placed,
            "removed": [{**gone} for gone in self.removed],
            "op_version": self.op_version,
        }

    def do(self, op: str, fields: Fields, *, now_ns: int) -> Fields:
        """What an op has to be answered."""
        try:
            return self._do(op, fields, now_ns)
        except Refusal as no:
            return no.answer

    def _do(self, op: str, fields: Fields, now_ns: int) -> Fields:
        if op == "Announce":
            return self._announce(fields)
        if not self.nodes:
            raise Refusal("no_map")
        if op == "DrainNode":
            status = self._drain(self._find(fields), bool(fields.get("is_draining", True)))
        elif op == "RemoveNode":
            node = self._find(fields)
            if fields.get("base", 0) not in {0, self.version}:
                raise Refusal("map_changed")
            status = self._remove(node, text(fields, "reason"), now_ns)
        elif op == "RaiseOpVersion":
            status = self._raise(number(fields, "base"), number(fields, "op_version"))
        elif op == "SetReplicas":
            status = self._set_replicas(number(fields, "replicas"))
        else:
            status = self._place(number(fields, "base"), places_of(fields))
        return {"status": status, "version": self.version}

    def _changed(self, *, is_placed: bool = False) -> None:
        self.version += 1
        self.is_placed = is_placed

    # A node that starts.

    def _announce(self, fields: Fields) -> Fields:
        known = self
        if not self.nodes:
            if "first" not in fields:
                raise Refusal("no_map")
            known = MapTwin(len(self.places))
            known._begin(cast("Fields", fields["first"]))
        wanted = known._number_of(fields)
        if known.op_version > 3 and number(fields, "op_version") < known.op_version:
            raise Refusal("older_release")
        if known is not self:
            self.nodes, self.last, self.places = known.nodes, known.last, known.places
            self.replicas, self.is_placed = known.replicas, known.is_placed
            self.op_version = known.op_version
            self._changed(is_placed=self.is_placed)
        self._describe(wanted, fields, is_new=known is not self)
        return {"number": wanted or self.last, "map": self._answered()}

    def _answered(self) -> Fields:
        """The map as it is sent: without what is at its default."""
        fields = self.shown()
        for name, default in (("replicas", 3), ("is_placed", True), ("op_version", 3)):
            if fields[name] == default:
                del fields[name]
        return fields

    def _begin(self, first: Fields) -> None:
        for row in rows(first, "nodes"):
            node = Node(number(row, "number"), text(row, "name"), zone=text(row, "zone"))
            self.nodes[node.number] = node
        self.last = number(first, "last_number")
        self.places = places_of(first)
        self.replicas = number(first, "replicas", 3)
        self.is_placed = bool(first.get("is_placed", True))
        self.op_version = number(first, "op_version", 3)

    def _number_of(self, fields: Fields) -> int:
        """The number of a node; 0 for one that joins."""
        claimed, instance = number(fields, "number"), text(fields, "instance")
        if any(claimed == gone["number"] or instance == gone["instance"] for gone in self.removed):
            raise Refusal("node_removed")
        owned = [node.number for node in self.nodes.values() if node.instance == instance]
        if owned and claimed not in (0, *owned):
            raise Refusal("other_instance")
        if not owned and claimed:
            if claimed > self.last:
                raise Refusal("node_not_found")
            if claimed not in self.nodes:
                raise Refusal("node_removed")
            if self.nodes[claimed].instance:
                raise Refusal("other_instance")
        wanted = owned[0] if owned else claimed
        others = [node.name for node in self.nodes.values() if node.number != wanted]
        if fields["name"] in others:
            raise Refusal("name_taken")
        if not wanted and len(self.nodes) >= NODES_MAX:
            raise Refusal("too_many_nodes")
        return wanted

    def _describe(self, wanted: int, fields: Fields, *, is_new: bool) -> None:
        before = self.nodes.get(wanted)
        if before is None:
            self.last += 1
            node = Node(self.last, "")
            self.nodes[node.number] = node
            self.is_placed = False
        else:
            node = before
        said = {name: fields.get(name, getattr(Node(0, ""), name)) for name in DESCRIBED}
        if before is not None and before.zone != said["zone"]:
            self.is_placed = False
        has_changed = before is None or any(
            getattr(before, name) != value for name, value in said.items()
        )
        for name, value in said.items():
            setattr(node, name, value)
        if has_changed and not is_new:
            self.version += 1

    # Other changes.

    def _find(self, fields: Fields) -> Node:
        for node in self.nodes.values():
            if node.number == fields.get("number") or node.name == fields.get("name"):
                return node
        raise Refusal("node_not_found")

    def carriers(self) -> list[int]:
        """Nodes that may have replicas."""
        staying = [node.number for node in self.nodes.values() if not node.is_draining]
        return staying or [*self.nodes]

    def _drain(self, node: Node, is_draining: bool) -> str:
        if node.is_draining != is_draining:
            if is_draining and self.carriers() == [node.number]:
                raise Refusal("last_node")
            node.is_draining = is_draining
            self._changed()
        return "draining" if is_draining else "not_draining"

    def _remove(self, node: Node, reason: str, now_ns: int) -> str:
        if len(self.nodes) == 1:
            raise Refusal("last_node")
        if [node.number] in self.places:
            raise Refusal("last_replica")
        del self.nodes[node.number]
        self.removed.append(
            {
                "number": node.number,
                "name": node.name,
                "instance": node.instance,
                "reason": reason,
                "removed_ns": now_ns,
            }
        )
        self.places = [[each for each in row if each != node.number] for row in self.places]
        self._changed()
        return "removed"

    def _set_replicas(self, replicas: int) -> str:
        if replicas != self.replicas:
            self.replicas = replicas
            self._changed()
        return "ok"

    def _raise(self, base: int, wanted: int) -> str:
        if base != self.version:
            raise Refusal("map_changed")
        if wanted > self.op_version:
            if any(node.op_version < wanted for node in self.nodes.values()):
                raise Refusal("older_release")
            self.op_version = wanted
            self._changed(is_placed=self.is_placed)
        return "raised"

    def _place(self, base: int, places: list[list[int]]) -> str:
        if base != self.version:
            raise Refusal("map_changed")
        carriers = {*self.carriers()}
        is_good = len(places) == len(self.places) and all(
            0 < len(row) <= self.replicas and len({*row}) == len(row) and {*row} <= carriers
            for row in places
        )
        if not is_good:
            raise Refusal("bad_places")
        self.places = places
        self._changed(is_placed=True)
        return "placed"


def places_of(fields: Fields) -> list[list[int]]:
    return [[*row] for row in cast("list[list[int]]", fields["places"])]
