-- Acquires the lease, as one atomic step.
-- KEYS  1 lock, 2 fence counter of the lock's slot, 3 tombstone of the token, 4 waiters flag, 5 queue, 6 places
-- ARGV  1 token, 2 lease in ms, 3 fence floor or '', 4 '1' to read the clock, 5 waiting time in ms or '', 6 client|bell|floor
-- Returns the fence as text if granted, 0 if void, {value or false, pttl, queued} if busy.
--
-- The uncontended path comes first and costs three calls: one read, two writes. MGET
-- instead of GET: it reads a key
-- of a foreign type as nil instead of raising an error. NX then keeps that key
-- from being overwritten. A busy
-- response writes nothing unless it queues.
local MAX = 9007199254740991
local seen = redis.call('MGET', KEYS[1], KEYS[3], KEYS[4])
local value = seen[1]
if seen[2] then
  return 0
end

if not value then
  -- pcall: nothing has been written yet, so a counter that is not a number is a definite
  -- error, not an unknown outcome.
  local counted = redis.pcall('INCR', KEYS[2])
  if type(counted) ~= 'number' then
    if string.find(counted.err, 'not an integer', 1, true) or string.find(counted.err, 'WRONGTYPE', 1, true) then
      return redis.error_reply('LHCOUNTER the fence counter does not hold a number')
    end
    return counted
  end
  local fence = counted
  if ARGV[4] == '1' or fence == 1 then
    local time = redis.call('TIME')
    fence = math.max(fence, tonumber(time[1]) * 1000000 + tonumber(time[2]))
  end
  -- Above the floor, not at it: the floor may be the last fence of this very name, from
  -- before the counter was lost.
  if ARGV[3] ~= '' and tonumber(ARGV[3]) >= fence then
    fence = tonumber(ARGV[3]) + 1
  end
  if fence > MAX then
    return redis.error_reply('LHFULL the fence counter has reached 2^53 - 1')
  end
  local text = string.format('%.0f', fence)
  if redis.call('SET', KEYS[1], ARGV[1] .. '|' .. text, 'NX', 'PX', ARGV[2]) then
    if fence ~= counted then
      redis.call('SET', KEYS[2], text)
    end
    if seen[3] then
      -- The queue only holds hints, so an error in it must not fail a grant that has
      -- already been written: pcall.
      redis.pcall('ZREM', KEYS[5], ARGV[1])
      redis.pcall('HDEL', KEYS[6], ARGV[1])
    end
    return text
  end
else
  local mine = ARGV[1] .. '|'
  if string.sub(value, 1, #mine) == mine then
    -- Never shorter but always written, for the same reasons as in renew.lua.
    -- There is no queue entry to remove: the grant, or the hand-over, has removed it.
    redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
    return string.sub(value, #mine + 1)
  end
end

local left = redis.call('PTTL', KEYS[1])
if ARGV[5] == '' then
  return {value, left, 0}
end

local time, wait = redis.call('TIME'), tonumber(ARGV[5])
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local till = string.format('%.0f', now + wait * 1000)
local added = redis.pcall('ZADD', KEYS[5], 'NX', string.format('%.0f', now), ARGV[1])
local placed = redis.pcall('HSET', KEYS[6], ARGV[1], till .. '|' .. ARGV[6])
if type(added) == 'table' or type(placed) == 'table' then
  return {value, left, 0}
end
if added == 1 then
  -- A new waiter removes up to two expired entries at the head. So the queue of a
  -- lock that is never released does
  -- not grow for ever, and the cost is bounded whatever its length.
  for _, head in ipairs(redis.call('ZRANGE', KEYS[5], 0, 1)) do
    local place = redis.call('HGET', KEYS[6], head)
    local until_us = place and string.match(place, '^(%d+)|')
    if not until_us or tonumber(until_us) <= now then
      redis.call('ZREM', KEYS[5], head)
      redis.call('HDEL', KEYS[6], head)
    end
  end
end
-- Twice the waiting time, so that polling waiters extend the three keys only every other time.
if redis.call('PTTL', KEYS[4]) < wait then
  redis.call('SET', KEYS[4], '1', 'PX', wait * 2)
  redis.call('PEXPIRE', KEYS[5], wait * 2)
  redis.call('PEXPIRE', KEYS[6], wait * 2)
end
return {value, left, 1}
