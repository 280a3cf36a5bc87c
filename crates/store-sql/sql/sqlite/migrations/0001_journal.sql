-- The journal: one row per entry, what it posted to quotas, and daily totals.
-- Times are microseconds of engine time, money is nano-currency, codes are those of the store port.
-- Text compares byte for byte (the BINARY collation is SQLite's default).

CREATE TABLE entry (
    place INTEGER PRIMARY KEY,
    reservation BLOB NOT NULL CHECK (length(reservation) = 16),
    side INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    unbooked INTEGER NOT NULL CHECK (unbooked IN (0, 1)),
    origin INTEGER NOT NULL,
    day INTEGER NOT NULL,
    admitted_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    key_id TEXT NOT NULL,
    service TEXT NOT NULL,
    end_user TEXT NOT NULL,
    model_asked TEXT NOT NULL,
    model_priced TEXT NOT NULL,
    model_used TEXT NOT NULL,
    pool TEXT NOT NULL,
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
    price_version INTEGER NOT NULL,
    hold_input INTEGER NOT NULL,
    hold_expected INTEGER NOT NULL,
    hold_worst INTEGER NOT NULL,
    hold_expected_cost_nano INTEGER NOT NULL,
    hold_worst_cost_nano INTEGER NOT NULL,
    charged_on_expiry INTEGER NOT NULL,
    figures INTEGER NOT NULL,
    ending INTEGER NOT NULL,
    overrun_llm_tokens INTEGER NOT NULL,
    overrun_cost_nano INTEGER NOT NULL,
    ladder TEXT NOT NULL,
    latency_ms INTEGER NOT NULL,
    ttft_ms INTEGER,
    attempts INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    UNIQUE (reservation, side, attempt, seq, unbooked)
) STRICT;

CREATE INDEX entry_by_request ON entry (request_id);
CREATE INDEX entry_by_end ON entry (ended_at);
CREATE INDEX entry_by_tenant ON entry (tenant, admitted_at);
CREATE INDEX entry_by_pool ON entry (pool, admitted_at);

CREATE TABLE posted (
    place INTEGER NOT NULL REFERENCES entry (place),
    leg INTEGER NOT NULL,
    subject INTEGER NOT NULL,
    account INTEGER NOT NULL,
    period INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (place, leg)
) STRICT, WITHOUT ROWID;

CREATE INDEX posted_by_account ON posted (subject, account, period, amount);

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
