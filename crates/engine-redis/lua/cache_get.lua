-- get: what is kept under an id, or the gap.
-- Arguments: the revision that the caller knows of. Answers the version's birth, which names a gap; then, of an entry that
-- counts, its revision, where its text begins, and itself.

local least = tonumber(ARGV[1])
local revision, born = version_of()
local is_new = not born
if is_new then
  stand()
  revision, born = 0, birth()
end
if is_new or revision < least then
  revision = math.max(revision, least)
  keep_version(revision, born)
end
if not is_new then
  local found, rest, entry = read(ENTRY, '^1 (%d+) (%d+) ()')
  if found and found[2] == born and found[1] >= revision and found[1] >= below then
    return { born, found[1], rest, entry }
  end
  -- Somebody reads it from now on, and has this long.
  call('PEXPIRE', VERSION, KNOWN_LIFE)
  call('PEXPIRE', FLOOR, KNOWN_LIFE)
else
  keep_floor()
end
call('DEL', ENTRY)
return { born }
