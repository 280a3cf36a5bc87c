-- Inserts what entries posted, given as a JSON array of [place, leg, subject, account, period, amount].
INSERT INTO posted (place, leg, subject, account, period, amount)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
FROM json_each(?1)
