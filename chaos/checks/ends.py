"""The jobs of the final reading as columns.

A reading has each job once for its shard and once for each mirror. As objects they would be most of
the checker's memory.
"""

from array import array

from chaos.checks.feeds import Names
from chaos.history import FinalJob, JobRow


class Ends:
    """Jobs as the shards gave them at the end, and what the mirrors gave."""

    def __init__(self, jobs: Names, queues: Names) -> None:
        self.jobs, self.queues = jobs, queues
        self.nodes, self.states = Names(), Names()
        self.job = array("i")
        self.queue = array("i")
        self.state = array("h")
        self.attempt = array("i")
        self.priority = array("b")
        self.mark = array("q")
        self.sha = array("Q")
        self.linked: list[JobRow] = []
        """Jobs of batches and chains, from the shards."""
        self.mirror_node = array("h")
        self.mirror_job = array("i")
        self.mirror_sum = array("q")
        self.row_of = array("i")
        """Job to its row; -1 if no shard gave it."""

    def add(self, record: FinalJob) -> None:
        """Take a job."""
        row = record.row
        job = self.jobs.number(row.job_id)
        if record.source == "mirror":
            self.mirror_node.append(self.nodes.number(record.node))
            self.mirror_job.append(job)
            self.mirror_sum.append(
                self.sum(
                    self.queues.number(row.queue), self.states.number(row.state), row.attempt,
                    row.priority,
                )
            )  # fmt: skip
            return
        self.job.append(job)
        self.queue.append(self.queues.number(row.queue))
        self.state.append(self.states.number(row.state))
        self.attempt.append(row.attempt)
        self.priority.append(row.priority)
        self.mark.append(hash(row.mark) if row.mark else 0)
        self.sha.append(int(row.sha or "0", 16))
        if row.batch_id or row.chain_id:
            self.linked.append(row)

    def finish(self) -> None:
        """All jobs were taken."""
        self.row_of = array("i", [-1]) * len(self.jobs)
        for row, job in enumerate(self.job):
            self.row_of[job] = row

    @staticmethod
    def sum(queue: int, state: int, attempt: int, priority: int) -> int:
        """The fields that a mirror must have as the shard has them, in one number."""
        return ((queue << 8 | state) << 24 | attempt) << 4 | priority

    def sum_of(self, row: int) -> int:
        """Those of a job in its shard."""
        return self.sum(self.queue[row], self.state[row], self.attempt[row], self.priority[row])

    def told(self, number: int) -> str:
        """Those fields as text."""
        queue, state = number >> 36, number >> 28 & 0xFF
        return (
            f"{self.states.texts[state]} in {self.queues.texts[queue]}, attempt "
            f"{number >> 4 & 0xFFFFFF}, priority {number & 0xF}"
        )

    def row(self, job: int) -> int:
        """The row of a job; -1 if no shard gave it."""
        return self.row_of[job] if 0 <= job < len(self.row_of) else -1

    def state_of(self, job: int) -> str:
        """The state of a job at the end; empty if no shard gave it."""
        row = self.row(job)
        return self.states.texts[self.state[row]] if row >= 0 else ""
