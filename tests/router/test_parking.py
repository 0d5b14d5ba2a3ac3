"""Who is woken when there may be work: nobody waits beside a job, and few are woken for nothing."""

from collections import deque
from functools import partial
from random import Random
from typing import Final

import pytest

from corvo.router.shards.waiting import WAKE_MAX, WaitingFetch, WaitingFetches

QUEUES: Final = ("mail", "images")


class Client:
    """A fetch as its task sees it: it asks, hears, and is parked."""

    def __init__(self, world: "World", queues: tuple[str, ...]) -> None:
        self.world = world
        self.answers: deque[str | None] = deque()
        self.is_rung = False
        self.waiting = world.parking.begin(queues, self.ring)
        self.ask()

    def ring(self) -> None:
        self.is_rung = True

    def ask(self) -> None:
        self.world.to_shard.append(self)

    def step(self) -> None:
        """Do what the task would do, if there is anything."""
        parking = self.world.parking
        if self.answers:
            found = self.answers.popleft()
            if found is not None:
                self.leave(found=True)
            elif not parking.park(self.waiting):
                self.ask()
        elif self.is_rung:
            self.is_rung = False
            self.ask()

    def leave(self, *, found: bool = False) -> None:
        self.world.parking.end(self.waiting, found=found)
        self.world.clients.remove(self)
        if found:
            return
        # What it asked for is given back, as is what it would have got.
        if self.world.to_shard.count(self):
            self.world.to_shard.remove(self)
        for answer in self.answers:
            if answer is not None:
                self.world.enqueue(answer)


class World:
    """One shard as `corvo.shard.empty_fetches` has it, one link in order, tasks in any."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.parking = WaitingFetches()
        self.jobs = dict.fromkeys(QUEUES, 0)
        self.watched: set[str] = set()
        self.to_shard: deque[Client] = deque()
        self.to_router: deque[tuple[Client, str | None] | str] = deque()
        self.clients: list[Client] = []
        self.asked = 0

    def enqueue(self, queue: str) -> None:
        self.jobs[queue] += 1
        if queue in self.watched:
            self.watched.discard(queue)
            self.to_router.append(queue)

    def carry_out(self) -> None:
        """The shard takes the next fetch."""
        client = self.to_shard.popleft()
        self.asked += 1
        for queue in client.waiting.queues:
            if self.jobs[queue]:
                self.jobs[queue] -= 1
                self.to_router.append((client, queue))
                return
        self.watched.update(client.waiting.queues)
        self.to_router.append((client, None))

    def deliver(self) -> None:
        """The router hears the next message; whoever is meant acts on it when its turn comes."""
        message = self.to_router.popleft()
        if isinstance(message, str):
            self.parking.notify(message)
            return
        client, found = message
        if client in self.clients:
            client.answers.append(found)
        elif found is not None:
            self.enqueue(found)

    def step(self) -> bool:
        """Let something happen that is under way. False when nothing is."""
        able = [client for client in self.clients if client.answers or client.is_rung]
        choices = [
            *([self.carry_out] if self.to_shard else []),
            *([self.deliver] if self.to_router else []),
            *([self.random.choice(able).step] if able else []),
        ]
        if choices:
            self.random.choice(choices)()
        return bool(choices)

    def settle(self) -> None:
        while self.step():
            pass


@pytest.mark.parametrize("seed", range(300))
def test_when_all_is_quiet_nobody_waits_for_a_queue_that_has_jobs(seed: int) -> None:
    random = Random(seed)
    world = World(random)

    weights = [random.random() ** 2 for _ in range(3)]
    for _ in range(random.randrange(10, 200)):
        [what] = random.choices(("come", "enqueue", "leave", "step"), [*weights, 2.0])
        if what == "come":
            chosen = random.choice([("mail",), ("images",), QUEUES, QUEUES[::-1]])
            world.clients.append(Client(world, chosen))
        elif what == "enqueue":
            world.enqueue(random.choice(QUEUES))
        elif what == "leave" and world.clients:
            random.choice(world.clients).leave()
        else:
            world.step()
    # Some leave in the middle of something, and nothing comes behind it that would make it good.
    for _ in range(random.randrange(4)):
        world.step()
        busy = [client for client in world.clients if client.waiting.is_asking]
        if busy:
            random.choice(busy).leave()
    world.settle()

    waiting = {queue for client in world.clients for queue in client.waiting.queues}
    assert not [queue for queue in waiting if world.jobs[queue]]
    assert world.parking.parked_count == len(world.clients)


def test_a_job_now_and_then_costs_one_fetch_more_than_it_must_whoever_waits() -> None:
    world = World(Random(1))
    world.clients = [Client(world, ("mail",)) for _ in range(50)]
    world.settle()
    before = world.asked

    for _ in range(20):
        world.enqueue("mail")
        world.settle()

    assert world.asked - before <= 2 * 20


def test_many_jobs_at_once_wake_many_in_few_rounds() -> None:
    parking = WaitingFetches()
    woken: list[int] = []
    fetches = [parking.begin(("mail",), partial(woken.append, place)) for place in range(100)]
    assert all(parking.park(waiting) for waiting in fetches)

    parking.notify("mail")
    rounds = 0
    done = 0
    while done < len(woken):
        rounds += 1
        turn = woken[done:]
        done = len(woken)
        for place in turn:
            parking.end(fetches[place], found=True)

    assert len(woken) == 100
    assert rounds <= 9


def test_who_is_woken_at_once_has_a_limit() -> None:
    parking = WaitingFetches()
    woken: list[WaitingFetch] = []
    for _ in range(5 * WAKE_MAX):
        parking.park(parking.begin(("mail",), lambda: woken.append(first)))
    first = parking.begin(("mail",), lambda: None)
    first.wake_count = WAKE_MAX

    parking.end(first, found=True)

    assert len(woken) == WAKE_MAX


def test_the_longest_parked_is_woken_first_and_alone() -> None:
    parking = WaitingFetches()
    woken: list[int] = []
    for place in range(3):
        parking.park(parking.begin(("mail",), partial(woken.append, place)))

    parking.notify("mail")

    assert woken == [0]


def test_who_is_woken_and_leaves_before_it_has_looked_wakes_the_next() -> None:
    parking = WaitingFetches()
    woken: list[int] = []
    fetches = [parking.begin(("mail",), partial(woken.append, place)) for place in range(2)]
    assert all(parking.park(waiting) for waiting in fetches)

    parking.notify("mail")
    parking.end(fetches[0])

    assert woken == [0, 1]


def test_news_for_nobody_is_no_news() -> None:
    parking = WaitingFetches()
    waiting = parking.begin(("images",), lambda: None)

    parking.notify("mail")

    assert parking.park(waiting)


def test_after_a_new_leader_all_who_wait_for_its_queues_ask_again() -> None:
    parking = WaitingFetches()
    woken: list[str] = []
    for queue in (*QUEUES, *QUEUES):
        parking.park(parking.begin((queue,), partial(woken.append, queue)))
    asking = parking.begin(QUEUES, lambda: None)

    parking.recheck(lambda queue: queue == "mail")

    assert woken == ["mail", "mail"]
    assert not parking.park(asking)


def test_nothing_is_kept_of_who_has_left() -> None:
    parking = WaitingFetches()
    fetches = [parking.begin(QUEUES, lambda: None) for _ in range(4)]
    parking.park(fetches[0])
    parking.park(fetches[1])

    for waiting in fetches:
        parking.end(waiting)

    assert parking.parked_count == 0
    assert not parking._parked
    assert not parking._asking
