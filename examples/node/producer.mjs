// A producer in Node, 18 or newer: `node producer.mjs QUEUE ID PAYLOAD`.

const SERVER = process.env.CORVO_SERVER ?? "http://127.0.0.1:8080";
const HEADERS = { "X-API-Key": process.env.CORVO_API_KEY ?? "" };

// Enqueue a job once: with your own id, repeating the request creates no second job.
async function enqueue(queue, id, payload) {
  const answer = await fetch(`${SERVER}/api/v1/enqueue`, {
    method: "POST",
    headers: HEADERS,
    body: JSON.stringify({ queue, id, payload }),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

const [queue, id, payload] = process.argv.slice(2);
const made = await enqueue(queue, id, JSON.parse(payload));
console.log(made.job_id, made.unique_existing ? "existed" : "was created");
