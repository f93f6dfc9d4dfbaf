-- Sends the requests of a file in their order, over and over: a line is a path to get, after which there may be a User-Agent, a
-- Referer and an X-Forwarded-For, with tabs between them. The arguments are the file, which has an even number of lines, and how
-- many to skip at first. Each of two threads sends every other line. Without arguments, the path of wrk's URL is requested.
-- At its end it writes a line with the figures, as JSON.

local threads = 0

function setup(thread)
  thread:set("first", threads)
  threads = threads + 1
end

function init(args)
  if not args[1] then return end
  requests = {}
  for line in io.lines(args[1]) do
    local headers, fields = {}, {}
    for field in line:gmatch("[^\t]+") do
      fields[#fields + 1] = field
    end
    headers["User-Agent"], headers["Referer"], headers["X-Forwarded-For"] = fields[2], fields[3], fields[4]
    requests[#requests + 1] = wrk.format("GET", fields[1], headers)
  end
  next_line = tonumber(args[2]) + first
  function request() -- only here: wrk is slower if it has to call it
    next_line = next_line + 2
    return requests[next_line % #requests + 1]
  end
end

function done(summary, latency)
  local e = summary.errors
  print(string.format('{"requests":%d,"req/s":%f,"p50":%f,"p99":%f,"refused":%d,"failed":%d}', summary.requests,
    summary.requests / summary.duration * 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    e.status, e.connect + e.read + e.write + e.timeout))
end
