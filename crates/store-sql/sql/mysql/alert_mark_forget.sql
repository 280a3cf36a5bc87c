-- Forgets thresholds whose time is over at ?1.
DELETE FROM alert_mark WHERE until <= ?1
