-- below: what was read before a revision, of whatever id, does not count any more.
-- KEYS: the floor alone. Arguments: the revision. Answers 1.

-- A full memory refuses nothing to a script that has written.
call('PEXPIRE', FLOOR, KNOWN_LIFE)
stand()
below = math.max(below, tonumber(ARGV[1]))
keep_floor()
return 1
