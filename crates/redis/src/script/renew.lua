-- Extends a lease that still has exactly this token and this fence.
-- KEYS  1 lock
-- ARGV  1 token|fence, 2 lease in ms
-- Returns the remaining time in ms before the renewal (-1: no expiry), or -3 if not owned.
if redis.call('MGET', KEYS[1])[1] ~= ARGV[1] then
  -- *Not owned* is definite, so it must not come from a replica's stale data. This ZREM
  -- changes nothing on a primary,
  -- and a replica refuses it. Any other error is ignored: a primary knows what it has.
  local tried = redis.pcall('ZREM', KEYS[1], ARGV[1])
  if type(tried) == 'table' and string.find(tried.err, 'READONLY', 1, true) then
    return tried
  end
  return -3
end
local left = redis.call('PTTL', KEYS[1])
-- Never shorter: a late repetition, sent before a policy lengthened the TTL, must not
-- cut the time that its holder
-- was promised. And always written, even if nothing changes: a server that has
-- become a replica refuses only
-- writes. It must not confirm a lease from stale data.
redis.call('PEXPIRE', KEYS[1], math.max(left, tonumber(ARGV[2])))
return left
