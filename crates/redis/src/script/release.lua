-- Releases a lease and hands it over to the first live waiter.
-- KEYS  1 lock, 2 fence counter of the lock's slot, 3 tombstone of the token, 4 waiters flag, 5 queue, 6 places
-- ARGV  1 'owner', 'seen' or 'place' (of a waiter: no lease is touched), 2 token or fence, 3 tombstone in ms or '', 4 claim in ms, 5 wake channel prefix
-- Returns 1 released, 0 not owned.
local seen = redis.call('MGET', KEYS[1], KEYS[4])
local value, waited = seen[1], seen[2]
local ours = false

-- Written last: a server out of memory refuses a first write that takes memory, but
-- lets a script continue that has
-- already freed some. So the lease is freed even then.
local function done(answer)
  if ARGV[3] ~= '' then
    redis.call('SET', KEYS[3], '1', 'PX', ARGV[3])
  end
  return answer
end

if ARGV[1] == 'owner' or ARGV[1] == 'place' then
  ours = ARGV[1] == 'owner' and value and string.sub(value, 1, #ARGV[2] + 1) == ARGV[2] .. '|'
  if waited then
    redis.pcall('ZREM', KEYS[5], ARGV[2])
    redis.pcall('HDEL', KEYS[6], ARGV[2])
  end
elseif value then
  -- A foreign value may end in a number too. Only a value of our own form has
  -- a fence that was ever shown.
  local random, fence = string.match(value, '^[^|]+|[^|]+|(%x+)|(%d+)$')
  ours = fence == ARGV[2] and #random == 32
end
if not ours then
  -- As in renew.lua: a server that has become a replica refuses only writes. It must
  -- not report from stale data that
  -- the lease is not owned. A tombstone is such a write, so it needs no extra one.
  if ARGV[3] == '' then
    local tried = redis.pcall('ZREM', KEYS[5], ARGV[2])
    if type(tried) == 'table' and string.find(tried.err, 'READONLY', 1, true) then
      return tried
    end
  end
  return done(0)
end
if not waited then
  redis.call('DEL', KEYS[1])
  return done(1)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- The clock is read here anyway, so the time is always the floor of a hand-over's fence.
local last = redis.call('MGET', KEYS[2])[1]
local fence = math.max((tonumber(last or '0') or 0) + 1, now)
-- At most sixteen: a queue of dead waiters must not stall the server. The next
-- release finds the rest, and live
-- waiters poll.
for _ = 1, 16 do
  local popped = redis.pcall('ZPOPMIN', KEYS[5])
  if popped.err or not popped[1] then
    redis.call('DEL', KEYS[4], KEYS[5], KEYS[6])
    break
  end
  local waiter = popped[1]
  local place = redis.pcall('HGET', KEYS[6], waiter)
  redis.pcall('HDEL', KEYS[6], waiter)
  local till, client, bell, floor =
    string.match(type(place) == 'string' and place or '', '^(%d+)|(%x+)|(%x+)|(%d+)$')
  if till and tonumber(floor) >= fence then
    fence = tonumber(floor) + 1
  end
  if till and tonumber(till) > now and fence <= 9007199254740991 then
    local heard = redis.pcall('PUBLISH', ARGV[5] .. client, bell)
    -- 0 receivers: the waiter's process is dead. An error: this user may not
    -- publish, and waiters poll.
    if type(heard) == 'number' and heard > 0 then
      local text = string.format('%.0f', fence)
      redis.call('SET', KEYS[2], text)
      redis.call('SET', KEYS[1], waiter .. '|' .. text, 'PX', ARGV[4])
      return done(1)
    end
  end
end
redis.call('DEL', KEYS[1])
return done(1)
