-- The keys of the rows at places ?1 to ?2, which ended from ?3 to ?4.
INSERT INTO entry_key (reservation, side, attempt, seq, unbooked, place, ended_at)
SELECT reservation, side, attempt, seq, unbooked, place, ended_at FROM entry_row
WHERE place BETWEEN ?1 AND ?2 AND ended_at BETWEEN ?3 AND ?4
