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

CREATE TABLE alert_mark (
    tenant TEXT NOT NULL,
    account TEXT NOT NULL,
    period INTEGER NOT NULL,
    threshold TEXT NOT NULL,
    turn INTEGER NOT NULL,
    crossed INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (account, period, threshold)
) STRICT, WITHOUT ROWID;

CREATE TABLE "change" (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 255),
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    id TEXT NOT NULL,
    -- Documents; no value where the object was not there, or is there no more.
    before TEXT,
    after TEXT
) STRICT;

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

CREATE TABLE fleet (
    number INTEGER PRIMARY KEY CHECK (number = 1),
    id INTEGER NOT NULL
) STRICT;

CREATE TABLE gateway (
    id INTEGER PRIMARY KEY,
    seen_at INTEGER NOT NULL
) STRICT;

CREATE TABLE job_lease (
    job TEXT NOT NULL PRIMARY KEY,
    holder INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE journal_day (
    day INTEGER PRIMARY KEY,
    place INTEGER NOT NULL
) STRICT;

CREATE TABLE journal_kept (
    number INTEGER PRIMARY KEY CHECK (number = 1),
    since INTEGER NOT NULL,
    place INTEGER NOT NULL
) STRICT;

CREATE TABLE "limit_history" (
    tenant TEXT NOT NULL,
    limit_name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    seen_at INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    definition TEXT NOT NULL,
    PRIMARY KEY (tenant, limit_name, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE "object" (
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 255),
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    id TEXT NOT NULL,
    -- The change that wrote it.
    version INTEGER NOT NULL,
    document TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (kind, tenant, project, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE object_mark (
    mark TEXT NOT NULL PRIMARY KEY CHECK (length(CAST(mark AS BLOB)) BETWEEN 1 AND 128),
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 7),
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE posted (
    subject INTEGER NOT NULL,
    account INTEGER NOT NULL,
    period INTEGER NOT NULL,
    amount INTEGER NOT NULL, shard INTEGER,
    PRIMARY KEY (subject, account, period)
) STRICT, WITHOUT ROWID;

CREATE TABLE price_book (
    version INTEGER PRIMARY KEY,
    first_at INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT;

CREATE TABLE restorer (
    shard INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    gateway INTEGER NOT NULL,
    awaited INTEGER NOT NULL CHECK (awaited IN (0, 1)),
    reported INTEGER NOT NULL CHECK (reported IN (0, 1)),
    held INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    PRIMARY KEY (shard, epoch, gateway)
) STRICT, WITHOUT ROWID;

CREATE TABLE shard_end (
    shard INTEGER PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    ended_at INTEGER NOT NULL
) STRICT;

CREATE TABLE shard_epoch (
    shard INTEGER PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    epoch INTEGER NOT NULL CHECK (epoch > 0),
    -- 0 first use, 1 the tail was lost, 2 everything was.
    loss INTEGER NOT NULL CHECK (loss BETWEEN 0 AND 2),
    -- 0 begun, 1 gateways restore, 2 open.
    stage INTEGER NOT NULL CHECK (stage BETWEEN 0 AND 2),
    -- Entries up to this place are in the sums that were written.
    watermark INTEGER NOT NULL,
    staged_at INTEGER NOT NULL
) STRICT;

CREATE TABLE shard_lease (
    shard INTEGER PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    holder INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT;

CREATE TABLE sqlite_sequence(name,seq);

CREATE TABLE total (
    day INTEGER NOT NULL,
    side INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    pool TEXT NOT NULL,
    model TEXT NOT NULL,
    entries INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    input INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    cache_write_1h INTEGER NOT NULL,
    output INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    audio_input INTEGER NOT NULL,
    audio_output INTEGER NOT NULL,
    image_input INTEGER NOT NULL,
    web_searches INTEGER NOT NULL,
    cost_nano INTEGER NOT NULL,
    PRIMARY KEY (day, side, tenant, pool, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE webhook_delivery (
    webhook TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    state INTEGER NOT NULL,
    PRIMARY KEY (webhook, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX alert_mark_by_tenant ON alert_mark (tenant);

CREATE INDEX alert_mark_by_time ON alert_mark (until);

CREATE INDEX change_by_tenant ON change (tenant, number);

CREATE INDEX entry_by_end ON entry_row (ended_at);

CREATE INDEX entry_by_pool ON entry_row (pool, admitted_at) WHERE side = 1;

CREATE INDEX entry_by_request ON entry_row (request_id);

CREATE INDEX entry_by_tenant ON entry_row (tenant, admitted_at) WHERE side = 0;

CREATE INDEX object_mark_by_object ON object_mark (kind, tenant, project, id);

CREATE INDEX posted_by_shard ON posted (shard, period);

CREATE INDEX price_book_by_time ON price_book (first_at);

CREATE INDEX webhook_delivery_by_time ON webhook_delivery (created_at);

CREATE INDEX webhook_delivery_due ON webhook_delivery (state, webhook, due_at);
