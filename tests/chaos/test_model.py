"""The reference model: what follows from one change after another."""

from chaos.history import NewJob
from chaos.model import ACTIVE, PENDING, Model


def pending(model: Model, job: int, queue: str) -> None:
    model.enqueue(job, queue, PENDING, NewJob(queue=queue), 0)


def test_a_job_that_was_moved_while_a_worker_had_it_comes_back_behind_those_of_its_new_queue() -> (
    None
):
    """Found by a run: seed 6506. The model let it keep the place of its old queue."""
    model = Model(lambda _: None)
    pending(model, 1, "there")
    model.start(1, 0, 1, None, None)
    pending(model, 2, "here")
    model.move(1, "here", 0, 1)
    model.crash(1, 0, PENDING)

    model.start(2, 0, 1, None, None)
    model.start(1, 0, 1, None, None)

    assert model.blames == []


def test_a_job_that_arrives_with_its_worker_comes_back_behind_those_of_its_new_queue() -> None:
    model = Model(lambda _: None)
    pending(model, 1, "there")
    model.start(1, 0, 1, None, None)
    pending(model, 2, "here")
    model.leave(1)
    model.arrive(1, "here", ACTIVE, 0, 1)
    model.crash(1, 0, PENDING)

    model.start(2, 0, 1, None, None)
    model.start(1, 0, 1, None, None)

    assert model.blames == []


def test_a_job_that_lost_its_worker_comes_back_before_those_that_came_later() -> None:
    model = Model(lambda _: None)
    pending(model, 1, "here")
    model.start(1, 0, 1, None, None)
    pending(model, 2, "here")
    model.crash(1, 0, PENDING)

    model.start(2, 0, 1, None, None)

    assert [blame.rule for blame in model.blames] == ["O1"]
