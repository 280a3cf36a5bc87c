-- forget: what was read of an id before a revision does not count any more.
-- Arguments: the revision. Answers 1.

local asked = tonumber(ARGV[1])
-- A full memory refuses nothing to a script that has written.
call('PEXPIRE', VERSION, KNOWN_LIFE)
local revision, born = version_of()
if not born then
  stand()
  revision, born = 0, birth()
end
revision = math.max(revision, asked)
local found = read(ENTRY, '^1 (%d+) (%d+) ()')
if not found or found[2] ~= born or found[1] < revision then call('DEL', ENTRY) end
keep_version(revision, born)
keep_floor()
return 1
