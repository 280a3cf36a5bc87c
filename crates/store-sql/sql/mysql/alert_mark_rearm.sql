-- Notes that threshold ?3 of account ?1 was left in period ?2, after it was crossed for the ?4th time.
UPDATE alert_mark SET crossed = 0
WHERE account = ?1 AND period = ?2 AND threshold = ?3 AND turn = ?4 AND crossed = 1
