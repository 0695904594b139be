-- Reads one lock at one instant.
-- KEYS  1 lock, 2 queue
-- Returns {pttl, value or false, waiters}; pttl -2 means no lock, -1 that it never expires.
local waiters = redis.pcall('ZCARD', KEYS[2])
return {
  redis.call('PTTL', KEYS[1]),
  redis.call('MGET', KEYS[1])[1],
  type(waiters) == 'number' and waiters or 0,
}
