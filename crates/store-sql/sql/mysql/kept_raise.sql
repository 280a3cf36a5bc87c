-- Rows that ended before ?1, at places up to ?2, go next.
UPDATE journal_kept SET since = GREATEST(since, ?1), place = GREATEST(place, ?2)
