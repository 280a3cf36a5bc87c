-- Notes the newest place of today, unless it is noted.
INSERT INTO journal_day (day, place)
SELECT unixepoch() / 86400, max(coalesce((SELECT max(place) FROM entry_row), 0), place) FROM journal_kept
WHERE true
ON CONFLICT (day) DO NOTHING
