-- Whether an entry of reservation ?1 is there without its row.
SELECT 1 AS gone FROM entry_key LEFT JOIN entry_row ON entry_row.place = entry_key.place AND entry_row.ended_at = entry_key.ended_at
WHERE entry_key.reservation = ?1 AND entry_row.place IS NULL
LIMIT 1
