-- Extends a lease that still has exactly this token and this fence.
-- KEYS  1 lock
-- ARGV  1 token|fence, 2 lease in ms
-- Gives what was left in ms before (-1: no expiry), or -3 if it is not this one's.
if redis.call('MGET', KEYS[1])[1] ~= ARGV[1] then
  -- *Not owned* is definite, so it must not be a replica's memory of the past either. This changes nothing whatever is
  -- there, and is refused there. Any other error is no reason to doubt: a primary knows what it has.
  local tried = redis.pcall('ZREM', KEYS[1], ARGV[1])
  if type(tried) == 'table' and string.find(tried.err, 'READONLY', 1, true) then
    return tried
  end
  return -3
end
local left = redis.call('PTTL', KEYS[1])
-- Never shorter: a late repetition, sent before a policy lengthened the TTL, must not cut what its holder was told.
-- And always written, even if nothing changes: a server that has become a replica refuses writes only, and must not
-- confirm a lease from its memory of the past.
redis.call('PEXPIRE', KEYS[1], math.max(left, tonumber(ARGV[2])))
return left
