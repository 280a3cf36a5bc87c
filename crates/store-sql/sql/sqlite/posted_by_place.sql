-- What some entries posted; ?1 is a JSON array of places.
SELECT place, subject, account, period, amount FROM posted
WHERE place IN (SELECT value FROM json_each(?1))
ORDER BY place, leg
