-- Notes that threshold ?4 of account ?2 of tenant ?1 is crossed in period ?3 for the first time; it is kept until ?5.
INSERT INTO alert_mark (tenant, account, period, threshold, turn, crossed, until)
SELECT ?1, ?2, ?3, ?4, 1, 1, ?5 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM alert_mark WHERE account = ?2 AND period = ?3 AND threshold = ?4)
