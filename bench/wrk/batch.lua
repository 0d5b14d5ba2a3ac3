-- A hundred jobs a request, into one queue.

dofile("report.lua")

wrk.method = "POST"
wrk.path = "/api/v1/enqueue/batch"
wrk.headers["Content-Type"] = "application/json"

local jobs = {}
for n = 1, 100 do
  jobs[n] = '{"queue":"batch","payload":{"to":"ada@example.com","n":' .. n .. '}}'
end
wrk.body = '{"jobs":[' .. table.concat(jobs, ",") .. ']}'

function done(summary, latency)
  report(summary, latency, 0, 0)
end
