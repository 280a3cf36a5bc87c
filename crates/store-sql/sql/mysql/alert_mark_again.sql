-- Notes that threshold ?3 of account ?1 is crossed again in period ?2, for the ?4th time, if it was left since the time
-- before.
UPDATE alert_mark SET crossed = 1, turn = ?4
WHERE account = ?1 AND period = ?2 AND threshold = ?3 AND turn = ?4 - 1 AND crossed = 0
