-- One job a request, into one queue.

dofile("report.lua")

wrk.method = "POST"
wrk.path = "/api/v1/enqueue"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"queue":"single","payload":{"to":"ada@example.com","n":1}}'

function done(summary, latency)
  report(summary, latency, 0, 0)
end
