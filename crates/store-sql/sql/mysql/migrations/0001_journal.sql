-- The journal: one row per entry, daily totals, and what was posted to each quota period.
-- Times are microseconds of engine time, money is nano-currency, codes are those of the store port.
-- Names are VARBINARY: the only text that compares byte for byte, trailing spaces included, on MySQL and on MariaDB.
-- One statement is one step; each may be run again.

-- Whoever writes takes a turn: it changes this row first. So places are given in the order of commits.
CREATE TABLE IF NOT EXISTS turn (
    number TINYINT NOT NULL PRIMARY KEY,
    taken BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT INTO turn (number, taken) SELECT 1, 0 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM turn);

CREATE TABLE IF NOT EXISTS entry (
    place BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    reservation BINARY(16) NOT NULL,
    side SMALLINT NOT NULL,
    attempt INT NOT NULL,
    seq INT NOT NULL,
    unbooked SMALLINT NOT NULL,
    origin SMALLINT NOT NULL,
    admitted_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    request_id VARBINARY(255) NOT NULL,
    tenant VARBINARY(255) NOT NULL,
    pool VARBINARY(255) NOT NULL,
    -- JSON: [[subject, account, period, amount], ...]
    posted MEDIUMTEXT NOT NULL,
    -- JSON, as the store port encodes it; the view `journal` gives its members names.
    body MEDIUMTEXT NOT NULL,
    UNIQUE KEY entry_by_key (reservation, side, attempt, seq, unbooked),
    KEY entry_by_request (request_id),
    KEY entry_by_end (ended_at),
    KEY entry_by_tenant (side, tenant, admitted_at),
    KEY entry_by_pool (side, pool, admitted_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What was posted to one account in one period: the sum over its entries; and which shard the account is in.
CREATE TABLE IF NOT EXISTS posted (
    subject BIGINT NOT NULL,
    account BIGINT NOT NULL,
    period BIGINT NOT NULL,
    amount BIGINT NOT NULL,
    shard SMALLINT,
    PRIMARY KEY (subject, account, period),
    KEY posted_by_shard (shard, period)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS total (
    day BIGINT NOT NULL,
    side SMALLINT NOT NULL,
    tenant VARBINARY(255) NOT NULL,
    pool VARBINARY(255) NOT NULL,
    model VARBINARY(255) NOT NULL,
    entries BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    input BIGINT NOT NULL,
    cached BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    cache_write_1h BIGINT NOT NULL,
    output BIGINT NOT NULL,
    reasoning BIGINT NOT NULL,
    audio_input BIGINT NOT NULL,
    audio_output BIGINT NOT NULL,
    image_input BIGINT NOT NULL,
    web_searches BIGINT NOT NULL,
    cost_nano BIGINT NOT NULL,
    PRIMARY KEY (day, side, tenant, pool, model)
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
FROM entry;
