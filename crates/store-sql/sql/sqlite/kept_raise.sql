-- Rows that ended before ?1, at places up to ?2, go next.
UPDATE journal_kept SET since = max(since, ?1), place = max(place, ?2)
