-- What is kept of the journal, by day. The keys of entries stand by themselves and stay, so that an entry is one entry over all
-- days; the entries' rows go with their day, which is that of their end.
-- Instants are microseconds of engine time, days are counted from 1970-01-01.

CREATE TABLE IF NOT EXISTS entry_key (
    reservation BINARY(16) NOT NULL,
    side SMALLINT NOT NULL,
    attempt INT NOT NULL,
    seq INT NOT NULL,
    unbooked SMALLINT NOT NULL,
    -- Where the row is, or was.
    place BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    PRIMARY KEY (reservation, side, attempt, seq, unbooked)
) ENGINE = InnoDB;

-- From here on a gateway of an earlier version finds no table to write entries to: they wait in the book.
RENAME TABLE entry TO entry_row;

REPLACE INTO entry_key (reservation, side, attempt, seq, unbooked, place, ended_at)
SELECT reservation, side, attempt, seq, unbooked, place, ended_at FROM entry_row
ORDER BY reservation, side, attempt, seq, unbooked;

-- The days are put in when the step is taken.
ALTER TABLE entry_row
    MODIFY place BIGINT NOT NULL,
    DROP KEY entry_by_key,
    DROP PRIMARY KEY,
    ADD PRIMARY KEY (place, ended_at)
PARTITION BY RANGE (ended_at) (/*days*/ PARTITION rest VALUES LESS THAN MAXVALUE);

-- The newest place that was given.
ALTER TABLE turn ADD COLUMN place BIGINT NOT NULL DEFAULT 0;

UPDATE turn SET place = GREATEST(place, (SELECT COALESCE(MAX(entry_row.place), 0) FROM entry_row));

-- Rows that ended before `since` are gone, or go next; none at a place above `place` has gone.
CREATE TABLE IF NOT EXISTS journal_kept (
    number TINYINT NOT NULL PRIMARY KEY,
    since BIGINT NOT NULL,
    place BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT INTO journal_kept (number, since, place) SELECT 1, 0, 0 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM journal_kept);

-- The newest place when a day began, by this database's clock: what was written since is not old, whenever it ended.
CREATE TABLE IF NOT EXISTS journal_day (
    day BIGINT NOT NULL PRIMARY KEY,
    place BIGINT NOT NULL
) ENGINE = InnoDB;

-- Entries with named columns, for reports and for people.
CREATE OR REPLACE VIEW journal AS
SELECT
    place, LOWER(HEX(reservation)) AS reservation, side, attempt, seq, unbooked, origin, admitted_at, ended_at,
    requests, request_id, tenant,
    CAST(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(body, '$.p')), '') AS BINARY) AS project,
    CAST(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(body, '$.k')), '') AS BINARY) AS key_id,
    CAST(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(body, '$.b')), '') AS BINARY) AS service,
    CAST(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(body, '$.u')), '') AS BINARY) AS end_user,
    CAST(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(body, '$.ma')), JSON_UNQUOTE(JSON_EXTRACT(body, '$.m')), '') AS BINARY) AS model_asked,
    CAST(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(body, '$.mp')), JSON_UNQUOTE(JSON_EXTRACT(body, '$.m')), '') AS BINARY) AS model_priced,
    CAST(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(body, '$.m')), '') AS BINARY) AS model_used,
    pool,
    COALESCE(CAST(JSON_EXTRACT(body, '$.ui') AS SIGNED), 0) AS input,
    COALESCE(CAST(JSON_EXTRACT(body, '$.uc') AS SIGNED), 0) AS cached,
    COALESCE(CAST(JSON_EXTRACT(body, '$.uw') AS SIGNED), 0) AS cache_write,
    COALESCE(CAST(JSON_EXTRACT(body, '$.uh') AS SIGNED), 0) AS cache_write_1h,
    COALESCE(CAST(JSON_EXTRACT(body, '$.uo') AS SIGNED), 0) AS output,
    COALESCE(CAST(JSON_EXTRACT(body, '$.ur') AS SIGNED), 0) AS reasoning,
    COALESCE(CAST(JSON_EXTRACT(body, '$.ai') AS SIGNED), 0) AS audio_input,
    COALESCE(CAST(JSON_EXTRACT(body, '$.ao') AS SIGNED), 0) AS audio_output,
    COALESCE(CAST(JSON_EXTRACT(body, '$.im') AS SIGNED), 0) AS image_input,
    COALESCE(CAST(JSON_EXTRACT(body, '$.ws') AS SIGNED), 0) AS web_searches,
    COALESCE(CAST(JSON_EXTRACT(body, '$.c') AS SIGNED), 0) AS cost_nano,
    COALESCE(CAST(JSON_EXTRACT(body, '$.pv') AS DECIMAL(20)), 0) AS price_version,
    COALESCE(CAST(JSON_EXTRACT(body, '$.hi') AS SIGNED), 0) AS hold_input,
    COALESCE(CAST(JSON_EXTRACT(body, '$.he') AS SIGNED), 0) AS hold_expected,
    COALESCE(CAST(JSON_EXTRACT(body, '$.hw') AS SIGNED), 0) AS hold_worst,
    COALESCE(CAST(JSON_EXTRACT(body, '$.hc') AS SIGNED), 0) AS hold_expected_cost_nano,
    COALESCE(CAST(JSON_EXTRACT(body, '$.hd') AS SIGNED), 0) AS hold_worst_cost_nano,
    COALESCE(CAST(JSON_UNQUOTE(JSON_EXTRACT(body, '$.hx')) IN ('true', '1') AS SIGNED), 0) AS charged_on_expiry,
    COALESCE(CAST(JSON_EXTRACT(body, '$.f') AS SIGNED), 0) AS figures,
    COALESCE(CAST(JSON_EXTRACT(body, '$.e') AS SIGNED), 0) AS ending,
    COALESCE(CAST(JSON_EXTRACT(body, '$.x') AS SIGNED), 0) AS overrun_llm_tokens,
    COALESCE(CAST(JSON_EXTRACT(body, '$.xc') AS SIGNED), 0) AS overrun_cost_nano,
    COALESCE(JSON_EXTRACT(body, '$.l'), '[]') AS ladder,
    COALESCE(CAST(JSON_EXTRACT(body, '$.d') AS SIGNED), 0) AS latency_ms,
    CAST(JSON_EXTRACT(body, '$.df') AS SIGNED) AS ttft_ms,
    COALESCE(CAST(JSON_EXTRACT(body, '$.n') AS SIGNED), 0) AS attempts,
    COALESCE(CAST(JSON_EXTRACT(body, '$.g') AS SIGNED), 0) AS flags,
    posted
FROM entry_row;
