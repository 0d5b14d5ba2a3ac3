-- Enqueue, fetch and acknowledge one job, over and over. A thread may have one connection only:
-- what it sends next depends on the last answer.

dofile("report.lua")

local ENQUEUE, FETCH, ACK = 0, 1, 2
local HEADERS = { ["Content-Type"] = "application/json" }
local step = ENQUEUE
local job, token
local threads = {}
cycles, refused = 0, 0 -- not local, since `done` reads them from outside

function setup(thread)
  table.insert(threads, thread)
end

function init()
  enqueue = wrk.format("POST", "/api/v1/enqueue", HEADERS,
    '{"queue":"cycle","payload":{"to":"ada@example.com","n":1}}')
  fetch = wrk.format("POST", "/api/v1/fetch", HEADERS,
    '{"queues":["cycle"],"worker_id":"w","timeout":30}')
end

function request()
  if step == ENQUEUE then return enqueue end
  if step == FETCH then return fetch end
  return wrk.format("POST", "/api/v1/ack/" .. job, HEADERS, '{"lease_token":' .. token .. '}')
end

function response(status, _, body)
  if step == ENQUEUE then
    if status == 201 then step = FETCH else refused = refused + 1 end
  elseif step == FETCH then
    if status == 200 then
      job = body:match('"job_id":"([^"]+)"')
      token = body:match('"lease_token":(%d+)')
      step = ACK
    else
      refused, step = refused + 1, ENQUEUE
    end
  else
    if status == 200 then cycles = cycles + 1 else refused = refused + 1 end
    step = ENQUEUE
  end
end

function done(summary, latency)
  local cycles, refused = 0, 0
  for _, thread in ipairs(threads) do
    cycles = cycles + thread:get("cycles")
    refused = refused + thread:get("refused")
  end
  report(summary, latency, refused - summary.errors.status, cycles)
end
