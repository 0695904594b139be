-- Reads and changes documents, each operation as one atomic step.
-- KEYS  1 documents by name, 2 their names, 3 when they expire, 4 last version
-- ARGV  1 'list', 'read', 'write' or 'delete'; the others are given at each of them
-- A document is stored as version|expiry|value; the expiry is in us, or '' if it does not expire.
--
-- All documents are fields of one hash, so that every key is declared, also those of a listing and
-- of a removal. So they have no time to live of their own, and their expiry is checked here.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local clock = string.format('%.0f', now)

-- As in renew.lua: a replica refuses only writes, and must not answer from stale data. No document
-- has an empty name, so this ZREM changes nothing on a primary.
local function refused_by_replica()
  local tried = redis.pcall('ZREM', KEYS[3], '')
  if type(tried) == 'table' and string.find(tried.err, 'READONLY', 1, true) then
    return tried
  end
end

local function remove(names)
  redis.call('HDEL', KEYS[1], unpack(names))
  redis.call('ZREM', KEYS[2], unpack(names))
  redis.call('ZREM', KEYS[3], unpack(names))
end

-- Returns the number of documents that it has removed.
local function remove_expired(limit)
  local names = redis.call('ZRANGE', KEYS[3], '-inf', clock, 'BYSCORE', 'LIMIT', 0, limit)
  if #names > 0 then
    remove(names)
  end
  return #names
end

if ARGV[1] == 'list' then
  -- ARGV  2 lowest name, as ZRANGE has it, 3 prefix, 4 limit
  -- Returns {time, 1 if there are more, name, document, name, document, …}, or 0 for "call again".
  local refused = refused_by_replica()
  if refused then
    return refused
  end
  -- Other clients wait while a script runs, so a call removes and returns only so much.
  if remove_expired(1000) == 1000 then
    return 0
  end
  local limit, bytes, gone = tonumber(ARGV[4]), 0, false
  local found = {clock, 0}
  -- Names are UTF-8, in which the byte 255 does not occur: it sorts after all that have the prefix.
  local names = redis.call('ZRANGE', KEYS[2], ARGV[2], '[' .. ARGV[3] .. '\255', 'BYLEX', 'LIMIT', 0, limit + 1)
  for at, name in ipairs(names) do
    local document = redis.call('HGET', KEYS[1], name)
    if not document then
      -- The server has evicted the documents and kept their names.
      redis.call('ZREM', KEYS[2], name)
      gone = true
    else
      bytes = bytes + #document
      if at > limit or bytes > 4194304 then
        found[2] = 1
        break
      end
      found[#found + 1] = name
      found[#found + 1] = document
    end
  end
  return gone and 0 or found
end

-- ARGV  2 name, 3 expected version, 'absent' or 'any', 4 channel of followers
-- A read, and a change that is refused, return {time, document or false}; it may have expired. A
-- read has no expected version, so it is never 'any' and equals no version.
local current = redis.call('HGET', KEYS[1], ARGV[2])
local version, expiry = string.match(current or '', '^(%d+)|(%d*)|')
if version and expiry ~= '' and tonumber(expiry) <= now then
  version = nil
end
if ARGV[3] ~= 'any' and ARGV[3] ~= (version or 'absent') then
  return refused_by_replica() or {clock, current}
end

if ARGV[1] == 'write' then
  -- ARGV  5 value, 6 time to live in ms or ''
  -- Returns the new version as text.
  local last = tonumber(redis.call('MGET', KEYS[4])[1] or '0')
  if not last then
    return redis.error_reply('LHCOUNTER the counter of document versions does not hold a number')
  end
  -- Above the counter and not below the clock: versions grow if the clock goes back, and if the
  -- counter is lost.
  local new = math.max(last + 1, now)
  if new > 9007199254740991 then
    return redis.error_reply('LHFULL the counter of document versions has reached 2^53 - 1')
  end
  version = string.format('%.0f', new)
  -- Written first: a server out of memory refuses it, and then nothing has been written.
  redis.call('SET', KEYS[4], version)
  remove_expired(16)
  redis.call('ZADD', KEYS[2], 0, ARGV[2])
  expiry = ''
  if ARGV[6] == '' then
    redis.call('ZREM', KEYS[3], ARGV[2])
  else
    expiry = string.format('%.0f', now + tonumber(ARGV[6]) * 1000)
    redis.call('ZADD', KEYS[3], expiry, ARGV[2])
  end
  redis.call('HSET', KEYS[1], ARGV[2], version .. '|' .. expiry .. '|' .. ARGV[5])
else
  -- Returns the deleted version as text, 0 if there was none.
  version = version or '0'
  remove({ARGV[2]})
  remove_expired(16)
end
-- Followers also read from time to time, so an error must not fail the change: pcall.
redis.pcall('PUBLISH', ARGV[4], ARGV[2])
return version
