-- The plane's store operations, each one script call and so atomic.
-- KEYS[1] is the prefix, whose hash tag all other keys share; ARGV[1] is the verb, ARGV[2] its arguments as JSON.
-- All checks come before the first write, because Redis does not roll a script back.
local prefix, verb, a = KEYS[1], ARGV[1], cjson.decode(ARGV[2])
-- 2^53 - 1, the largest integer that a Lua number represents exactly: the score of documents that are never due.
local NEVER = 9007199254740991
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Lua would print large numbers in scientific notation.
local function whole(number) return string.format('%.0f', number) end
local function doc_key(kind, id) return prefix .. 'doc:' .. kind .. ':' .. id end
local function events_key(kind, id) return prefix .. 'events:' .. kind .. ':' .. id end
local function state_key(kind, state) return prefix .. 'state:' .. kind .. ':' .. state end
local function shelf_key(kind, state, shelf) return prefix .. 'shelf:' .. kind .. ':' .. state .. ':' .. shelf end
local function age_key(kind, state) return prefix .. 'age:' .. kind .. ':' .. state end
local function queue_key(queue) return prefix .. 'queue:' .. queue end
local function keys_key(space) return prefix .. 'keys:' .. space end
local function mail_key(queue, id) return prefix .. 'mail:' .. queue .. ':' .. id end

-- The documents of one owner in one state.
local function owner_key(kind, state, owner) return prefix .. 'owner:' .. kind .. ':' .. state .. ':' .. owner end

-- The ended documents of one owner, the oldest first.
local function ended_key(kind, owner) return prefix .. 'ended:' .. kind .. ':' .. owner end

-- The last states of jobs and runs.
local ENDED = {SUCCEEDED = true, FAILED = true, TIMEOUT = true, CANCELLED = true, DENIED = true, QUARANTINED = true}

local function unlist(kind, id, state, shelf, owner)
  redis.call('ZREM', state_key(kind, state), id)
  redis.call('ZREM', shelf_key(kind, state, shelf), id)
  redis.call('ZREM', age_key(kind, state), id)
  if owner and owner ~= '' then
    redis.call('SREM', owner_key(kind, state, owner), id)
    redis.call('ZREM', ended_key(kind, owner), id)
  end
end

-- Of a long history the first and the newest events are kept, as in store/mod.rs. One event is removed for each that is
-- added; a history of an earlier version shrinks to the limit in steps.
local FIRST_EVENTS, NEWEST_EVENTS, MAX_REMOVED_EVENTS = 100, 400, 1000
local function add_event(kind, id, event)
  local key = events_key(kind, id)
  local extra = math.min(redis.call('RPUSH', key, event) - FIRST_EVENTS - NEWEST_EVENTS, MAX_REMOVED_EVENTS)
  if extra <= 0 then return end
  -- Redis removes list elements by value; no event is empty.
  for i = 0, extra - 1 do redis.call('LSET', key, FIRST_EVENTS + i, '') end
  redis.call('LREM', key, extra, '')
end

-- The event of a version, or false if it does not exist or is not kept.
local function event_of(kind, id, version, newest)
  local key = events_key(kind, id)
  local index = version - 1
  if index >= FIRST_EVENTS then index = index - (newest - redis.call('LLEN', key)) end
  return index >= 0 and redis.call('LINDEX', key, index)
end

local function put(e, version, write)
  local key = doc_key(e.kind, e.id)
  local old = redis.call('HMGET', key, 'state', 'shelf', 'owner')
  if old[1] then unlist(e.kind, e.id, old[1], old[2], old[3]) else redis.call('HSET', key, 'created', whole(now)) end
  local due = e.due < 0 and NEVER or now + e.due
  redis.call('HSET', key, 'version', whole(version), 'state', e.state, 'due', whole(due), 'shelf', e.shelf,
    'owner', e.owner, 'updated', whole(now), 'body', e.body)
  if e.owner ~= '' then
    redis.call('SADD', owner_key(e.kind, e.state, e.owner), e.id)
    if ENDED[e.state] then redis.call('ZADD', ended_key(e.kind, e.owner), whole(now), e.id) end
  end
  redis.call('ZADD', state_key(e.kind, e.state), whole(due), e.id)
  redis.call('ZADD', shelf_key(e.kind, e.state, e.shelf), whole(due), e.id)
  redis.call('ZADD', age_key(e.kind, e.state), whole(now), e.id)
  add_event(e.kind, e.id, write .. '\n' .. whole(now) .. '\n' .. e.event)
  if e.key and redis.call('HSETNX', keys_key(e.key.space), e.key.text, e.id) == 1 then
    redis.call('HSET', key, 'key', e.key.text, 'key_space', e.key.space)
  end
end

local function set_due(e, state)
  local due = whole(e.due < 0 and NEVER or now + e.due)
  redis.call('HSET', doc_key(e.kind, e.id), 'due', due)
  redis.call('ZADD', state_key(e.kind, state), due, e.id)
  redis.call('ZADD', shelf_key(e.kind, state, e.shelf), due, e.id)
end

local function post(m)
  local key = mail_key(m.queue, m.id)
  -- An existing message keeps its due time and count: a repeated send must not restart it.
  if redis.call('EXISTS', key) == 1 then return '0' end
  redis.call('HSET', key, 'to', m.to, 'body', m.body, 'tries', '0')
  redis.call('ZADD', queue_key(m.queue), whole(now + m.due), m.id)
  return '1'
end

local function show(kind, id)
  local f = redis.call('HMGET', doc_key(kind, id), 'version', 'state', 'due', 'created', 'updated', 'body')
  if not f[1] then return false end
  return {id, f[1], f[2], f[3], f[4], f[5], f[6], whole(now)}
end

-- The scope of a document, by the rule of `document_scope` in document_key.rs.
local function scope_of(kind, id)
  local body = redis.call('HGET', doc_key(kind, id), 'body')
  if not body then return false end
  local ok, doc = pcall(cjson.decode, body)
  local tenant = nil
  if ok and type(doc) == 'table' then
    if kind == 'run' then tenant = doc.org
    elseif type(doc.spec) == 'table' then tenant = doc.spec.tenant end
  end
  if type(tenant) == 'string' and tenant ~= '' and tenant ~= 'default' then return tenant end
  return string.match(id, '^([^:]+):') or 'default'
end

-- The id of the document with an idempotency key. An entry of an earlier version counts within its scope only.
local function keyed(kind, key)
  local of = redis.call('HGET', keys_key(key.space), key.text)
  if of or not key.earlier then return of end
  of = redis.call('HGET', keys_key(key.earlier.space), key.earlier.text)
  if of and scope_of(kind, of) == key.earlier.scope then return of end
  return false
end

-- Compares fences as decimal text: as Lua numbers they would lose digits above 2^53.
local function older(one, other) return #one < #other or (#one == #other and one < other) end

-- How many documents of these states an owner has. At the limit a sample is verified: a replica of an earlier version
-- moves documents to another state without removing them here.
local SAMPLE = 100
local function owned(kind, states, owner, limit)
  local sum = 0
  for _, state in ipairs(states) do sum = sum + redis.call('SCARD', owner_key(kind, state, owner)) end
  if sum < limit then return sum end
  for _, state in ipairs(states) do
    local key = owner_key(kind, state, owner)
    for _, id in ipairs(redis.call('SRANDMEMBER', key, SAMPLE)) do
      if redis.call('HGET', doc_key(kind, id), 'state') ~= state then sum = sum - redis.call('SREM', key, id) end
    end
  end
  return sum
end

-- The value at this path of a JSON text, or nil.
local function json_at(text, ...)
  local ok, value = pcall(cjson.decode, text or '')
  if not ok then return nil end
  for _, field in ipairs({...}) do
    if type(value) ~= 'table' then return nil end
    value = value[field]
  end
  return value
end

-- Deletes a document with all that belongs to it: the ended jobs of a run, by the rules of owned.rs, and the cancel
-- request of a job.
local MAX_STEP_ATTEMPTS = 100
local function forget(kind, id)
  local key = doc_key(kind, id)
  local f = redis.call('HMGET', key, 'state', 'shelf', 'key', 'key_space', 'owner', 'body')
  if not f[1] then return end
  unlist(kind, id, f[1], f[2], f[5])
  -- Documents of earlier versions have no space: their key is in that of the kind.
  if f[3] then redis.call('HDEL', keys_key(f[4] or kind), f[3]) end
  -- The fence mark goes too: marks of deleted documents would accumulate for ever.
  redis.call('DEL', key, events_key(kind, id), prefix .. 'fence:' .. kind .. ':' .. id)
  if kind == 'job' then forget('signal', id) end
  local steps = kind == 'run' and json_at(f[6], 'steps')
  if type(steps) ~= 'table' then return end
  for step, at in pairs(steps) do
    local newest = type(at) == 'table' and tonumber(at.attempt) or 0
    for attempt = math.max(1, newest - MAX_STEP_ATTEMPTS + 1), newest do
      local job = id .. '.' .. step .. '.' .. whole(attempt)
      local found = redis.call('HMGET', doc_key('job', job), 'state', 'body')
      if found[1] and ENDED[found[1]] and json_at(found[2], 'parent', 'run') == id then forget('job', job) end
    end
  end
end

-- Deletes the oldest ended documents of an owner beyond those that are kept.
local function forget_ended(kind, owner, quota)
  local key = ended_key(kind, owner)
  local extra = math.min(redis.call('ZCARD', key) - quota.kept_ended, quota.max_deleted)
  if extra <= 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', key, 0, extra - 1)) do
    redis.call('ZREM', key, id)
    -- A replica of an earlier version begins a run again without removing it here.
    if ENDED[redis.call('HGET', doc_key(kind, id), 'state')] then forget(kind, id) end
  end
end

local verbs = {}

function verbs.read() return show(a.kind, a.id) end

function verbs.write()
  local e = a.entry
  local found = redis.call('HMGET', doc_key(e.kind, e.id), 'version', 'state')
  local expect = a.expect
  if found[1] then
    -- A repetition is checked first: its fence and version may be outdated by now.
    local event = event_of(e.kind, e.id, expect + 1, tonumber(found[1]))
    if event and string.sub(event, 1, #a.id + 1) == a.id .. '\n' then return {'repeated', whole(expect + 1)} end
  end
  local mark = prefix .. 'fence:' .. a.fence_name
  if a.fence ~= '' then
    local newest = redis.call('GET', mark)
    if newest and older(a.fence, newest) then return {'stale', newest, found[2] or ''} end
  end
  if not found[1] then
    if expect > 0 then return {'missing'} end
    local of = e.key and keyed(e.kind, e.key)
    if of then return {'key', of} end
    if a.quota and owned(e.kind, a.quota.states, e.owner, a.quota.limit) >= a.quota.limit then return {'quota'} end
  elseif expect == 0 then return {'exists'}
  elseif tonumber(found[1]) ~= expect then return {'version', found[1], found[2]}
  else
    local may = false
    for _, state in ipairs(a.from) do may = may or state == found[2] end
    if not may then return {'transition', found[2]} end
  end
  if a.fence ~= '' then
    local verdict, detail = leasehold_admit(mark, a.fence)
    if verdict ~= 'admitted' then return redis.error_reply('ERR the fence could not be marked: ' .. detail) end
  end
  if a.only_due then
    set_due(e, found[2])
    return {'done', whole(expect)}
  end
  put(e, expect + 1, a.id)
  local answer = {'done', whole(expect + 1)}
  for _, other in ipairs(a.also) do
    if redis.call('EXISTS', doc_key(other.kind, other.id)) == 1 then answer[#answer + 1] = other.id
    else put(other, 1, a.id) end
  end
  for _, m in ipairs(a.send) do post(m) end
  if a.quota and a.quota.kept_ended then forget_ended(e.kind, e.owner, a.quota) end
  return answer
end

-- Compares as Redis orders members: by bytes. Lua's own comparison follows the server's locale.
local function bytes_before(x, y)
  for i = 1, math.min(#x, #y) do
    local one, other = string.byte(x, i), string.byte(y, i)
    if one ~= other then return one < other end
  end
  return #x < #y
end

local function before(x, y) return x.due < y.due or (x.due == y.due and bytes_before(x.id, y.id)) end

local function at(key, index)
  local found = redis.call('ZRANGE', key, index, index, 'WITHSCORES')
  return {id = found[1], due = tonumber(found[2])}
end

-- The index of the first member after a position, by bisection.
local function index_after(key, position)
  local low, high = 0, redis.call('ZCARD', key)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if before(position, at(key, middle)) then high = middle else low = middle + 1 end
  end
  return low
end

local function begins_with(text, beginnings)
  for _, beginning in ipairs(beginnings) do
    if string.sub(text, 1, #beginning) == beginning then
      local after = string.sub(text, #beginning + 1, #beginning + 1)
      if after == '' or after == ':' then return true end
    end
  end
  return false
end

local function wanted(id)
  if a.owner and redis.call('HGET', doc_key(a.kind, id), 'owner') ~= a.owner then return false end
  if not a.scope or begins_with(id, a.scope.ids) then return true end
  if #a.scope.index_keys == 0 then return false end
  return begins_with(redis.call('HGET', doc_key(a.kind, id), 'shelf') or '', a.scope.index_keys)
end

-- Adds the next wanted members of one key to `found`. Returns the last position looked at if there is more.
local CHUNK = 200
local function search(key, found)
  local index = a.after and index_after(key, a.after) or 0
  local matches, looked, last = 0, 0, nil
  while true do
    local some = redis.call('ZRANGE', key, index, index + CHUNK - 1, 'WITHSCORES')
    for i = 1, #some, 2 do
      local place = {id = some[i], due = tonumber(some[i + 1])}
      if a.due and place.due > now then return nil end
      -- Other requests wait while a script runs, so the search ends after some members.
      if matches == a.limit or looked == a.search then return last end
      looked, last = looked + 1, place
      if wanted(place.id) then
        matches = matches + 1
        found[#found + 1] = place
      end
    end
    if #some < 2 * CHUNK then return nil end
    index = index + CHUNK
  end
end

function verbs.page()
  local found, frontier = {}, nil
  for _, state in ipairs(a.states) do
    local last = search(a.shelf and shelf_key(a.kind, state, a.shelf) or state_key(a.kind, state), found)
    if last and (not frontier or before(last, frontier)) then frontier = last end
  end
  table.sort(found, before)
  local docs, next = {}, frontier
  for i, place in ipairs(found) do
    -- Beyond the frontier of one state there may be earlier ones that were not looked at.
    if frontier and before(frontier, place) then break end
    if #docs == a.limit then
      next = found[i - 1]
      break
    end
    docs[#docs + 1] = show(a.kind, place.id)
  end
  if next then return {docs, next.id, whole(next.due)} end
  return {docs}
end

function verbs.count()
  if a.owner then return whole(owned(a.kind, a.states, a.owner, a.limit)) end
  local sum = 0
  for _, state in ipairs(a.states) do
    sum = sum + redis.call('ZCARD', a.shelf and shelf_key(a.kind, state, a.shelf) or state_key(a.kind, state))
  end
  return whole(sum)
end

function verbs.key() return keyed(a.kind, a.key) end

function verbs.history()
  local newest = redis.call('HGET', doc_key(a.kind, a.id), 'version') or '0'
  return {newest, redis.call('LRANGE', events_key(a.kind, a.id), 0, -1)}
end

function verbs.send() return post(a) end

function verbs.take()
  local taken = {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', queue_key(a.queue), '-inf', whole(now), 'LIMIT', 0, a.limit)) do
    local key = mail_key(a.queue, id)
    -- Hidden by its score, not removed: if the receiver dies, the message becomes due again.
    redis.call('ZADD', queue_key(a.queue), whole(now + a.visible), id)
    local tries = redis.call('HINCRBY', key, 'tries', 1)
    local f = redis.call('HMGET', key, 'to', 'body')
    taken[#taken + 1] = {id, f[1], f[2], whole(tries)}
  end
  return taken
end

function verbs.settle()
  local key = mail_key(a.queue, a.id)
  -- Another receiver has the message by now, or it is gone.
  if redis.call('HGET', key, 'tries') ~= whole(a.tries) then return '0' end
  if a.again < 0 then
    redis.call('ZREM', queue_key(a.queue), a.id)
    redis.call('DEL', key)
  else
    redis.call('ZADD', queue_key(a.queue), whole(now + a.again), a.id)
  end
  return '1'
end

function verbs.purge()
  local gone = 0
  for _, state in ipairs(a.states) do
    local old = redis.call('ZRANGEBYSCORE', age_key(a.kind, state), '-inf', whole(now - a.keep), 'LIMIT', 0, a.limit - gone)
    for _, id in ipairs(old) do
      forget(a.kind, id)
      gone = gone + 1
    end
    if gone >= a.limit then break end
  end
  return whole(gone)
end

return verbs[verb]()
