-- Notes the newest place of today, unless it is noted.
INSERT INTO journal_day (day, place)
SELECT UNIX_TIMESTAMP() DIV 86400, turn.place FROM turn
WHERE number = 1 AND NOT EXISTS (SELECT 1 FROM journal_day WHERE day = UNIX_TIMESTAMP() DIV 86400)
