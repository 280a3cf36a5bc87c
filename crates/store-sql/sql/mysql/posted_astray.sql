-- How many sums of such periods are in no known shard.
SELECT COUNT(*) AS astray FROM posted WHERE shard IS NULL AND (period >= ?1 OR period = 0)
