// A worker in Node, 18 or newer: `node worker.mjs QUEUE`. SIGTERM lets it finish its job first.

const SERVER = process.env.CORVO_SERVER ?? "http://127.0.0.1:8080";
const HEADERS = { "X-API-Key": process.env.CORVO_API_KEY ?? "" };
const LEASE_S = Number(process.env.LEASE_SECONDS ?? 30);
const WAIT_S = 5; // a fetch waits at most this long, so that SIGTERM does not wait longer
let stopping = false;

// The work. An exception fails the attempt; the job is retried after a delay.
async function work(job, cancelled) {
  if (!job.payload.to) throw new RangeError("the letter has no address");
  console.log("sending a letter to", job.payload.to);
  await pause(job.payload.seconds ?? 0, cancelled); // stands for work that takes time
  if (cancelled.aborted) throw new Error("stopped because of a cancel");
  return { sent: true };
}

// Wait some seconds, or less if the signal is given.
function pause(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()));
  });
}

// Send a request: its status and answer. Without an answer, it throws.
async function call(path, body) {
  const signal = AbortSignal.timeout((WAIT_S + 10) * 1000);
  const answer = await fetch(`${SERVER}/api/v1/${path}`, {
    method: "POST",
    headers: HEADERS,
    body: JSON.stringify(body),
    signal,
  });
  const text = await answer.text();
  return { status: answer.status, text, json: () => JSON.parse(text) };
}

// Repeat a report until a server answers: the lease token makes that safe.
async function report(path, body) {
  for (;;) {
    try {
      const answer = await call(path, body);
      if (answer.status < 300) return;
      if (answer.status < 500 && answer.status !== 429) {
        // 409 LEASE_LOST: the lease has expired, and another worker may have the job.
        console.error("rejected:", answer.text);
        return;
      }
    } catch (error) {
      console.error("no answer:", error.message);
    }
    await pause(1);
  }
}

// Renew the lease. The signal of `stop` is given if the job was cancelled, or another worker has it.
async function heartbeat(job, stop) {
  try {
    const answer = await call("heartbeat", {
      jobs: { [job.job_id]: { lease_token: job.lease_token } },
    });
    if (answer.status === 200 && answer.json().jobs[job.job_id].status === "cancel") stop.abort();
  } catch (error) {
    console.error("no heartbeat:", error.message); // the lease lasts for two more heartbeats
  }
}

// Do one job, and report its end.
async function run(job) {
  const stop = new AbortController();
  const beat = setInterval(() => heartbeat(job, stop), (LEASE_S * 1000) / 3);
  const end = { lease_token: job.lease_token };
  try {
    await report(`ack/${job.job_id}`, { ...end, result: await work(job, stop.signal) });
  } catch (error) {
    const failure = { error: error.message, error_class: error.name, backtrace: error.stack };
    await report(`fail/${job.job_id}`, { ...end, ...failure });
  } finally {
    clearInterval(beat);
  }
}

// Fetch jobs until SIGTERM or Ctrl-C.
async function main(queue) {
  for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => (stopping = true));
  const request = {
    queues: [queue],
    worker_id: `node-${process.pid}`,
    wait_seconds: WAIT_S,
    lease_seconds: LEASE_S,
  };
  console.log("waiting for jobs of", queue);
  while (!stopping) {
    try {
      const answer = await call("fetch", request);
      if (answer.status === 200) await run(answer.json());
      else if (answer.status !== 204) throw new Error(answer.text);
    } catch (error) {
      console.error("no answer:", error.message); // the server is overloaded, or restarts
      await pause(1);
    }
  }
  console.log("stopped");
}

await main(process.argv[2]);
