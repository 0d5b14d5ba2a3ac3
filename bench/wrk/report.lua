-- What a run came to, in one line that a program reads: bench/node.py has its shape.

function report(summary, latency, refused, cycles)
  local errors = summary.errors
  io.write(string.format(
    'report {"requests":%d,"cycles":%d,"refused":%d,"broken":%d,"us":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, cycles, refused + errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    summary.duration, latency:percentile(50), latency:percentile(99)))
end
