-- Sends the requests of a file in their order, over and over: a line is a path to get, after which there may be a User-Agent, a
-- Referer and an X-Forwarded-For, with tabs between them, or a body for /api/shorten. The arguments are the file, which has
-- an even number of lines, and how many to skip at first. Each of two threads sends every other line.

local threads = 0

function setup(thread)
  thread:set("first", threads)
  threads = threads + 1
end

function init(args)
  requests = {}
  for line in io.lines(args[1]) do
    if line:sub(1, 1) == "/" then
      local headers, fields = {}, {}
      for field in line:gmatch("[^\t]+") do
        fields[#fields + 1] = field
      end
      headers["User-Agent"], headers["Referer"], headers["X-Forwarded-For"] = fields[2], fields[3], fields[4]
      requests[#requests + 1] = wrk.format("GET", fields[1], headers)
    else
      requests[#requests + 1] = wrk.format("POST", "/api/shorten", {["Content-Type"] = "application/json"}, line)
    end
  end
  next_line = tonumber(args[2]) + first
end

function request()
  next_line = next_line + 2
  return requests[next_line % #requests + 1]
end
