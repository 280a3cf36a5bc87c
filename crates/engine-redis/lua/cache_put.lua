-- put: keeps what was read after a gap was seen.
-- Arguments: the gap, the revision, the text. Answers 1, or 0 where it is not kept.

local gap, revision = tonumber(ARGV[1]), tonumber(ARGV[2])
local known, born = version_of()
if born ~= gap or revision < known or revision < below then return 0 end
local found = read(ENTRY, '^1 (%d+) (%d+) ()')
if found and found[2] == born and found[1] > revision then return 0 end
-- First what a full memory refuses.
call('SET', ENTRY, string.format('1 %.0f %.0f ', revision, born) .. ARGV[3], 'PX', ENTRY_LIFE)
call('PEXPIRE', VERSION, KNOWN_LIFE)
call('PEXPIRE', FLOOR, KNOWN_LIFE)
return 1
