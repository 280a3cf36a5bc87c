-- Which thresholds were crossed, and what is to be delivered of it to webhooks. `period` and `until` are UTC seconds, other
-- instants Unix milliseconds of the gateways' clocks.

CREATE TABLE IF NOT EXISTS alert_mark (
    tenant VARBINARY(512) NOT NULL,
    account VARBINARY(64) NOT NULL,
    period BIGINT NOT NULL,
    threshold VARBINARY(128) NOT NULL,
    turn BIGINT NOT NULL,
    crossed BIGINT NOT NULL,
    until BIGINT NOT NULL,
    PRIMARY KEY (account, period, threshold),
    KEY alert_mark_by_tenant (tenant),
    KEY alert_mark_by_time (until)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS webhook_delivery (
    webhook VARBINARY(128) NOT NULL,
    id VARBINARY(128) NOT NULL,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    tries BIGINT NOT NULL,
    state BIGINT NOT NULL,
    PRIMARY KEY (webhook, id),
    KEY webhook_delivery_due (state, webhook, due_at),
    KEY webhook_delivery_by_time (created_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
