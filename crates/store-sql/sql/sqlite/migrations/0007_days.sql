-- What is kept of the journal, by day. The keys of entries stand by themselves and stay, so that an entry is one entry over all
-- days; the entries' rows go with their day, which is that of their end.
-- Instants are microseconds of engine time, days are counted from 1970-01-01.

CREATE TABLE entry_key (
    reservation BLOB NOT NULL CHECK (length(reservation) = 16),
    side INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    unbooked INTEGER NOT NULL CHECK (unbooked IN (0, 1)),
    -- Where the row is, or was.
    place INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    PRIMARY KEY (reservation, side, attempt, seq, unbooked)
) STRICT, WITHOUT ROWID;
INSERT INTO entry_key (reservation, side, attempt, seq, unbooked, place, ended_at)
SELECT reservation, side, attempt, seq, unbooked, place, ended_at FROM entry
ORDER BY reservation, side, attempt, seq, unbooked;

CREATE TABLE entry_row (
    place INTEGER PRIMARY KEY,
    reservation BLOB NOT NULL CHECK (length(reservation) = 16),
    side INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    unbooked INTEGER NOT NULL CHECK (unbooked IN (0, 1)),
    origin INTEGER NOT NULL,
    admitted_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    pool TEXT NOT NULL,
    -- JSON: [[subject, account, period, amount], ...]
    posted TEXT NOT NULL,
    -- JSON, as the store port encodes it; the view `journal` gives its members names.
    body TEXT NOT NULL
) STRICT;
INSERT INTO entry_row SELECT * FROM entry ORDER BY place;
DROP VIEW journal;
DROP TABLE entry;

CREATE INDEX entry_by_request ON entry_row (request_id);
CREATE INDEX entry_by_end ON entry_row (ended_at);
-- A tenant's entries are looked for on the tenant's side (0), a pool's on the pool's (1).
CREATE INDEX entry_by_tenant ON entry_row (tenant, admitted_at) WHERE side = 0;
CREATE INDEX entry_by_pool ON entry_row (pool, admitted_at) WHERE side = 1;

-- Rows that ended before `since` are gone, or go next; none at a place above `place` has gone.
CREATE TABLE journal_kept (
    number INTEGER PRIMARY KEY CHECK (number = 1),
    since INTEGER NOT NULL,
    place INTEGER NOT NULL
) STRICT;
INSERT INTO journal_kept (number, since, place) VALUES (1, 0, 0);

-- The newest place when a day began, by this database's clock: what was written since is not old, whenever it ended.
CREATE TABLE journal_day (
    day INTEGER PRIMARY KEY,
    place INTEGER NOT NULL
) STRICT;

-- Entries with named columns, for reports and for people.
CREATE VIEW journal AS
SELECT
    place, lower(hex(reservation)) AS reservation, side, attempt, seq, unbooked, origin, admitted_at, ended_at,
    requests, request_id, tenant,
    coalesce(body ->> 'p', '') AS project,
    coalesce(body ->> 'k', '') AS key_id,
    coalesce(body ->> 'b', '') AS service,
    coalesce(body ->> 'u', '') AS end_user,
    coalesce(body ->> 'ma', body ->> 'm', '') AS model_asked,
    coalesce(body ->> 'mp', body ->> 'm', '') AS model_priced,
    coalesce(body ->> 'm', '') AS model_used,
    pool,
    coalesce(body ->> 'ui', 0) AS input,
    coalesce(body ->> 'uc', 0) AS cached,
    coalesce(body ->> 'uw', 0) AS cache_write,
    coalesce(body ->> 'uh', 0) AS cache_write_1h,
    coalesce(body ->> 'uo', 0) AS output,
    coalesce(body ->> 'ur', 0) AS reasoning,
    coalesce(body ->> 'ai', 0) AS audio_input,
    coalesce(body ->> 'ao', 0) AS audio_output,
    coalesce(body ->> 'im', 0) AS image_input,
    coalesce(body ->> 'ws', 0) AS web_searches,
    coalesce(body ->> 'c', 0) AS cost_nano,
    coalesce(body ->> 'pv', 0) AS price_version,
    coalesce(body ->> 'hi', 0) AS hold_input,
    coalesce(body ->> 'he', 0) AS hold_expected,
    coalesce(body ->> 'hw', 0) AS hold_worst,
    coalesce(body ->> 'hc', 0) AS hold_expected_cost_nano,
    coalesce(body ->> 'hd', 0) AS hold_worst_cost_nano,
    coalesce(body ->> 'hx', 0) AS charged_on_expiry,
    coalesce(body ->> 'f', 0) AS figures,
    coalesce(body ->> 'e', 0) AS ending,
    coalesce(body ->> 'x', 0) AS overrun_llm_tokens,
    coalesce(body ->> 'xc', 0) AS overrun_cost_nano,
    coalesce(body -> 'l', '[]') AS ladder,
    coalesce(body ->> 'd', 0) AS latency_ms,
    body ->> 'df' AS ttft_ms,
    coalesce(body ->> 'n', 0) AS attempts,
    coalesce(body ->> 'g', 0) AS flags,
    posted
FROM entry_row;
