-- The parts of the table of rows, each with the end that its rows are before, or none.
SELECT partition_name AS name, CAST(NULLIF(partition_description, 'MAXVALUE') AS SIGNED) AS before_end,
    CAST(table_rows AS SIGNED) AS entries
FROM information_schema.partitions
WHERE table_schema = DATABASE() AND table_name = 'entry_row' AND partition_name IS NOT NULL
ORDER BY partition_ordinal_position
