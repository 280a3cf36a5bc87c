-- Which thresholds were crossed, and what is to be delivered of it to webhooks. `period` and `until` are UTC seconds, other
-- instants Unix milliseconds of the gateways' clocks.

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
CREATE INDEX alert_mark_by_tenant ON alert_mark (tenant);
CREATE INDEX alert_mark_by_time ON alert_mark (until);

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
CREATE INDEX webhook_delivery_due ON webhook_delivery (state, webhook, due_at);
CREATE INDEX webhook_delivery_by_time ON webhook_delivery (created_at);
