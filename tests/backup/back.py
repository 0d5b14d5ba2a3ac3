"""A backup in memory comes back to new shards, as a router would send it."""

import msgspec

from corvo.backup.documents import Documents, Selects
from corvo.backup.restoring import Page, Restoring
from corvo.client.backups import Restored
from corvo.kv.store import Store
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.restore import Restore
from corvo.protocol.ops.restore import Restored as Told
from corvo.router.backups.placing import RestoreBody, parts_of
from corvo.router.http.request_keys import OwnedKey
from tests.shard.cluster import Cluster
from tests.shard.shard import START_NS
from tests.support.memory import MemoryStore


class Target:
    """Shards, with the face of a client."""

    def __init__(self, shards: int) -> None:
        self.cluster = Cluster(shards)
        for shard in self.cluster.shards:
            shard.clock_ns = START_NS + 3_600_000_000_000
        self.pages = 0

    def send(self, page: Page, request_key: str) -> Restored:
        """Do what `POST /api/v1/admin/restore` does."""
        self.pages += 1
        body = msgspec.json.decode(msgspec.json.encode(page), type=RestoreBody)
        parts, key = parts_of(body, len(self.cluster.shards)), OwnedKey(request_key)
        leads = self._submit(parts.leads(), key, "leads")
        existing = [each for told in leads for each in told.existing]
        done = self._submit(parts.documents(existing), key, "documents")
        existing += [each for told in done for each in told.existing]
        return Restored(
            jobs=sum(told.jobs for told in done),
            queues=sum(told.queues for told in done),
            batches=sum(told.batches for told in done),
            schedules=sum(told.schedules for told in done),
            spawned=sum(told.spawned for told in done),
            existing=len(existing),
            existing_ids=existing,
        )

    def _submit(self, ops: "dict[int, Restore]", key: OwnedKey, what: str) -> list[Told]:
        found = []
        for shard, op in ops.items():
            told = self.cluster.shards[shard].do(key.on(op, "restore", what, shard))
            assert not isinstance(told, Rejected), told
            found.append(told)
        return found


def cut(cluster: Cluster) -> dict[int, Store]:
    """Copies of all shards of now."""
    return {shard.number: MemoryStore(shard.store.content()) for shard in cluster.shards}


def brought_back(stores: dict[int, Store], shards: int, selects: Selects | None = None) -> Target:
    """New shards with what the copies have."""
    target = Target(shards)
    again(target, stores, selects)
    return target


def again(target: Target, stores: dict[int, Store], selects: Selects | None = None) -> Restored:
    """Bring copies back to shards that may have something."""
    restoring = Restoring(
        target.send,
        Documents(stores, selects),
        cluster="rookery",
        shards=len(stores),
        step=lambda _: None,
    )
    done = restoring.run()
    return Restored(jobs=done.jobs, existing=done.existing, existing_ids=done.existing_ids)
