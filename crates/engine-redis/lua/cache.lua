-- What gateways have read of the store: what each of its scripts begins with.
-- KEYS: the floor of the ids that share a hash tag, an id's version, its entry. The last argument is the `run_id` of the
-- server that answers.
--
-- Floor: `1 <from> <last> <below> <run_id>`. Every version key has a birth of its own, a number that only grows: those
-- born up to `from` do not count, nor does what was read below revision `below`. A floor that is missing, not ours, or of
-- another run of the server, which may have lost its last writes, is made anew: nothing older counts then.
-- Version: `1 <revision> <birth>`: what was read before that revision does not count. Lost, it is born anew.
-- Entry: `1 <revision> <birth> <text>`, counts while the version has that birth and no larger revision.
-- So whatever is lost costs a look into the store, and brings nothing back. No key is there for ever.

local call = redis.call
local FLOOR, VERSION, ENTRY = KEYS[1], KEYS[2], KEYS[3]
local RUN = ARGV[#ARGV]

const NUMBER_MAX = 9007199254740991
-- Milliseconds: an entry's, and an hour more.
const ENTRY_LIFE, KNOWN_LIFE = 600000, 4200000

-- Numbers at the beginning of a value of ours, where its rest begins, and the value, which is not copied: it may be large.
-- Nothing of another value.
local function read(key, pattern)
  local text = redis.pcall('GET', key)
  if type(text) ~= 'string' then return end
  local found = { string.match(text, pattern) }
  if not found[1] then return end
  local rest = table.remove(found)
  for index, digits in ipairs(found) do
    found[index] = tonumber(digits)
    if found[index] > NUMBER_MAX then return end
  end
  return found, rest, text
end

local floor, at, text = read(FLOOR, '^1 (%d+) (%d+) (%d+) ()')
local from, last, below = unpack(floor or {})
local is_known = floor ~= nil and string.sub(text, at) == RUN

-- The next birth: later ones are larger, also where the clock steps back.
local function birth()
  local time = call('TIME')
  last = math.max(time[1] * 1000000 + time[2], (last or 0) + 1)
  return last
end

-- What a version is born on.
local function stand()
  if is_known then return end
  from, below, is_known = birth(), 0, true
end

local function keep_floor()
  call('SET', FLOOR, string.format('1 %.0f %.0f %.0f %s', from, last, below, RUN), 'PX', KNOWN_LIFE)
end

local function keep_version(revision, born)
  call('SET', VERSION, string.format('1 %.0f %.0f', revision, born), 'PX', KNOWN_LIFE)
end

-- The revision that is known of the id, and the birth of its version, if it counts.
local function version_of()
  local found = is_known and read(VERSION, '^1 (%d+) (%d+)()$')
  if found and found[2] > from then return found[1], found[2] end
end
